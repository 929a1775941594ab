"""The event log on a disk, for one process: RocksDB through rocksdict.

What it is for: the embedded controller's log and state. Events, their two indexes and the state keys of a commit go
into one RocksDB batch, so they are all there or none is, whenever the process dies.

Method. `write` puts the batch into RocksDB's buffers and write-ahead log, unsynced, in microseconds; `flush` syncs the
write-ahead log and lets other threads run meanwhile (rocksdict releases the GIL there, and only there). An index entry
is written once for each run of consecutive events under the same key, not once an event. `rocksdb_database` describes
the keys, `rocksdb_recovery` what is proved at each opening.

Failures. After a failed write or flush RocksDB refuses to go on, and Linux may have dropped the pages that it could not
write, so memory proves nothing any more: `recover` closes the database and opens it anew, and what the disk has is the
truth. Reading goes on until then, and may show commits that `recover` will find gone.

What it does not do: share the folder with a second writer. Readers in other processes open a RocksDB secondary, or a
copy made by `checkpoint`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Concatenate, ParamSpec, Self, TypeVar

from rocksdict import WriteBatch

from events.logs import log
from events.logs.rocksdb_batch import REQUEST, SHARD, STATE, batch_of, pack
from events.logs.rocksdb_database import Database, Frozen, Page, run_prefix
from events.logs.rocksdb_errors import classify
from events.logs.rocksdb_recovery import DurableMark, identify, make_folder, open_checked

P = ParamSpec("P")
T = TypeVar("T")
_Pair = tuple[bytes, bytes]
_Paging = Callable[[Database, bytes, bytes], Page]

DEFAULT_CACHE_BYTES = 64 << 20
"""64 MiB: what the block cache takes where the opener does not say."""

_PAST_RUNS = b"\1"
"""After all runs of a name, whose offsets begin with 00, and before a name that goes on with a NUL, which is 00 FF."""
_ROOM_BYTES = 8 << 20
"""Room beside the write-ahead log's own size that RocksDB needs to open again."""


class RocksDbLog:
    """An `EventLog` in a folder; see the port for what each method promises."""

    _vouched_offset = 0

    def __init__(
        self,
        path: Path,
        cache_bytes: int,
        cluster_id: str | None,
        event_version: int,
        new_cluster_id: Callable[[], str],
    ) -> None:
        self._path, self._cache_bytes = path, cache_bytes
        self._flushing = threading.Lock()
        self._failure: str | None = None
        self._database: Database | None = None
        self._closed = False
        self._next_offset = self._durable_offset = 0
        self._cut: int | None = None
        make_folder(path)
        try:
            self._mark = DurableMark(path)
        except OSError as error:
            raise classify(error, path) from error
        try:
            self._open_database()
            self._cluster_id = self._read(identify, self._next_offset, cluster_id, event_version, new_cluster_id)
        except BaseException:
            self._let_go()
            raise

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        cluster_id: str | None,
        event_version: int,
        new_cluster_id: Callable[[], str],
        cache_bytes: int = DEFAULT_CACHE_BYTES,
    ) -> Self:
        """Open the log in a folder, making it if it is missing.

        `cluster_id` is the cluster whose log it must be; None takes the folder's own, or `new_cluster_id()` for a new
        folder. `event_version` is the newest event version that this release knows. `cache_bytes` bounds the block
        cache; beside it, write buffers take about 48 MiB.

        Raises LogOfAnotherCluster, LogFromNewerVersion, LogLocked, LogCorrupted, LogNotAFolder, LogAccessDenied,
        LogDiskFull.
        """
        return cls(Path(path), cache_bytes, cluster_id, event_version, new_cluster_id)

    @property
    def path(self) -> Path:
        """The folder that the log is in."""
        return self._path

    @property
    def cut(self) -> int | None:
        """The offset at which the last opening cut off a torn tail that nobody was answered for; None if it did not."""
        return self._cut

    @property
    def cluster_id(self) -> str:
        return self._cluster_id

    @property
    def next_offset(self) -> int:
        return self._next_offset

    @property
    def durable_offset(self) -> int:
        return max(self._durable_offset, self._vouched_offset)

    def write(self, commit: log.Commit) -> int:
        database = self._writable()
        log.check_commit(commit)
        first = self._next_offset
        if not commit.entries:
            return first
        batch, end = batch_of(commit, first, database)
        self._put(database, batch)
        self._next_offset = end
        return first

    def note(self, state: Mapping[bytes, bytes | None]) -> None:
        database, batch = self._writable(), WriteBatch(raw_mode=True)
        for key, value in state.items():
            if value is None:
                batch.delete(STATE + key, database.views_handle)
            else:
                batch.put(STATE + key, value, database.views_handle)
        self._put(database, batch)

    def flush(self) -> int:
        with self._flushing:
            database = self._writable()
            end = self._next_offset
            if end > self._durable_offset:
                try:
                    self._sync(database)
                except Exception as error:
                    raise self._failed(error) from error
                self._mark.write(end)
                self._durable_offset = end
            return self._durable_offset

    def vouch(self) -> None:
        self._vouched_offset = self._next_offset

    def recover(self) -> int:
        with self._flushing:
            if self._closed:
                raise log.LogClosed(f"the log in {self._path} is closed")
            self._check_room()
            self._close_database()
            self._open_database()
            self._failure = None
            return self._next_offset

    def read(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, bytes]]:
        log.check_range(start, end)
        self._readable()
        stop = self._next_offset if end is None else min(end, self._next_offset)
        return self._each_event(start, stop)

    def read_one(self, offset: int) -> bytes:
        if not 0 <= offset < self._next_offset:
            raise IndexError(f"no event at offset {offset}: {self._path} ends at {self._next_offset}")
        value: bytes | None = self._read(lambda database: database.get_event(pack(offset)))
        if value is None:
            raise self._missing(offset)
        return value

    def read_many(self, offsets: Sequence[int]) -> list[bytes]:
        values = self._read(Database.get_events, [pack(offset) for offset in offsets])
        return [self.read_one(offset) if one is None else one for offset, one in zip(offsets, values, strict=True)]

    def shard_offsets(self, shard_key: str, start: int = 0, end: int | None = None) -> Iterator[int]:
        log.check_range(start, end)
        self._readable()
        stop = self._next_offset if end is None else min(end, self._next_offset)
        return self._each_in_runs(run_prefix(SHARD, shard_key), start, stop)

    def shard_runs(self, shard_keys: Sequence[str], start: int, end: int) -> list[list[range] | None]:
        prefixes = [run_prefix(SHARD, key) for key in shard_keys]
        return self._read(Database.runs, prefixes, start, min(end, self._next_offset))

    def shard_keys(self, after: str = "") -> Iterator[str]:
        self._readable()
        return self._each_shard(run_prefix(SHARD, after))

    def request_offsets(self, request_id: str) -> Iterator[int]:
        self._readable()
        return self._each_in_runs(run_prefix(REQUEST, request_id), 0, self._next_offset)

    def get(self, key: bytes) -> bytes | None:
        value: bytes | None = self._read(lambda database: database.get_view(STATE + key))
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._read(Database.get_views, [STATE + key for key in keys])

    def scan(self, prefix: bytes = b"", start_after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        self._readable()
        lower, upper = log.key_range(STATE + prefix, None if start_after is None else STATE + start_after)
        assert upper is not None, "the leading byte of a state key has a successor"
        return self._each_pair(lower, upper)

    def index_runs(self, of_requests: bool) -> Iterator[tuple[str, int, int]]:
        """Each name of the index by shard, or by request, with the first and last offset of a run under it."""
        kind = REQUEST if of_requests else SHARD
        for key, value in self._each_view(kind, bytes((kind[0] + 1,))):
            name = key[len(kind) : -9].replace(b"\0\xff", b"\0").decode("utf-8", "replace")
            yield name, int.from_bytes(key[-8:], "big"), int.from_bytes(value, "big")

    def frozen_scan(self, prefixes: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """The state keys under some prefixes, each as `scan` has them, but all as they are now: on the thread that
        writes. Who is asked for them may be in another one; it is to go to the end, or to close the iterator."""
        frozen = self._read(Database.frozen_views)
        return self._each_frozen(frozen, [log.key_range(STATE + prefix, None) for prefix in prefixes])

    def checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Write a frozen copy of the log to a folder that does not exist yet: a log in its own right, for audits.

        On the same file system its table files are hard links, and it takes milliseconds. Raises FileExistsError,
        LogDiskFull, LogAccessDenied, LogWriteError.
        """
        if os.path.lexists(path):
            raise FileExistsError(f"{path} exists: a checkpoint makes its own folder")
        try:
            self._readable().checkpoint(Path(path))
        except Exception as error:
            raise classify(error, Path(path), log.LogWriteError) from error

    def close(self) -> None:
        if self._closed:
            return
        try:
            if self._failure is None and self._database is not None:
                self.flush()
        finally:
            with self._flushing:
                self._let_go()

    def _apply(self, database: Database, batch: WriteBatch) -> None:
        """Write a batch; apart, so that a test can make it fail."""
        database.write(batch)

    def _sync(self, database: Database) -> None:
        """Sync the write-ahead log; apart, so that a test can make it fail."""
        database.sync(True)

    def _open_database(self) -> None:
        opened = open_checked(self._path, self._cache_bytes, self._mark.read())
        self._database = opened.database
        self._cut = opened.cut
        self._next_offset = self._durable_offset = self._vouched_offset = opened.next_offset
        self._mark.write(opened.next_offset)

    def _read(self, call: Callable[Concatenate[Database, P], T], *args: P.args, **named: P.kwargs) -> T:
        """What a call finds in the database; what RocksDB raises becomes a LogError."""
        try:
            return call(self._readable(), *args, **named)
        except Exception as error:
            raise classify(error, self._path) from error

    def _put(self, database: Database, batch: WriteBatch) -> None:
        try:
            self._apply(database, batch)
        except Exception as error:
            raise self._failed(error) from error

    def _readable(self) -> Database:
        if self._database is None:
            why = "" if self._failure is None else f" until it has recovered from: {self._failure}"
            raise log.LogClosed(f"the log in {self._path} is closed{why}")
        return self._database

    def _writable(self) -> Database:
        if self._failure is not None:
            raise log.LogWriteError(f"{self._path} takes no writes until it has recovered from: {self._failure}")
        return self._readable()

    def _failed(self, error: Exception) -> log.LogError:
        """Take no more writes; returns what to raise. Damage and a full disk keep their own names."""
        self._failure = str(error)
        return classify(error, self._path, log.LogWriteError)

    def _check_room(self) -> None:
        """Raise LogDiskFull unless what a new opening has to write would fit, so that reading need not stop in vain."""
        needed = sum(each.stat().st_size for each in self._path.glob("*.log")) + _ROOM_BYTES
        probe = self._path / "ROOM"
        try:
            with probe.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, needed)
        except OSError as error:
            raise classify(error, self._path, log.LogWriteError) from error
        finally:
            probe.unlink(missing_ok=True)

    def _close_database(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def _let_go(self) -> None:
        self._close_database()
        if not self._closed:
            self._closed = True
            self._mark.close()

    def _each_event(self, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
        expected, upper = start, pack(stop)
        while expected < stop:
            for key, value in self._read(Database.event_page, pack(expected), upper)[0] or ((b"", b""),):
                if key != pack(expected):
                    raise self._missing(expected)
                yield expected, value
                expected += 1

    def _each_in_runs(self, prefix: bytes, start: int, stop: int) -> Iterator[int]:
        lower, upper = prefix + pack(start), prefix + pack(stop)
        before = self._read(Database.last_view_key, prefix, lower)
        for key, value in self._each_view(lower if before is None else before, upper):
            first, last = key[-8:], value
            yield from range(max(start, int.from_bytes(first, "big")), min(stop, int.from_bytes(last, "big") + 1))

    def _each_shard(self, run: bytes) -> Iterator[str]:
        below = SHARD[:-1] + bytes((SHARD[-1] + 1,))
        while keys := self._read(Database.first_view_keys, run + _PAST_RUNS, below, _PAST_RUNS):
            for key in keys:
                yield key[len(SHARD) : -9].replace(b"\0\xff", b"\0").decode("utf-8", "surrogatepass")
            run = keys[-1][:-8]

    def _each_frozen(self, frozen: Frozen, ranges: Sequence[tuple[bytes, bytes | None]]) -> Iterator[_Pair]:
        with closing(frozen):
            for lower, upper in ranges:
                assert upper is not None, "the leading byte of a state key has a successor"
                yield from self._each_pair(lower, upper, frozen.page)

    def _each_pair(self, lower: bytes, upper: bytes, page: _Paging = Database.view_page) -> Iterator[_Pair]:
        for key, value in self._each_view(lower, upper, page):
            yield key[1:], value

    def _each_view(self, lower: bytes, upper: bytes, page: _Paging = Database.view_page) -> Iterator[_Pair]:
        last = False
        while not last:
            pairs, last = self._read(page, lower, upper)
            yield from pairs
            if pairs:
                lower = pairs[-1][0] + b"\0"

    def _missing(self, offset: int) -> log.LogCorrupted:
        return log.LogCorrupted(
            f"{self._path} is damaged: event {offset} is missing, though the log ends at {self._next_offset}; "
            "restore the folder from a copy"
        )
