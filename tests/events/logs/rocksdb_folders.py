"""Log folders after crashes and disk damage."""

import os
import shutil
from pathlib import Path

from events.logs.log import Commit, Entry
from events.logs.rocksdb_log import RocksDbLog


def open_log(path: Path, cluster_id: str | None = None) -> RocksDbLog:
    """Open the log in `path`. A new one has the cluster id `made-here`."""
    return RocksDbLog(path, cluster_id=cluster_id, new_cluster_id=lambda: "made-here", cache_bytes=1 << 20)


def counted(number: int, events: int = 5) -> Commit:
    """Returns a commit whose events and state key `count` contain its number."""
    entries = [
        Entry(b"%d:%d" % (number, each) * 10, f"topic-{number % 7}", f"request-{number}") for each in range(events)
    ]
    return Commit(entries, {b"count": b"%d" % number, b"commit:%d" % number: b"there"})


def write_counted(log: RocksDbLog, numbers: range) -> None:
    for number in numbers:
        log.write(counted(number))
    log.flush()


def copied(log_path: Path, to: Path) -> Path:
    """Copy the files as a kill -9 would leave them now, without the lock."""
    shutil.copytree(log_path, to, ignore=shutil.ignore_patterns("LOCK"))
    return to


def largest(folder: Path, suffix: str) -> Path:
    """Returns the largest file with a suffix: `.log` is a write-ahead log, `.sst` a table file."""
    return max(folder.glob(f"*{suffix}"), key=lambda each: each.stat().st_size)


def flip(file: Path, at: int, bits: int = 0xFF) -> None:
    with file.open("r+b") as opened:
        opened.seek(at)
        byte = opened.read(1)[0]
        opened.seek(at)
        opened.write(bytes((byte ^ bits,)))


def blank(file: Path, at: int, size: int) -> None:
    """Zero some bytes, like pages that were never written to disk."""
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(bytes(size))


def cut(file: Path, size: int) -> None:
    os.truncate(file, file.stat().st_size - size)
