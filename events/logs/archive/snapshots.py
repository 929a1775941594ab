"""Snapshots beside an archive: copies of those of who archives, for others whose folders begin empty.

    snapshots/OFFSET-HASH.snapshot      the file as it is in the folder (`events.logs.snapshot_file`)

A copy counts as one in the folder does: who opens it compares it with the log (`events.logs.snapshots`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from hashlib import sha256

from events.logs.archive.store import ArchiveStore
from events.logs.log import EventLog
from events.logs.snapshots import add_snapshot, snapshot_content, snapshot_offsets

_FOLDER = "snapshots"
_NAME = re.compile(r"(\d{20})-([0-9a-f]{16})\.snapshot")


def put_snapshots(place: ArchiveStore, log: EventLog, too_many: Callable[[Sequence[int]], Sequence[int]]) -> None:
    """Copy the snapshots of a log that are not beside its archive yet, and remove those that are too many there. Raises
    ArchiveAway, OSError."""
    there = _there(place)
    for offset in snapshot_offsets(log):
        if offset not in there:
            content = snapshot_content(log, offset)
            there[offset] = f"{_FOLDER}/{offset:020}-{_hash(content)}.snapshot"
            place.write(there[offset], content)
    for offset in too_many(sorted(there)):
        place.remove(there[offset])


def fetch_snapshots(place: ArchiveStore, log: EventLog, rest: Callable[[], None]) -> int:
    """Copy the snapshots that a log has not, the newest first; how many. Those that are not as they were put are passed
    over. `rest` is called between two. Raises ArchiveAway, OSError."""
    here, added = set(snapshot_offsets(log)), 0
    for offset, name in sorted(_there(place).items(), reverse=True):
        if offset in here or offset > log.durable_offset:
            continue
        rest()
        content = place.read(name)
        if content is not None and name.endswith(f"-{_hash(content)}.snapshot"):
            add_snapshot(log, offset, content)
            added += 1
    return added


def _there(place: ArchiveStore) -> dict[int, str]:
    found = filter(None, map(_NAME.fullmatch, place.names(_FOLDER)))
    return {int(one[1]): f"{_FOLDER}/{one[0]}" for one in found}


def _hash(content: bytes) -> str:
    return sha256(content).hexdigest()[:16]
