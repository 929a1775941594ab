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

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from zlib import crc32

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from events.codec import OF_IDLE, place_of
from events.names import TopicName, shard_key
from projections.replay.log.kafka_ref import KafkaTopic
from projections.replay.log.log_ref import End, KafkaRef, LogRef, Ref, in_partitions
from projections.replay.log.ranges import Range, kafka_ranges, planned, planned_text, ranges, stored_events
from projections.replay.spark.columns import ddl
from projections.replay.spark.folding import Row, as_batches, map_in_arrow
from projections.replay.spark.options import collector_off, number_option
from projections.replay.spark.snapshot_packs import SnapshotRange, snapshot_topics
from projections.replay.spark.source import kafka_options, log_of_options

FORMAT = "topicwright-packs"
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
_encode_into = msgspec.msgpack.Encoder().encode_into
_ARRAY = struct.Struct(">BI")
"""How MessagePack begins an array of any length: a mark, and the count."""
_decode = msgspec.msgpack.Decoder(list[Packed]).decode


def packs_frame(spark: SparkSession, ref: Ref, end: End, shares: int, begin: int = 0) -> DataFrame:
    """The events of topics before offset `end`, in packs; of a data directory from the snapshot at `begin` on, whose
    topics come first."""
    reader, ends = spark.read.format(FORMAT).option("shares", shares), in_partitions(ref, end)
    if isinstance(ref, KafkaRef):
        plan = kafka_ranges(ref.scan, 0, ends, RANGE_EVENTS)
        return reader.options(**kafka_options(ref)).option("plan", planned_text(plan)).load(ref.location)
    reader = reader.option("endoffset", ends[ref.partition]).option("begin", begin)
    return reader.option("logpartition", ref.partition).load(ref.location)


def fold_packs(frame: DataFrame, fold: StateFold, schema: pa.Schema, shares: int) -> DataFrame:
    """What `fold` makes of each share, as rows of `schema`."""

    def folded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with collector_off():
            yield from as_batches(fold(_unpacked(batches)), schema)

    shared = frame.repartitionById(shares, frame["share"]).sortWithinPartitions("log_partition", "start")
    return map_in_arrow(shared.select("log_partition", "events"), folded, ddl(schema))


class PackSource(DataSource):
    """The data source of packs, which only `packs_frame` asks for."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return ddl(_SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = {name.lower(): text for name, text in self.options.items()}
        return PackReader(log_of_options(options), options)


class PackReader(DataSourceReader):
    """Reads the events of a log from the beginning up to an end, in ranges."""

    def __init__(self, log: LogRef | KafkaTopic, options: Mapping[str, str]) -> None:
        self._log = log
        self._shares = number_option(options, "shares", 1)
        if isinstance(log, KafkaTopic):
            self._plan: list[Range | SnapshotRange] = [*planned(options["plan"])]
        else:
            begin, end = number_option(options, "begin", 0), number_option(options, "endoffset", 0)
            self._plan = [SnapshotRange(begin, log.partition)] if begin else []
            self._plan += ranges(begin, end, RANGE_EVENTS, log.partition)

    def partitions(self) -> Sequence[InputPartition]:
        return self._plan

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The packs of a range, or of a snapshot, one row each, as they become full. Raises LogError,
        EventDecodeError, ReplayError."""
        assert isinstance(partition, Range | SnapshotRange), "Spark hands back the partitions that it was given"
        with collector_off():
            yield from self._packed(partition)

    def _packed(self, partition: Range | SnapshotRange) -> Iterator[pa.RecordBatch]:
        places = _Places(self._shares)
        packing = [_Packing() for _ in range(self._shares)]
        for topic, offset, value, index in self._topics(partition):
            shard, share = places[topic]
            pack = packing[share]
            pack.add((shard, offset, b"" if index == OF_IDLE else value, index))
            if pack.count == PACK_EVENTS:
                yield _batch(partition.partition, share, pack)
                packing[share] = _Packing()
        for share, pack in enumerate(packing):
            if pack.count:
                yield _batch(partition.partition, share, pack)

    def _topics(self, partition: Range | SnapshotRange) -> Iterator[tuple[TopicName, int, bytes, int]]:
        """What there is of topics, each with its name, or its shard key, which is that of itself."""
        if isinstance(partition, SnapshotRange):
            assert isinstance(self._log, LogRef), "a log in Kafka has no snapshots"
            for shard, offset, value in snapshot_topics(self._log, partition):
                yield shard, offset, value, -1
            return
        for offset, value in stored_events(self._log, partition):
            topic, index = place_of(offset, value)
            if topic is not None:
                yield topic, offset, value, index


class _Packing:
    """A pack as it grows: MessagePack, written event by event, so that none is kept as an object."""

    __slots__ = ("count", "packed", "start")

    def __init__(self) -> None:
        self.count, self.start = 0, -1
        self.packed = bytearray(_ARRAY.size)

    def add(self, event: Packed) -> None:
        """Put one more event into it."""
        if not self.count:
            self.start = event[1]
        self.count += 1
        _encode_into(event, self.packed, -1)


class _Places(dict[TopicName, tuple[str, int]]):
    """The shard of each topic, and its share."""

    def __init__(self, shares: int) -> None:
        super().__init__()
        self._shares = shares

    def __missing__(self, topic: TopicName) -> tuple[str, int]:
        shard = shard_key(topic)
        place = self[topic] = (shard, crc32(shard.encode("utf-8", "surrogatepass")) % self._shares)
        return place


def _batch(log_partition: int, share: int, pack: _Packing) -> pa.RecordBatch:
    _ARRAY.pack_into(pack.packed, 0, 0xDD, pack.count)
    row = {"log_partition": log_partition, "share": share, "start": pack.start, "events": bytes(pack.packed)}
    return pa.RecordBatch.from_pylist([row], schema=_SCHEMA)


def _unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[Pack]:
    for batch in batches:
        for log_partition, pack in zip(batch["log_partition"].to_pylist(), batch["events"], strict=True):
            yield log_partition, _decode(pack.as_buffer())
