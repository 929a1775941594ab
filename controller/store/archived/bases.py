"""Verifies a base (`events.logs.archive.base`), a copy of a log's database with which a new data folder can begin.

Anyone who can write to the archive can change a base. A tree head stored elsewhere reveals changed events, but
only if the base's Merkle tree is the tree of its events. So `check_tree` compares this tree with the events and with
the archive's manifest before a folder begins with the base. That takes a second or two for ten million events. No tree
head covers the state: `wrong_state` rebuilds it from all events, for `topicwright verify`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from controller.store.snapshotting import SNAPSHOT_KINDS, StateRebuild
from controller.store.tree import BLOCK, HEAD, STORED_LEVEL, LogTree, range_root, root_over, stored_head
from events.logs.archive.manifest import ArchiveDamaged, Base, Segment, read_manifest, segments_of
from events.logs.archive.store import ArchiveStore
from events.logs.log import EventLog, LogCorrupted
from events.logs.merkle import node_hash


def check_tree(log: EventLog, base: Base, place: ArchiveStore) -> None:
    """Raise ArchiveDamaged unless the Merkle tree of a base's log matches its events and the archive's manifest.
    Raises ArchiveError."""
    segments = read_manifest(place).segments
    try:
        if log.next_offset != base.offset or log.start_offset != base.start:
            raise LogCorrupted(f"it holds the events from {log.start_offset} to {log.next_offset - 1}")
        _check_own(log)
        _check_segments(log, segments)
    except (LogCorrupted, msgspec.DecodeError) as error:
        raise ArchiveDamaged(f"{place.url}: {base} does not match its log: {error}") from None


def _check_own(log: EventLog) -> None:
    """Check every subtree against the two below it or the local events, and the head against the highest."""
    size, _ = stored_head(log)
    below = _level(log, STORED_LEVEL, size)
    for index in range(-(-log.start_offset // BLOCK), size // BLOCK):
        events = log.read(index * BLOCK, (index + 1) * BLOCK)
        if root_over(value for _, value in events) != below[index]:
            raise LogCorrupted(f"events {index * BLOCK} to {(index + 1) * BLOCK - 1} are not those of its tree")
    for level in range(STORED_LEVEL + 1, size.bit_length()):
        here = _level(log, level, size)
        if here != [node_hash(*pair) for pair in zip(below[::2], below[1::2], strict=False)]:
            raise LogCorrupted(f"its tree is inconsistent at level {level}")
        below = here
    LogTree(log)


def _level(log: EventLog, level: int, size: int) -> list[bytes]:
    found = [value for _, value in log.scan(HEAD + bytes((level,)))]
    if len(found) != size >> level:
        raise LogCorrupted(f"its tree has {len(found)} hashes at level {level}, of {size} events")
    return found


def _check_segments(log: EventLog, archived: Iterable[Segment]) -> None:
    known = {one.start: one for one in segments_of(log)}
    for one in archived:
        if known.get(one.start, one) != one:
            raise LogCorrupted(f"its record of the segment at {one.start} differs from the archive's manifest")
        if one.end <= log.next_offset and range_root(log, one.start, one.end).hex() != one.tree:
            raise LogCorrupted(f"events {one.start} to {one.end - 1} differ from the archived ones")


def wrong_state(log: EventLog, refold: StateRebuild) -> Iterator[str]:
    """A finding for each state key that does not match the events. Moves `refold` to the log's end. Raises LogError."""
    refold.go_to(log.next_offset)
    found = (pair for prefix in SNAPSHOT_KINDS for pair in log.scan(prefix))
    expected, here = dict(refold.pairs()), dict(found)
    for key in sorted(expected.keys() | here.keys()):
        if expected.get(key) != here.get(key):
            what = (
                "is missing" if key not in here else "is not expected" if key not in expected else "has another value"
            )
            yield f"its state does not match its events: {key!r} {what}"
