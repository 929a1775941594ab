"""Reads a log folder while a service may write to it.

A second writer would fail on the lock, and a read-only RocksDB fails now and then while the service moves files. A
RocksDB *secondary* reads table files and write-ahead logs without changing any, but misses files that are moved while
it opens.

Method. RocksDB opens the files as of one instant (see `frozen`) in a temporary folder, which is removed once all are
open. The log then shows everything that was durable at that instant; events, indexes and state belong together.

Damage that RocksDB does not report: a write-ahead log that is cut or damaged seems to end there. So the end is compared
with `DURABLE`, the offset up to which the service has synced: a log that ends before it is damaged. A missing event
before the end is found when it is read.

Non-goal: following. For later events, open the folder again.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakSet

from rocksdict import AccessType, BlockBasedOptions, Cache, Options, Rdict

from events.catalog import EVENT_VERSION
from events.logs.log import SHARD, LogCorrupted, LogError, LogFromNewerVersion, LogNotAFolder, check_regular
from events.logs.rocksdb_database import VIEWS, Database, Readers
from events.logs.rocksdb_keys import NEXT_KEY, run_prefix
from events.logs.rocksdb_log import RocksDbLog
from events.logs.rocksdb_recovery import FORMAT, classify, start_of
from projections.replay.log.frozen import frozen

CACHE_BYTES = 8 << 20  # of RocksDB; a scan reads each block once


class FrozenLog(RocksDbLog):
    """The log in a folder as of one instant: the reading methods of `EventLog`, and none that writes.

    `durable_offset` leaves out events that a running service has not synced yet.
    """

    def __init__(self, path: Path) -> None:
        """Open the folder. Raises LogError, as `events.logs.log`; a missing folder is a LogNotAFolder."""
        if not (path / "CURRENT").is_file():
            raise LogNotAFolder(_why_no_log(path))
        check_regular(path)
        synced, written = _durable_mark(path), is_written(path)
        self._path = path
        self._flushing = threading.Lock()
        self._failure = "being opened for writing: this copy can only be read"
        self._closed = False
        self._cut = None
        self._database = _open(path)
        try:
            self._next_offset, self._start_offset = _end(self._database), start_of(self._database)
            self._cluster_id = _identity(self._database)
            if self._next_offset < synced:
                raise _lost(path, self._next_offset, synced)
        except Exception as error:
            self.close()
            raise classify(error, path) from error
        self._durable_offset = synced if written and synced else self._next_offset

    def read_through(self) -> None:
        """Read the whole state and all indexes, so that RocksDB checks their checksums. Raises LogCorrupted.

        It takes about a second for ten million events.
        """
        for _ in self._each_view(b"", b"\xff"):
            pass

    def newest_before(self, shard_keys: Sequence[str], end: int) -> Iterator[int]:
        """The offset of the newest event before `end` in each of some shards; -1 if there is none."""
        runs = [run_prefix(SHARD, one) for one in shard_keys]
        found = [self._newest_here(run, end) for run in runs]
        missing = {run for run, offset in zip(runs, found, strict=True) if offset < self._start_offset}
        older = self.archive.newest(missing, end) if missing and self._start_offset else {}
        return (older.get(run, -1) if run in missing else offset for run, offset in zip(runs, found, strict=True))

    def _newest_here(self, run: bytes, end: int) -> int:
        first = self._read(Database.last_run, run, self._start_offset, end - 1)
        last = None if first is None else self._read(lambda database: database.get_view(run + first.to_bytes(8, "big")))
        return -1 if last is None else min(end - 1, int.from_bytes(last, "big"))

    def close(self) -> None:
        self._closed = True
        self._close_database()


@contextmanager
def frozen_log(path: Path) -> Iterator[FrozenLog]:
    """A log folder as of now, closed afterwards. Raises LogError."""
    log = FrozenLog(path)
    try:
        yield log
    finally:
        log.close()


def is_written(path: Path) -> bool:
    """True if a process holds the folder open for writing, according to /proc/locks."""
    try:
        inode = (path / "LOCK").stat().st_ino
        locks = Path("/proc/locks").read_text()
    except OSError:
        return False
    return any(len(words := line.split()) > 5 and words[5].endswith(f":{inode}") for line in locks.splitlines())


class _Secondary(Database):
    """A database opened beside its writer, from the frozen files in `place`."""

    def __init__(self, path: Path, place: Path) -> None:
        access = AccessType.secondary(str(place))
        self._events = Rdict(str(place), _options(), column_families={VIEWS: _options()}, access_type=access)
        self.path = path
        self._readers = Readers()
        self._frozen = WeakSet()
        self._views = self._events.get_column_family(VIEWS)
        self.get_event = self._events.get
        self.get_view = self._views.get
        self.views_handle = self._events.get_column_family_handle(VIEWS)


def _options() -> Options:
    """A secondary keeps every file open, because their names in the temporary folder are removed."""
    options, tables = Options(raw_mode=True), BlockBasedOptions()
    tables.set_block_cache(Cache(CACHE_BYTES))
    options.create_if_missing(False)
    options.set_paranoid_checks(True)
    options.set_max_open_files(-1)
    options.set_stats_dump_period_sec(0)
    options.set_block_based_table_factory(tables)
    return options


def _open(path: Path) -> _Secondary:
    """Open the current files. Raises LogError, which names the folder of the log."""
    try:
        with frozen(path) as place:
            return _Secondary(path, place)
    except LogError:
        raise
    except Exception as error:
        raise classify(error, path) from None


def _end(database: Database) -> int:
    """The next offset, which must be the same for events and state. Raises LogCorrupted."""
    end = database.tail()
    stored = int.from_bytes(database.get_view(NEXT_KEY) or b"", "big")
    if stored != end:
        raise LogCorrupted(
            f"{database.path} is damaged: its events end at offset {end}, its state at {stored}; restore it from a copy"
        )
    return end


def _identity(database: Database) -> str:
    found: bytes | None = database.get_view(b"mcluster")
    layout, version = (int(database.get_view(key) or b"0") for key in (b"mformat", b"mevents"))
    if layout > FORMAT or version > EVENT_VERSION:
        raise LogFromNewerVersion(
            f"{database.path} was written by a newer release (log format {layout}, event version {version}; this one "
            f"reads up to format {FORMAT}, event version {EVENT_VERSION}): replay it with that release, or a later one"
        )
    return found.decode() if found is not None else ""


def _durable_mark(path: Path) -> int:
    """The offset in the file DURABLE (see `events.logs.rocksdb_recovery`); 0 if it is missing or invalid."""
    try:
        raw = (path / "DURABLE").read_bytes()[:8]
    except OSError:
        return 0
    low = raw[2:]
    sealed = (zlib.crc32(low) & 0xFFFF).to_bytes(2, "big") + low
    return int.from_bytes(low, "big") if len(raw) == 8 and raw == sealed else 0


def _lost(path: Path, end: int, synced: int) -> LogError:
    return LogCorrupted(
        f"{path} is damaged: it can be read only up to offset {end}, but everything up to {synced} was synced; "
        "restore the folder from a copy"
    )


def _why_no_log(path: Path) -> str:
    if not os.path.lexists(path):
        return f"{path} does not exist: name the folder that `topicwright serve --data` was given"
    if not path.is_dir():
        return f"{path} is not a folder: name the folder that `topicwright serve --data` was given"
    return f"{path} holds no log: name the folder that `topicwright serve --data` was given"
