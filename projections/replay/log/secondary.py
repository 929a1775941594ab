"""Reads a log folder while a service may write to it, for replays, backups and other commands.

A second writer would fail on the lock, and a read-only RocksDB fails now and then while the service moves files. A
RocksDB *secondary* reads table files and write-ahead logs without changing any, but it opens a folder step by step:
first the manifest, which names the table files and the oldest write-ahead log that is still needed, then those logs. If
the service moves events from a write-ahead log to a new table file between two steps, and deletes the log, the opening
fails or misses these events.

Method. `frozen` opens every file, so that it stays readable after it is deleted. Then it checks that CURRENT, the
manifest and the set of write-ahead logs have not changed since. RocksDB deletes no file that a manifest needs before it
has appended to that manifest, so unchanged files belong together. If they have changed, it tries again, which takes a
millisecond. RocksDB then opens a temporary folder with copies of the small files and links to the others. The folder
is removed once all files are open. Nothing is written to the log's folder, which may be read-only or belong to
another user. The log then shows everything that was durable at that instant; events, indexes and state belong together.

Damage that RocksDB does not report: a truncated or damaged write-ahead log seems to end at the damage. So the end is
compared with `DURABLE`, the offset up to which the service has synced: a log that ends before that offset is damaged. A
missing event before the end is found when it is read.

Non-goals: following (for later events, open the folder again), and freezing the end of the newest write-ahead log.
RocksDB reads it up to the last complete record, which is always a prefix of what was written.
"""

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from rocksdict import AccessType, BlockBasedOptions, Cache, Options, Rdict

from events.logs.log import LogCorrupted, LogError, check_regular
from events.logs.rocksdb_database import VIEWS, Database
from events.logs.rocksdb_log import RocksDbLog
from events.logs.rocksdb_recovery import check_state, classify, cluster_of, lock_holder, lost, marked_offset, start_of

_TRIES = 1000  # the live process creates and merges files meanwhile
_MANIFEST = "MANIFEST-"
_COPIED = ("IDENTITY", "rocksdict-config.json")
_LINKED = (".sst", ".log")
_OPEN_FILES = Path("/proc/self/fd")
"""Where Linux lists the open files of a process, also deleted ones."""


class _Moved(Exception):
    """The writer has moved files while they were opened."""


class _Start(msgspec.Struct, frozen=True):
    """CURRENT, the size of the manifest, and the write-ahead logs: these change whenever the writer moves files."""

    current: bytes
    manifest_size: int
    logs: frozenset[str]


@contextmanager
def frozen(folder: Path) -> Iterator[Path]:
    """A temporary folder with the files of a log as of one instant; removed afterwards.

    Raises LogCorrupted if CURRENT names no manifest, LogError if the files change at every try, and OSError if a file
    cannot be read or there are more files than the process may open (`ulimit -n`).
    """
    with TemporaryDirectory(prefix="topicwright-look-") as temporary:
        for _ in range(_TRIES):
            place = Path(temporary) / "log"
            place.mkdir()
            with ExitStack() as opened:
                try:
                    _freeze(folder, place, opened)
                except _Moved:
                    shutil.rmtree(place)
                    continue
                yield place
                return
    raise LogError(f"{folder} cannot be read: its files changed during each of {_TRIES} tries; try again")


def _freeze(folder: Path, place: Path, opened: ExitStack) -> None:
    """Fill `place`; files stay open as long as `opened`. Raises _Moved."""
    before = _start(folder)
    name = before.current.decode(errors="replace").strip()
    for file in sorted(os.listdir(folder)):
        if file.endswith(_LINKED):
            _link(folder / file, place / file, opened)
        elif file in _COPIED:
            (place / file).write_bytes(_read(folder / file))
    manifest = _read(folder / name)[: before.manifest_size]
    if _start(folder) != before:
        raise _Moved
    (place / name).write_bytes(manifest)
    (place / "CURRENT").write_bytes(before.current)


def _start(folder: Path) -> _Start:
    """The current state. Raises _Moved if it changes while it is read."""
    current = (folder / "CURRENT").read_bytes()
    name = current.decode(errors="replace").strip()
    if not name.startswith(_MANIFEST) or "/" in name:
        raise LogCorrupted(f"{folder} is damaged (CURRENT names no manifest); restore the folder from a copy")
    try:
        size = (folder / name).stat().st_size
    except FileNotFoundError:
        if (folder / "CURRENT").read_bytes() != current:
            raise _Moved from None
        raise LogCorrupted(f"{folder} is damaged ({name} is missing); restore the folder from a copy") from None
    return _Start(current, size, frozenset(one for one in os.listdir(folder) if one.endswith(".log")))


def _link(file: Path, link: Path, opened: ExitStack) -> None:
    """Link to an open file, which stays readable when it is deleted. A file that is missing already is ignored: no
    current manifest needs it, or the check of the manifest fails, or RocksDB reports it."""
    try:
        number = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        return
    opened.callback(os.close, number)
    by_number = _OPEN_FILES / str(number)
    link.symlink_to(by_number if by_number.exists() else file.resolve())


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        raise _Moved from None


CACHE_BYTES = 8 << 20  # of RocksDB; a scan reads each block once


class FrozenLog(RocksDbLog):
    """The log in a folder as of one instant: the reading methods of `EventLog`, and none that writes.

    `durable_offset` leaves out events that a running service has not synced yet.
    """

    def __init__(self, path: Path) -> None:
        """Open the folder. Raises LogError, as `events.logs.log`; also for a missing folder."""
        if not (path / "CURRENT").is_file():
            raise LogError(_why_no_log(path))
        check_regular(path)
        synced, written = _durable_mark(path), lock_holder(path / "LOCK") is not None
        self.path = path
        self._flushing = threading.Lock()
        self._failure = "being opened for writing: this copy can only be read"
        self._closed = False
        self.truncated_at = None
        self._database = _open(path)
        try:
            end = self.next_offset = self._database.tail()
            check_state(self._database, end)
            self.start_offset = start_of(self._database)
            self.cluster_id = cluster_of(self._database) or ""
            if end < synced:
                raise lost(path, end, synced, f"it can be read only up to offset {end}")
        except Exception as error:
            self.close()
            raise classify(error, path) from error
        self._durable_offset = synced if written and synced else self.next_offset

    def close(self) -> None:
        self._closed = True
        self._close_database()


def frozen_log(path: Path) -> closing[FrozenLog]:
    """A log folder as of now, closed at the end of a `with` block. Raises LogError."""
    return closing(FrozenLog(path))


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


def _open(path: Path) -> Database:
    """A RocksDB secondary on the current files; the writer may be running. Raises LogError, which names the folder of
    the log."""
    try:
        with frozen(path) as place:
            access = AccessType.secondary(str(place))
            families = {VIEWS: _options()}
            return Database(path, Rdict(str(place), _options(), column_families=families, access_type=access))
    except Exception as error:
        raise classify(error, path) from None


def _durable_mark(path: Path) -> int:
    """The offset in the file DURABLE (see `events.logs.rocksdb_recovery`); 0 if it is missing or invalid."""
    with suppress(OSError):
        return marked_offset((path / "DURABLE").read_bytes()[:8])
    return 0


def _why_no_log(path: Path) -> str:
    why = "holds no log" if path.is_dir() else "is not a folder" if os.path.lexists(path) else "does not exist"
    return f"{path} {why}: name the folder that `topicwright serve --data` was given"
