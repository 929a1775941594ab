"""What RocksDB's errors mean.

rocksdict raises nearly all of them as plain `Exception`, told apart by their text alone; `classify` is the one place
that reads it. Every error keeps RocksDB's own words, which name the file and the place in it.
"""

from __future__ import annotations

import re
from pathlib import Path

from rocksdict import DbClosedError

from events.logs.log import LogAccessDenied, LogClosed, LogCorrupted, LogDiskFull, LogError, LogLocked

_CORRUPTED = ("Corruption", "ended early")
_CLOSING = ("Already mutably borrowed",)
_READING = ("While opening a file for sequentially reading", "While open a file for random read")
_LOCKED = ("lock hold by current process", "While lock file")
_FULL = ("No space left on device", "Disk quota exceeded", "File too large")
_FILE = re.compile(r"\S*/(\d+\.(?:sst|log)|MANIFEST-\d+)")
_DENIED = ("Permission denied", "Read-only file system", "Operation not permitted")


def classify(error: Exception, path: Path, otherwise: type[LogError] = LogError) -> LogError:
    """The LogError that an exception of RocksDB or of the file system stands for; `otherwise` if it is none of ours.

    A file that RocksDB names is reported as one of `path`, also where it was opened by another name, as a look does.
    Takes the exception's traceback away: its frames hold iterators, and those would keep the database locked for as
    long as somebody keeps the error.
    """
    if isinstance(error, LogError):
        return error
    error.__traceback__ = None
    text = _FILE.sub(lambda found: str(path / found[1]), str(error))
    if isinstance(error, DbClosedError) or _says(text, _CLOSING):
        return LogClosed(f"the log in {path} is closed")
    if _says(text, _DENIED):
        return LogAccessDenied(f"{path}: this user may not read or write there ({text}); change its owner or mode")
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
    """The process that holds a POSIX lock on a file, as Linux reports it; None where it does not.

    The file is not opened: closing it again would drop the lock if this very process held it.
    """
    try:
        inode = lock.stat().st_ino
        table = Path("/proc/locks").read_text()
    except OSError:
        return None
    for line in table.splitlines():
        fields = line.split()
        if len(fields) >= 6 and fields[1] == "POSIX" and fields[5].endswith(f":{inode}"):
            pid = int(fields[4])
            return pid if pid > 0 else None
    return None
