"""Follows a log for `topicwright replay watch`: the new events of each poll, and the earlier events of some topics.

A data directory has an index, which finds earlier events. A topic in Kafka has no index, so its events are stored in a
log with an index for each partition, in a temporary folder. This folder takes as much disk as the events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from events.codec import decode_event
from events.logs.events_topic import PartitionReader
from events.logs.log import Commit, Entry, EventLog, read_one, shard_offsets
from events.logs.rocksdb_log import RocksDbLog
from events.names import ShardKey
from projections.replay.checks.growth import Shards
from projections.replay.checks.history import COLUMNS
from projections.replay.log.columns import Columns, shard_of
from projections.replay.log.kafka_ref import TopicReader
from projections.replay.log.kafka_scan import KafkaRef, check_begins, decoded, folded
from projections.replay.log.log_ref import Ends, LogRef, Ref, ranges
from projections.replay.log.reading import RANGE_EVENTS, read_range
from projections.replay.log.secondary import frozen_log
from projections.replay.outcome import ReplayError
from projections.replay.runner import Batches

_EVENTS_PER_WRITE = 1000  # one batch of RocksDB
_CACHE_BYTES = 8 << 20


class _Folder:
    """Follows a data directory, up to the events that the service has synced."""

    def __init__(self, ref: LogRef) -> None:
        self._ref = ref
        self._next = 0

    def new(self) -> Batches:
        """The events that came since the last call, as columns. Raises ReplayError, LogError, EventDecodeError."""
        with frozen_log(self._ref.path) as log:
            end = log.durable_offset
        if end < self._next:
            raise _other(self._ref, f"it ends at offset {end}")
        for wanted in ranges(self._next, end, RANGE_EVENTS, self._ref.partition):
            yield from read_range(self._ref, wanted, COLUMNS)
        self._next = end

    def before(self, ends: Ends, shards: Shards) -> Batches:
        """The events of some shards before `ends`, as columns."""
        with frozen_log(self._ref.path) as log:
            yield from _of_shards({self._ref.partition: log}, ends, shards)


class _Topic:
    """Follows an events topic in Kafka; the methods are those of `_Folder`."""

    def __init__(self, ref: KafkaRef, kafka: TopicReader, folder: Path) -> None:
        self._ref = ref
        self._kafka = kafka
        self._readers = {one.partition: PartitionReader(one.partition) for one in ref.partitions}
        self._logs = {partition: _stored_in(folder / str(partition)) for partition in self._readers}

    def new(self) -> Batches:
        ranges = self._kafka.current_ranges().ranges
        if ranges.keys() != self._readers.keys():
            raise _other(self._ref, f"it has {len(ranges)} partitions")
        for partition, (first, end) in ranges.items():
            check_begins(self._ref.topic, partition, first)
            if end < self._readers[partition].kafka_offset:
                raise _other(self._ref, f"partition {partition} ends at record {end}")
            yield from self._of_partition(partition, end)

    def before(self, ends: Ends, shards: Shards) -> Batches:
        return _of_shards(self._logs, ends, shards)

    def close(self) -> None:
        for log in self._logs.values():
            log.close()

    def _of_partition(self, partition: int, end: int) -> Batches:
        reader, log, columns, entries = self._readers[partition], self._logs[partition], Columns(COLUMNS, partition), []
        for events in folded(self._ref.topic, reader, self._kafka.records(partition, reader.kafka_offset, end)):
            for number, value in events:
                recorded = decoded(self._ref.topic, partition, number, value)
                columns.add(recorded, value)
                entries.append(Entry(value, shard_of(recorded.event)))
            if len(entries) >= _EVENTS_PER_WRITE:
                log.write(Commit(entries))
                entries = []
                yield columns.batch()
        if entries:
            log.write(Commit(entries))
            yield columns.batch()


def _of_shards(logs: Mapping[int, EventLog], ends: Ends, shards: Shards) -> Batches:
    for partition, end in ends.items():
        log, columns = logs[partition], Columns(COLUMNS, partition)
        for shard in sorted(shards.get(partition, ())):
            for offset in shard_offsets(log, ShardKey(shard), 0, end):
                value = read_one(log, offset)
                columns.add(decode_event(offset, value), value)
        yield columns.batch()


def _other(ref: Ref, why: str) -> ReplayError:
    return ReplayError(f"{ref.text} is not the log any more that the watch has read: {why}; start the watch again")


def _stored_in(folder: Path) -> RocksDbLog:
    return RocksDbLog(
        folder,
        cluster_id="watched",
        new_cluster_id=lambda: "watched",
        cache_bytes=_CACHE_BYTES,
    )


@contextmanager
def followed(ref: Ref) -> Iterator[_Folder | _Topic]:
    """Open a log to follow from its first event on, until the `with` block ends. Raises ReplayError."""
    if isinstance(ref, LogRef):
        yield _Folder(ref)
        return
    with (
        TemporaryDirectory(prefix="topicwright-watched-") as folder,
        closing(TopicReader(ref.topic)) as kafka,
        closing(_Topic(ref, kafka, Path(folder))) as topic,
    ):
        yield topic
