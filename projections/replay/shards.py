"""Runs a job on the events of a log, grouped by shard: all events of one shard in order, then those of the next.

A shard has the events of one shard key (`events.names.shard_key`): a topic name with `.` as `_`. The state of one topic
never depends on another's. So shards are processed concurrently, and only the state of one is in memory at a time.
Shards of different log partitions are different shards.

Broker and settings events concern every topic, and there are few of them: `cluster_events` reads them in this
process, and each task gets all of them. A fold may begin at a snapshot, whose topics then come first.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from controller.store.snapshotting import state_keys
from controller.store.stored_topics import TOPIC, decode_topic, each_stored, encode_topic
from events.codec import decode_event, topic_of
from events.logs.log import read_one, shard_offsets
from events.logs.snapshots import SnapshotDamaged, nearest_snapshot, open_snapshot
from events.names import CLUSTER_SHARD, TopicName, shard_key
from projections.replay.log.columns import arrow_schema
from projections.replay.log.kafka_ref import KafkaTopic
from projections.replay.log.kafka_scan import KafkaRef, Range, Stored
from projections.replay.log.log_ref import Ends, LogRef, Ref, collector_off, log_of, ranges_of, stored_events
from projections.replay.log.secondary import frozen_log
from projections.replay.outcome import ReplayError
from projections.replay.runner import Batches, Runner, Source

Shard = tuple[int, str, Iterator[Stored]]
"""A log partition, a shard key, and the events of that shard in order."""
Row = tuple[Any, ...]
Job = Callable[[Iterator[Shard]], Iterable[Row]]
"""Computes rows from the shards of one bucket."""
Clusters = Mapping[int, Sequence[Stored]]
"""The events that concern every topic, by log partition."""

READ_EVENTS = 200_000
"""Approximate number of events that one task reads. Opening the log takes as long as reading some ten thousand."""
BUCKET_EVENTS = 100_000
"""Approximate number of events that one task folds."""
BUCKET_BYTES = 4 << 20
"""Approximate number of snapshot bytes that one task folds: some ten thousand topics."""
_BATCH_ROWS = 5_000
STORED = arrow_schema(("log_partition", "shard", "offset", "value"))
"""The columns of a stored event: its log partition, shard key, offset and bytes."""


class Beginning(msgspec.Struct, frozen=True):
    """The snapshot with which a fold begins: its offset, and its `size` in bytes. Offset 0 is the first event."""

    offset: int = 0
    size: int = 0


AT_FIRST = Beginning()
BEGUN = -1
"""The offset of a topic's state in a snapshot: before all events."""


class _SnapshotPart(NamedTuple):
    """The topics of a log partition in the snapshot at an offset: a part of a source, like a `Range` of events."""

    offset: int
    partition: int


def newest_snapshot(ref: Ref, ends: Ends) -> Beginning:
    """The newest intact snapshot that has no events after `ends`; AT_FIRST if there is none, and for a log in Kafka.
    Raises ReplayError."""
    if not isinstance(ref, LogRef):
        return AT_FIRST
    at_most = ends[ref.partition]
    with frozen_log(ref.path) as log:
        while (snapshot := nearest_snapshot(log, at_most)) is not None:
            with snapshot:
                try:
                    snapshot.check()
                    return Beginning(snapshot.offset, snapshot.size)
                except (SnapshotDamaged, OSError):
                    at_most = snapshot.offset - 1
    return AT_FIRST


def cluster_events(ref: Ref, ends: Ends) -> Clusters:
    """The events before `ends` that concern every topic, in order, by log partition. Raises ReplayError.

    Refused requests for a topic without a name have the same shard key, and are left out.
    """
    if isinstance(ref, KafkaRef):
        return {
            one.partition: tuple(stored for stored in one.cluster if stored[0] < ends[one.partition])
            for one in ref.partitions
        }
    with frozen_log(ref.path) as log:
        offsets = shard_offsets(log, CLUSTER_SHARD, 0, ends[ref.partition])
        stored = ((offset, read_one(log, offset)) for offset in offsets)
        return {ref.partition: tuple(one for one in stored if not hasattr(decode_event(*one).event, "topic"))}


def fold_shards(
    runner: Runner,
    ref: Ref,
    ends: Ends,
    job: Job,
    schema: pa.Schema,
    *,
    begin: Beginning = AT_FIRST,
    only: frozenset[str] | None = None,
) -> pa.Table:
    """Run `job` on each bucket of shards, with the events before `ends`, and return its rows; `only` limits the shards.

    From a snapshot on, the first event of each topic is its state, at the offset BEGUN.
    Raises ReplayError, LogError, EventDecodeError, and what the job raises; with Spark, the errors of Spark.
    """

    def folded(batches: Batches) -> Batches:
        with collector_off():
            yield from as_batches(job(_shards(batches)), schema)

    count = -(-(sum(ends.values()) - begin.offset) // BUCKET_EVENTS) + begin.size // BUCKET_BYTES
    source = _source(ref, ends, begin, only)
    return runner.fold(source, folded, schema, max(1, count), ordered=True)


def stored_rows(shards: Iterable[Shard]) -> Iterator[Row]:
    """The identity job: returns the events themselves, as rows of STORED."""
    for log_partition, shard, events in shards:
        for offset, value in events:
            yield log_partition, shard, offset, value


def rows_of(rows: pa.Table | pa.RecordBatch) -> Iterator[Row]:
    """The rows as tuples."""
    return zip(*(column.to_pylist() for column in rows.columns), strict=True)


def as_batches(rows: Iterable[Row], schema: pa.Schema) -> Batches:
    """Rows in Arrow, some thousand at a time."""
    left = iter(rows)
    while some := list(islice(left, _BATCH_ROWS)):
        arrays = [pa.array(column, field.type) for column, field in zip(zip(*some, strict=True), schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _shards(batches: Batches) -> Iterator[Shard]:
    rows = (row for batch in batches for row in rows_of(batch))
    for (log_partition, shard), run in groupby(rows, key=itemgetter(0, 1)):
        yield log_partition, shard, map(itemgetter(2, 3), run)


def _source(ref: Ref, ends: Ends, begin: Beginning, only: frozenset[str] | None) -> Source:
    log, parts = log_of(ref), list[Range | _SnapshotPart](ranges_of(ref, begin.offset, ends, READ_EVENTS))
    if begin.offset:
        assert isinstance(ref, LogRef), "a log in Kafka has no snapshots"
        parts.insert(0, _SnapshotPart(begin.offset, ref.partition))

    def read(part: Range | _SnapshotPart) -> Batches:
        with collector_off():
            placed = ((part.partition, *one) for one in _stored(log, part) if only is None or one[0] in only)
            yield from as_batches(placed, STORED)

    return Source(parts, read, STORED)


def _stored(log: LogRef | KafkaTopic, part: Range | _SnapshotPart) -> Iterator[tuple[str, int, bytes]]:
    """The events of topics, each with its shard key; they are not decoded. Raises LogError, EventDecodeError."""
    if isinstance(part, _SnapshotPart):
        assert isinstance(log, LogRef), "a log in Kafka has no snapshots"
        yield from _of_snapshot(log, part)
        return
    keys = dict[TopicName, str]()
    for offset, value in stored_events(log, part):
        topic = topic_of(offset, value)
        if topic is not None:
            key = keys.get(topic)
            if key is None:
                key = keys[topic] = shard_key(topic)
            yield key, offset, value


def _of_snapshot(log: LogRef, part: _SnapshotPart) -> Iterator[tuple[str, int, bytes]]:
    """The topics of a snapshot: shard key, BEGUN, and the encoded topic. Raises LogError, ReplayError."""
    try:
        with frozen_log(log.path) as opened, open_snapshot(opened, part.offset) as snapshot:
            for shard, values in each_stored(pair for pair in state_keys(snapshot) if pair[0].startswith(TOPIC)):
                yield shard, BEGUN, values[0] if len(values) == 1 else encode_topic(decode_topic(values))
    except (SnapshotDamaged, FileNotFoundError) as error:
        raise ReplayError(
            f"the snapshot at {part.offset} no longer exists ({error}): run again, or use --from-scratch"
        ) from None
