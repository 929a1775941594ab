"""Folding a log into state with few rows through Spark: events travel in packs, and no shard is sorted.

What it is for: rebuilding, where every event goes through the workers once. As rows, events cost more on their way
through Java (to rows, shuffled, sorted, back) than in the fold itself. So the task that reads a range of offsets cuts
its events by share of the shards, and hands on rows of some thousand of a share: packs, which Java moves without
looking into them. A share's packs come in the order of offsets, so all its shards are folded at once, in the order in
which things happened.

Memory: the states of one share's shards, and a pack; not the events, however many one shard has.

What it does not do: serve folds that need a shard's events side by side; those are in `folding`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from zlib import crc32

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from events.codec import OF_IDLE, place_of
from events.names import TopicName, shard_key
from projections.replay.log.kafka_ref import KafkaTopic
from projections.replay.log.log_ref import End, LogRef, Ref, log_of
from projections.replay.log.ranges import Range, ranges_of, stored_events
from projections.replay.spark.columns import ddl
from projections.replay.spark.folding import Row, as_batches
from projections.replay.spark.mapping import map_in_arrow, map_numbers
from projections.replay.spark.options import collector_off
from projections.replay.spark.snapshot_packs import SnapshotRange, snapshot_topics

_SCHEMA = pa.schema(
    [("log_partition", pa.int32()), ("share", pa.int32()), ("start", pa.int64()), ("events", pa.binary())]
)

RANGE_EVENTS = 200_000
"""Events that one task reads. Each opens the log anew, which takes as long as some ten thousand events."""
PACK_EVENTS = 500
"""Events in one pack. What a task has open at a time should fit a processor's cache; and from half a megabyte on Java
keeps a pack apart from its other objects."""

Packed = tuple[str, int, bytes, int]
"""An event: its shard key, its offset, its canonical bytes, and its partition as `codec.place_of` has it."""
Pack = tuple[int, Sequence[Packed]]
"""Events of a log partition, in order."""
StateFold = Callable[[Iterator[Pack]], Iterable[Row]]
"""What a share of the shards comes to: gets its packs, those of each log partition in the order of their offsets."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Packed]).decode


def packs_frame(spark: SparkSession, ref: Ref, end: End, shares: int, begin: int = 0) -> DataFrame:
    """The events of topics before offset `end`, in packs; of a data directory from the snapshot at `begin` on, whose
    topics come first."""
    log, plan = log_of(ref), list[Range | SnapshotRange]()
    if begin:
        assert isinstance(ref, LogRef), "a log in Kafka has no snapshots"
        plan.append(SnapshotRange(begin, ref.partition))
    plan += ranges_of(ref, begin, end, RANGE_EVENTS)

    def packed(number: int) -> Iterator[pa.RecordBatch]:
        with collector_off():
            yield from _packed(log, plan[number], shares)

    return map_numbers(spark, len(plan), packed, _SCHEMA)


def fold_packs(frame: DataFrame, fold: StateFold, schema: pa.Schema, shares: int) -> DataFrame:
    """What `fold` makes of each share, as rows of `schema`."""

    def folded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with collector_off():
            yield from as_batches(fold(_unpacked(batches)), schema)

    shared = frame.repartitionById(shares, frame["share"]).sortWithinPartitions("log_partition", "start")
    return map_in_arrow(shared.select("log_partition", "events"), folded, ddl(schema))


def _packed(log: LogRef | KafkaTopic, part: Range | SnapshotRange, shares: int) -> Iterator[pa.RecordBatch]:
    """The packs of a range, or of a snapshot, one row each, as they become full. Raises LogError, EventDecodeError,
    ReplayError."""
    packing: list[list[Packed]] = [[] for _ in range(shares)]
    places = _Places(packing)
    for topic, offset, value, index in _topics(log, part):
        shard, pack = places[topic]
        pack.append((shard, offset, b"" if index == OF_IDLE else value, index))
        if len(pack) == PACK_EVENTS:
            yield _batch(part.partition, _share_of(shard, shares), pack)
            pack.clear()
    for share, pack in enumerate(packing):
        if pack:
            yield _batch(part.partition, share, pack)


def _topics(log: LogRef | KafkaTopic, part: Range | SnapshotRange) -> Iterator[tuple[TopicName, int, bytes, int]]:
    """What there is of topics, each with its name, or its shard key, which is that of itself."""
    if isinstance(part, SnapshotRange):
        assert isinstance(log, LogRef), "a log in Kafka has no snapshots"
        for shard, offset, value in snapshot_topics(log, part):
            yield shard, offset, value, -1
        return
    for offset, value in stored_events(log, part):
        topic, index = place_of(offset, value)
        if topic is not None:
            yield topic, offset, value, index


class _Places(dict[TopicName, tuple[str, list[Packed]]]):
    """The shard of each topic, and the pack of its share, as it grows."""

    def __init__(self, packing: Sequence[list[Packed]]) -> None:
        super().__init__()
        self._packing = packing

    def __missing__(self, topic: TopicName) -> tuple[str, list[Packed]]:
        shard = shard_key(topic)
        place = self[topic] = (shard, self._packing[_share_of(shard, len(self._packing))])
        return place


def _share_of(shard: str, shares: int) -> int:
    return crc32(shard.encode("utf-8", "surrogatepass")) % shares


def _batch(log_partition: int, share: int, pack: Sequence[Packed]) -> pa.RecordBatch:
    row = {"log_partition": log_partition, "share": share, "start": pack[0][1], "events": _encode(pack)}
    return pa.RecordBatch.from_pylist([row], schema=_SCHEMA)


def _unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[Pack]:
    for batch in batches:
        for log_partition, pack in zip(batch["log_partition"].to_pylist(), batch["events"], strict=True):
            yield log_partition, _decode(pack.as_buffer())
