"""The event log on disk, for one process: RocksDB through rocksdict.

Events, their two indexes and the state keys of a commit go into one RocksDB batch. So either all of them are stored or
none, even if the process is killed.

Method. `write` puts the batch into RocksDB's buffers and write-ahead log, unsynced, in microseconds; `flush` syncs the
write-ahead log and lets other threads run meanwhile (rocksdict releases the GIL there, and only there). An index entry
is written once for each run of consecutive events under the same key, not once an event. `rocksdb_database` describes
the keys, `rocksdb_recovery` the checks at each opening.

Failures. After a failed write or flush RocksDB rejects writes. Linux may have dropped the pages that it could not
write, so RocksDB's memory may differ from the disk. `recover` reopens the database from the disk. Until then reads
continue, and may return commits that `recover` finds lost.

Non-goal: a second writer of the folder. Readers in other processes open a RocksDB secondary.
"""

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rocksdict import WriteBatch

from events.logs import log
from events.logs.archive.whole_log import WholeLog
from events.logs.rocksdb_database import NEXT_KEY, RETAINED, START_KEY, STATE, Database, pack, run_prefix
from events.logs.rocksdb_recovery import DurableMark, classify, identify, make_folder, open_checked, start_of

DEFAULT_CACHE_BYTES = 64 << 20
"""The default size of the block cache, 64 MiB."""

_ROOM_BYTES = 8 << 20
"""Disk space that RocksDB needs to reopen, in addition to the size of its write-ahead log."""


class RocksDbLog(WholeLog):
    """An `EventLog` in a folder."""

    _durable_elsewhere_offset = 0

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        cluster_id: str | None,
        new_cluster_id: Callable[[], str] = str,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> None:
        """Open the log in a folder, creating it if missing.

        `cluster_id` is the required cluster; None accepts the folder's own, or takes `new_cluster_id()` for a new
        folder. `cache_bytes` limits the block cache; write buffers take three times as much in addition, from 8 to 48
        MiB.

        Raises LogOfAnotherCluster, LogFromNewerVersion, LogLocked, LogCorrupted, LogDiskFull, LogError.
        """
        path = Path(path)
        self.path, self._cache_bytes = path, cache_bytes
        self._flushing = threading.Lock()
        self._failure: str | None = None
        self._database: Database | None = None
        self._closed = False
        self.next_offset = self._durable_offset = 0
        self.truncated_at: int | None = None
        """The offset at which the last opening truncated an unacknowledged torn tail; None if it did not."""
        make_folder(path)
        try:
            self._mark = DurableMark(path)
        except OSError as error:
            raise classify(error, path) from error
        try:
            self._open_database()
            self.cluster_id = self._read(identify, self.next_offset, cluster_id, new_cluster_id)
        except BaseException:
            self._release()
            raise

    @property
    def durable_offset(self) -> int:
        return max(self._durable_offset, self._durable_elsewhere_offset)

    def write(self, commit: log.Commit) -> int:
        database = self._writable()
        if commit.state and not commit.entries:
            raise ValueError("a commit changes state only together with the events that say so")
        first = self.next_offset
        if commit.entries or commit.own:
            batch, end = _commit_batch(commit, first, database)
            self._put(database, batch)
            self.next_offset = end
        return first

    def drop_before(self, offset: int, retained: Sequence[int] = ()) -> None:
        """Drop the archived events below an offset, except those at the offsets `retained`. From now on `read` gets
        dropped events from the archive."""
        database, start = self._writable(), self.start_offset
        assert start <= offset < self.durable_offset, "dropped events are stored and durable"
        batch, views = WriteBatch(raw_mode=True), database.views_handle
        batch.delete_range(pack(start), pack(offset))
        for one in retained:
            batch.put(RETAINED + pack(one), log.read_one(self, one), views)
        batch.put(START_KEY, pack(offset), views)
        self.start_offset = offset  # readers switch to the archive before events are deleted
        self._put(database, batch)

    def forget(self, runs: Iterable[tuple[bytes, range]], state: Iterable[bytes] = ()) -> None:
        """Remove the runs of dropped events from the index, and archived state keys. Raises LogWriteError."""
        database, batch = self._writable(), WriteBatch(raw_mode=True)
        views = database.views_handle
        for name, run in runs:
            for offset in run:  # a run may have been written as several
                batch.delete(name + pack(offset), views)
        for key in state:
            batch.delete(STATE + key, views)
        self._put(database, batch)

    def flush(self) -> int:
        with self._flushing:
            database = self._writable()
            end = self.next_offset
            if end > self._durable_offset:
                try:
                    database.sync(True)
                except Exception as error:
                    raise self._failed(error) from error
                self._mark.write(end)
                self._durable_offset = end
            return self._durable_offset

    def mark_durable(self) -> None:
        self._durable_elsewhere_offset = self.next_offset

    def recover(self) -> int:
        with self._flushing:
            if self._closed:
                raise log.LogClosed(f"the log in {self.path} is closed")
            self._check_disk_space()
            self._close_database()
            self._open_database()
            self._failure = None
            return self.next_offset

    def close(self) -> None:
        if self._closed:
            return
        try:
            if self._failure is None and self._database is not None:
                self.flush()
        finally:
            with self._flushing:
                self._release()

    def _open_database(self) -> None:
        self._database, end, self.truncated_at = open_checked(self.path, self._cache_bytes, self._mark.read())
        self.next_offset = self._durable_offset = self._durable_elsewhere_offset = end
        self.start_offset = start_of(self._database)
        self._mark.write(end)

    def _put(self, database: Database, batch: WriteBatch) -> None:
        try:
            database.write(batch)
        except Exception as error:
            raise self._failed(error) from error

    def _writable(self) -> Database:
        if self._failure is not None:
            raise log.LogWriteError(f"{self.path} rejects writes until it has recovered from: {self._failure}")
        return self._readable()

    def _failed(self, error: Exception) -> log.LogError:
        """Reject further writes; returns the error to raise."""
        self._failure = str(error)
        return classify(error, self.path, log.LogWriteError)

    def _check_disk_space(self) -> None:
        """Raise LogDiskFull unless the disk has room to reopen. Otherwise `recover` would end reads and then fail."""
        needed = sum(each.stat().st_size for each in self.path.glob("*.log")) + _ROOM_BYTES
        probe = self.path / "ROOM"
        try:
            with probe.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, needed)
        except OSError as error:
            raise classify(error, self.path, log.LogWriteError) from error
        finally:
            probe.unlink(missing_ok=True)

    def _close_database(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def _release(self) -> None:
        self._close_database()
        if not self._closed:
            self._closed = True
            self._mark.close()


def _commit_batch(commit: log.Commit, first: int, database: Database) -> tuple[WriteBatch, int]:
    """The RocksDB batch of a commit whose events begin at `first`, and the next offset."""
    batch, views = WriteBatch(raw_mode=True), database.views_handle
    put = batch.put
    shard = request = None
    shard_start = request_start = before = b""
    offset = first
    for entry in commit.entries:
        here = pack(offset)
        put(here, entry.value)
        if entry.shard_key != shard:
            if shard is not None:
                put(run_prefix(log.SHARD, shard) + before, shard_start, views)
            shard, shard_start = entry.shard_key, here
        if entry.request_id != request:
            if request:
                put(run_prefix(log.REQUEST, request) + before, request_start, views)
            request, request_start = entry.request_id, here
        before = here
        offset += 1
    if shard is not None:
        put(run_prefix(log.SHARD, shard) + before, shard_start, views)
        put(NEXT_KEY, pack(offset), views)
    if request:
        put(run_prefix(log.REQUEST, request) + before, request_start, views)
    changes = {**commit.state, **commit.own} if commit.own else commit.state
    for key, value in changes.items():
        if value is None:
            batch.delete(STATE + key, views)
        else:
            put(STATE + key, value, views)
    return batch, offset
