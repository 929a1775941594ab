"""The earlier events of some topics, for a check that sees the events of a log as they come.

A data directory finds them by its own index. A topic in Kafka has none, so what comes of it is kept: in a log with an
index for each partition, in a temporary folder that goes with the watch. It takes as much disk as the events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from pyspark.sql import DataFrame

from events.catalog import EVENT_VERSION
from events.logs.log import Commit, Entry, read_one, shard_offsets
from events.logs.rocksdb_log import RocksDbLog
from events.names import ShardKey
from projections.replay.log.log_ref import LogRef, Ref, looked_at
from projections.replay.spark.folding import Stored

KEPT_COLUMNS = ("log_partition", "offset", "shard", "value")
"""What has to be in the frames that are kept."""
_EVENTS_PER_WRITE = 1000  # one batch of RocksDB
_CACHE_BYTES = 8 << 20


class EarlierEvents(Protocol):
    """Finds the events of shards in a log partition."""

    def keep(self, events: DataFrame) -> None:
        """Take in what has come."""
        ...

    def before(self, partition: int, end: int, shards: Iterable[ShardKey]) -> Iterator[Stored]:
        """The events of shards before offset `end`, those of each in order."""
        ...


class _InFolder:
    """Those of a data directory."""

    def __init__(self, ref: LogRef) -> None:
        self._ref = ref

    def keep(self, events: DataFrame) -> None:
        return None

    def before(self, partition: int, end: int, shards: Iterable[ShardKey]) -> Iterator[Stored]:
        with looked_at(self._ref) as log:
            for shard in shards:
                for offset in shard_offsets(log, shard, 0, end):
                    yield offset, read_one(log, offset)


class _Kept:
    """Those of a topic in Kafka."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._logs: dict[int, RocksDbLog] = {}

    def keep(self, events: DataFrame) -> None:
        entries: dict[int, list[Entry]] = {}
        for row in events.select(*KEPT_COLUMNS).orderBy("log_partition", "offset").toLocalIterator():
            log = self._log(row.log_partition)
            some = entries.setdefault(row.log_partition, [])
            if row.offset == log.next_offset + len(some):
                some.append(Entry(bytes(row.value), row.shard))
            if len(some) >= _EVENTS_PER_WRITE:
                log.write(Commit(entries.pop(row.log_partition)))
        for partition, some in entries.items():
            self._log(partition).write(Commit(some))

    def before(self, partition: int, end: int, shards: Iterable[ShardKey]) -> Iterator[Stored]:
        log = self._log(partition)
        for shard in shards:
            for offset in shard_offsets(log, shard, 0, end):
                yield offset, read_one(log, offset)

    def close(self) -> None:
        for log in self._logs.values():
            log.close()

    def _log(self, partition: int) -> RocksDbLog:
        if partition not in self._logs:
            self._logs[partition] = RocksDbLog.open(
                self._folder / str(partition),
                cluster_id="watched",
                event_version=EVENT_VERSION,
                new_cluster_id=lambda: "watched",
                cache_bytes=_CACHE_BYTES,
            )
        return self._logs[partition]


@contextmanager
def earlier_events(ref: Ref) -> Iterator[EarlierEvents]:
    """What finds the earlier events of a log, for as long as it is watched."""
    if isinstance(ref, LogRef):
        yield _InFolder(ref)
        return
    with TemporaryDirectory(prefix="topicwright-watched-") as folder:
        kept = _Kept(Path(folder))
        try:
            yield kept
        finally:
            kept.close()
