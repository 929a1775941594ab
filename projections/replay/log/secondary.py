"""A look at a log folder, whether a service writes to it or not.

What it is for: reading beside the running service. A second writer would fail on the lock, and a read-only opening
fails now and then while the service moves files; a RocksDB *secondary* reads table files and write-ahead logs without
changing any, though on a folder in use it misses what is moved while it opens.

Method. RocksDB is given the files as they are at one instant (see `frozen`), in a folder of its own, which is removed
as soon as it has opened them all. What a look shows is of the moment at which it was taken, and holds everything that
was durable then: events, indexes and state belong together.

What RocksDB does not report. A write-ahead log that is cut or damaged simply seems to end there. So the end is held
against `DURABLE`, the offset up to which the service has synced: a log that ends before it is damaged. Whether every
event up to the end is there shows when they are read, which fails at the first that is missing.

What it does not do: wait for anything. For later events, look again.
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


class Look(RocksDbLog):
    """The log in a folder as it is now: every reading method of `EventLog`, and none that writes.

    `durable_offset` leaves out what a running service has written and not synced yet.
    """

    def __init__(self, path: Path) -> None:
        """Take a look. Raises LogError as `events.logs.log` has them: a missing folder is a LogNotAFolder."""
        if not (path / "CURRENT").is_file():
            raise LogNotAFolder(_why_no_log(path))
        check_regular(path)
        synced, written = _durable_mark(path), is_written(path)
        self._path = path
        self._flushing = threading.Lock()
        self._failure = "being opened for writing, which a look is not"
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
        """Read all that is found by key, the state and the indexes, so that a byte that turned there does not pass
        unseen: RocksDB checks what it reads. It takes about a second for ten million events. Raises LogCorrupted."""
        for _ in self._each_view(b"", b"\xff"):
            pass

    def newest_before(self, shard_keys: Sequence[str], end: int) -> Iterator[int]:
        """The offset of the newest event of each of some shards before `end`; -1 where there is none."""
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
def look(path: Path) -> Iterator[Look]:
    """A look at a log folder, closed afterwards. Raises LogError."""
    log = Look(path)
    try:
        yield log
    finally:
        log.close()


def is_written(path: Path) -> bool:
    """Whether a process holds the folder open for writing, as far as Linux shows."""
    try:
        inode = (path / "LOCK").stat().st_ino
        locks = Path("/proc/locks").read_text()
    except OSError:
        return False
    return any(len(words := line.split()) > 5 and words[5].endswith(f":{inode}") for line in locks.splitlines())


class _Secondary(Database):
    """A database opened beside its writer, from files that are frozen in `place`."""

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
    """A secondary keeps every file open: the names by which it has found them are gone soon."""
    options, tables = Options(raw_mode=True), BlockBasedOptions()
    tables.set_block_cache(Cache(CACHE_BYTES))
    options.create_if_missing(False)
    options.set_paranoid_checks(True)
    options.set_max_open_files(-1)
    options.set_stats_dump_period_sec(0)
    options.set_block_based_table_factory(tables)
    return options


def _open(path: Path) -> _Secondary:
    """Open what is there now. Raises LogError, which names the folder itself."""
    try:
        with frozen(path) as place:
            return _Secondary(path, place)
    except LogError:
        raise
    except Exception as error:
        raise classify(error, path) from None


def _end(database: Database) -> int:
    """The next offset, on which events and state agree. Raises LogCorrupted."""
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
    """The offset in the file DURABLE (see `events.logs.rocksdb_recovery`), 0 where there is none that counts."""
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
