"""Opens the RocksDB database of a log folder, and checks that every event known as durable is in it.

A crash may truncate or garble unsynced writes; the next start must accept this. A start must fail for a damaged byte in
synced data, because clients got answers that depend on it. RocksDB alone cannot tell the two apart (tried by flipping,
cutting and zeroing bytes of its write-ahead log):

- point_in_time treats the first bad byte as the end and silently drops all that follows, synced or not;
- tolerate_corrupted_tail_records silently drops what a truncated file lost, yet rejects a tail whose pages never
  reached the disk, which is what a power cut leaves;
- absolute_consistency rejects any flaw, including the torn last record of a killed process;
- a write-ahead log that is missing or empty does not count as damage for any of them.

Method. A small file next to RocksDB's, `DURABLE`, holds the offset up to which the log was synced. It is written after
each sync and not synced itself, so after a power cut its offset may be too low, but never too high. Opening requires
absolute consistency. If that fails, a read-only opening with point_in_time finds the end of the readable part. At or
past DURABLE, only unacknowledged writes are lost, and the log is truncated there (`cut`); before DURABLE, the log is
damaged and is left unchanged. Then everything is checked without reading it: the table files of events cover all
offsets from the first one to the last without gap or overlap, the views have the same next offset, and DURABLE is not
beyond it. RocksDB itself checks the checksum of all that it reads, and the size of every file.

Non-goal: reading every event. Damage inside a table file shows when that block is read.

`classify` is the one place that tells RocksDB's errors apart: rocksdict raises nearly all of them as plain `Exception`,
so only their text differs. Every LogError quotes RocksDB's message, which names the file and the position.
"""

import os
import re
import zlib
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from rocksdict import DbClosedError, DBRecoveryMode, WriteBatch

from events.catalog import EVENT_VERSION
from events.logs import log
from events.logs.log import LogClosed, LogCorrupted, LogDiskFull, LogError, LogLocked, check_regular
from events.logs.rocksdb_database import NEXT_KEY, START_KEY, Database, EventFile

_CORRUPTED = ("Corruption", "ended early")
_CLOSING = ("Already mutably borrowed",)
_READING = ("While opening a file for sequentially reading", "While open a file for random read")
_LOCKED = ("lock hold by current process", "While lock file")
_FULL = ("No space left on device", "Disk quota exceeded", "File too large")
_FILE = re.compile(r"\S*/(\d+\.(?:sst|log)|MANIFEST-\d+)")
_DENIED = ("Permission denied", "Read-only file system", "Operation not permitted")


def classify(error: Exception, path: Path, otherwise: type[LogError] = LogError) -> LogError:
    """The LogError for an error of RocksDB or of the file system; `otherwise` if unknown.

    A file that RocksDB names is reported as one of `path`, even if it was opened by another name. Removes the
    traceback: its frames hold iterators, which would keep the database locked.
    """
    if isinstance(error, LogError):
        return error
    error.__traceback__ = None
    text = _FILE.sub(lambda found: str(path / found[1]), str(error))
    if isinstance(error, DbClosedError) or _says(text, _CLOSING):
        return LogClosed(f"the log in {path} is closed")
    if _says(text, _DENIED):
        return LogError(f"{path}: this user may not read or write there ({text}); change its owner or mode")
    if _says(text, _LOCKED):
        return LogLocked(str(path), lock_holder(path / "LOCK"))
    if _says(text, _FULL):
        return LogDiskFull(f"{path}: no room left ({text}); make room, nothing that was answered is lost")
    if _says(text, _CORRUPTED) or (_says(text, _READING) and "No such file" in text):
        return LogCorrupted(f"{path} is damaged ({text}); restore the folder from a copy")
    return otherwise(f"{path}: {text}")


def _says(text: str, any_of: tuple[str, ...]) -> bool:
    return any(each in text for each in any_of)


def lock_holder(lock: Path) -> int | None:
    """The process that holds a POSIX lock on a file, from Linux's /proc/locks; None if it is not locked, 0 or less for
    a process outside of this container.

    It does not open the file: closing it would release a lock of this process.
    """
    try:
        inode = lock.stat().st_ino
        table = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:
        return None
    locks = (row for row in table if len(row) >= 6 and row[1] == "POSIX" and row[5].endswith(f":{inode}"))
    return next((int(row[4]) for row in locks), None)


FORMAT = 1
"""The version of the layout that `rocksdb_database` describes."""

_FORMAT_KEY = b"mformat"
_CLUSTER_KEY = b"mcluster"
_EVENTS_KEY = b"mevents"


def start_of(database: Database) -> int:
    """The first offset whose event is in a database."""
    return int.from_bytes(database.get_view(START_KEY) or b"", "big")


class DurableMark:
    """The file `DURABLE`: the synced offset in the low 48 bits of eight bytes, and a checksum above.

    It is written in one piece and checked, so a half-written or damaged mark counts as missing.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "DURABLE"
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)

    def read(self) -> int:
        """The highest offset known to be synced; 0 if none."""
        return marked_offset(os.pread(self._file, 8, 0))

    def write(self, offset: int) -> None:
        """Record that all below `offset` is synced. A failed write leaves a lower mark, which is safe."""
        with suppress(OSError):
            os.pwrite(self._file, _sealed(offset), 0)

    def close(self) -> None:
        with suppress(OSError):
            os.fsync(self._file)
        os.close(self._file)


def marked_offset(mark: bytes) -> int:
    """The offset in the bytes of a mark; 0 if they are invalid."""
    offset = int.from_bytes(mark, "big") & 0xFFFF_FFFF_FFFF
    return offset if mark == _sealed(offset) else 0


def _sealed(offset: int) -> bytes:
    low = offset.to_bytes(6, "big")
    return (zlib.crc32(low) & 0xFFFF).to_bytes(2, "big") + low


def make_folder(path: Path) -> None:
    """Create the log's folder if missing, for its owner alone. Raises LogError."""
    try:
        path.mkdir(0o700, parents=True, exist_ok=True)
        check_regular(path)
        found = {each.name for each in path.iterdir()}
    except (FileExistsError, NotADirectoryError):
        raise LogError(f"{path} is not a folder, or a part of its path is not") from None
    except OSError as error:
        raise classify(error, path) from error
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise LogError(f"{path}: this user may not read or write there; change its owner or mode")
    if "CURRENT" not in found and any(each.startswith(("MANIFEST-", "OPTIONS-")) for each in found):
        raise log.LogCorrupted(f"{path} is damaged (the file CURRENT is missing); restore the folder from a copy")


def open_checked(path: Path, cache_bytes: int, durable: int) -> tuple[Database, int, int | None]:
    """Open the database in a folder and verify it up to `durable`. Returns it with its next offset, and the offset of a
    truncated tail, if any. Raises LogError."""
    try:
        database, cut = _open_whole(path, cache_bytes, durable)
    except Exception as error:
        raise classify(error, path) from error
    try:
        end = database.tail()
        if end < durable:
            raise lost(path, end, durable, f"it ends at offset {end}")
        check_state(database, end)
        _check_events(database, start_of(database), end)
    except Exception as error:
        database.close()
        raise classify(error, path) from error
    return database, end, cut


def _open_whole(path: Path, cache_bytes: int, durable: int) -> tuple[Database, int | None]:
    try:
        return Database.open(path, cache_bytes, DBRecoveryMode.absolute_consistency()), None
    except Exception as error:
        refused = classify(error, path)
        if not isinstance(refused, log.LogCorrupted):
            raise
    try:
        reader = Database.open(path, cache_bytes, DBRecoveryMode.point_in_time(), read_only=True)
    except Exception:
        raise refused from None
    with closing(reader):
        readable = reader.tail()
    if readable < durable:
        raise lost(path, readable, durable, f"its write-ahead log can be read only up to offset {readable} ({refused})")
    return Database.open(path, cache_bytes, DBRecoveryMode.point_in_time()), readable


def lost(path: Path, end: int, durable: int, what: str) -> log.LogCorrupted:
    """The error for a log that ends before what was synced; `what` says where."""
    logs = ", ".join(sorted(each.name for each in path.glob("*.log"))) or "missing"
    return log.LogCorrupted(
        f"{path} is damaged: {what}, but everything up to {durable} was synced. Its write-ahead log: {logs}. Restore "
        f"the folder from a copy, or, to accept the loss of offsets {end} to {durable - 1}, delete {path / 'DURABLE'}"
    )


def check_state(database: Database, end: int) -> None:
    """Raise LogCorrupted unless the state ends where the events do."""
    stored = int.from_bytes(database.get_view(NEXT_KEY) or b"", "big")
    if stored != end:
        raise log.LogCorrupted(
            f"{database.path} is damaged: its events end at offset {end}, its state at {stored}; restore it from a copy"
        )


def _check_events(database: Database, start: int, end: int) -> None:
    """Raise LogCorrupted unless every event from `start` on is there.

    A table file that begins before `start`, with dropped events or their tombstones, proves nothing, so the events that
    only it can hold are looked up.
    """
    files = database.event_files()
    whole = [one for one in files if one.first >= start]
    reached, some_are_not = start, any(one.first < start <= one.last for one in files)
    for file in whole:
        reached = database.events_reach(reached, file.first) if some_are_not else reached
        why = _why_wrong(file, reached)
        if why:
            raise log.LogCorrupted(f"{database.path} is damaged: {why}; restore the folder from a copy")
        reached = file.last + 1
    reached = database.events_reach(reached, end) if some_are_not else reached
    if reached != end and (whole or some_are_not):
        raise log.LogCorrupted(
            f"{database.path} is damaged: no table file holds events {reached} to {end - 1}; restore it"
        )


def _why_wrong(file: EventFile, reached: int) -> str:
    """The defect of a table file whose predecessors have the events up to `reached`; "" if it has none."""
    width = file.last + 1 - file.first
    if file.deletions:
        return f"table file {file.name} deletes events among {file.first} to {file.last}, which this log never does"
    if file.first < reached:
        return (
            f"table file {file.name} holds events {file.first} to {file.last} again, of which other files have those "
            f"below {reached}: this log writes each event once, so another program wrote it"
        )
    if file.entries > width:
        return (
            f"table file {file.name} has {file.entries} entries for the {width} events {file.first} to {file.last}: "
            "another program wrote into it"
        )
    if file.first > reached:
        return f"events {reached} to {file.first - 1} are missing: no table file holds them"
    if 0 < file.entries < width:
        return f"{width - file.entries} of the events {file.first} to {file.last} are missing in table file {file.name}"
    return ""


def identify(database: Database, next_offset: int, cluster_id: str | None, new_cluster_id: Callable[[], str]) -> str:
    """The cluster id of a log. Checks the folder's identity, or gives a new folder its own.

    Raises LogOfAnotherCluster, LogFromNewerVersion, LogCorrupted.
    """
    path, name = database.path, cluster_of(database)
    if name is None:
        if next_offset:
            raise log.LogCorrupted(f"{path} is damaged: it holds events but no cluster id; restore it from a copy")
        given = cluster_id if cluster_id is not None else new_cluster_id()
        _write_identity(database, given)
        return given
    if cluster_id is not None and cluster_id != name:
        raise log.LogOfAnotherCluster(str(path), cluster_id, name)
    if int(database.get_view(_EVENTS_KEY) or b"0") < EVENT_VERSION:
        _write_identity(database, name)
    return name


def cluster_of(database: Database) -> str | None:
    """The cluster id of a log; None for a new folder. Raises LogFromNewerVersion."""
    layout, version = (int(database.get_view(key) or b"0") for key in (_FORMAT_KEY, _EVENTS_KEY))
    if layout > FORMAT or version > EVENT_VERSION:
        raise log.LogFromNewerVersion(
            f"{database.path} was written by a newer release (log format {layout}, event version {version}; this one "
            f"reads up to format {FORMAT}, event version {EVENT_VERSION}): run that release, or a later one"
        )
    name: bytes | None = database.get_view(_CLUSTER_KEY)
    return None if name is None else name.decode()


def _write_identity(database: Database, cluster_id: str) -> None:
    batch = WriteBatch(raw_mode=True)
    for key, value in ((_FORMAT_KEY, str(FORMAT)), (_CLUSTER_KEY, cluster_id), (_EVENTS_KEY, str(EVENT_VERSION))):
        batch.put(key, value.encode(), database.views_handle)
    database.write(batch)
    database.sync(True)
