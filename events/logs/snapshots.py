"""The snapshots of a log, in the folder `snapshots` in its own: one file for each, named by its offset.

    snapshots/00000000000000250000.snapshot     the state after event 249,999 (see `events.logs.snapshot_file`)
    snapshots/….snapshot.tmp                    one that is being written, or that a dead process left

A snapshot is a copy of what the events say: any of them may be deleted at any time. One that is damaged, of another
log, or of events that the log does not have (it was restored from an older copy, or a torn tail was cut off) counts
as none.

What it does not do: say when one is taken, and what is in it; that is `projections.store.snapshotting`.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from events.catalog import EVENT_VERSION
from events.logs.log import EventLog
from events.logs.snapshot_file import About, Snapshot, SnapshotDamaged, write_snapshot

FOLDER = "snapshots"
_NAME = re.compile(r"(\d{20})\.snapshot")
_TEMPORARY = ".tmp"


def snapshot_offsets(log: EventLog) -> list[int]:
    """The offsets of the snapshots that there are, usable or not, in order. Raises OSError."""
    if log.path is None:
        return []
    try:
        names = os.listdir(log.path / FOLDER)
    except FileNotFoundError:
        return []
    return sorted(int(found[1]) for found in map(_NAME.fullmatch, names) if found)


def open_snapshot(log: EventLog, offset: int) -> Snapshot:
    """The snapshot at an offset, to be closed by the caller. Raises SnapshotDamaged where it is not one of this log's
    history up to its newest durable event, or of another event version, OSError where it cannot be read."""
    snapshot = Snapshot(_path(log, offset))
    try:
        about = snapshot.about
        if about.event_version != EVENT_VERSION:
            raise SnapshotDamaged(f"{snapshot.path}: it is of event version {about.event_version}, not {EVENT_VERSION}")
        if not 0 < offset <= log.durable_offset or about != about_at(log, offset):
            raise SnapshotDamaged(f"{snapshot.path}: it is not of this log's history")
    except BaseException:
        snapshot.close()
        raise
    return snapshot


def nearest_snapshot(log: EventLog, end: int) -> Snapshot | None:
    """The newest usable snapshot of no more than the events before `end`, to be closed by the caller; None if there is
    none. Raises LogError."""
    for offset in reversed(snapshot_offsets(log)):
        if offset <= end:
            with suppress(SnapshotDamaged, OSError):
                return open_snapshot(log, offset)
    return None


def newest_snapshot(log: EventLog) -> int | None:
    """The offset of the newest usable snapshot, None if there is none. Raises LogError."""
    snapshot = nearest_snapshot(log, log.durable_offset)
    if snapshot is None:
        return None
    with snapshot:
        return snapshot.offset


def about_at(log: EventLog, offset: int) -> About:
    """What a snapshot of a log says of itself; `offset` is above 0. Raises LogError."""
    return About(log.cluster_id, offset, EVENT_VERSION, zlib.crc32(log.read_one(offset - 1)))


def put_snapshot(log: EventLog, about: About, pairs: Iterable[tuple[bytes, bytes]]) -> int:
    """Keep a snapshot of these pairs, in the order of their keys; its size in bytes. One at a time.

    It is there whole, or not at all, whenever the process dies. Raises OSError, and what `pairs` raises.
    """
    place = _path(log, about.offset)
    place.parent.mkdir(0o700, exist_ok=True)
    temporary = place.with_name(place.name + _TEMPORARY)
    temporary.unlink(missing_ok=True)
    try:
        size = write_snapshot(temporary, about, pairs)
        temporary.rename(place)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync(place.parent)
    return size


def snapshot_content(log: EventLog, offset: int) -> bytes:
    """The file of a snapshot. Raises OSError."""
    return _path(log, offset).read_bytes()


def add_snapshot(log: EventLog, offset: int, content: bytes) -> None:
    """Keep the file of a snapshot of this log that somebody else has taken. Raises OSError."""
    place = _path(log, offset)
    place.parent.mkdir(0o700, exist_ok=True)
    temporary = place.with_name(place.name + _TEMPORARY)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(place)
    _sync(place.parent)


def remove_snapshot(log: EventLog, offset: int) -> None:
    """Delete a snapshot; who has it open reads on. Raises OSError."""
    _path(log, offset).unlink(missing_ok=True)


def remove_unfinished(log: EventLog) -> None:
    """Delete what a dead process left. Raises OSError."""
    for one in _unfinished(log):
        one.unlink(missing_ok=True)


def _unfinished(log: EventLog) -> Iterator[Path]:
    return iter(()) if log.path is None else (log.path / FOLDER).glob(f"*{_TEMPORARY}")


def _path(log: EventLog, offset: int) -> Path:
    assert log.path is not None, "a log in memory has no snapshots"
    return log.path / FOLDER / f"{offset:020}.snapshot"


def _sync(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
