"""Whether a base holds what the log came to (`events.logs.archive.base`): its tree, before a folder begins with it, and
its state, which takes reading the whole log.

A base is a copy that anybody who can write to its place can change. What anchors a log is its head: who kept one finds
every event that is another. So a base must have the tree of that head. `check_tree` holds its tree against its own
events and against the archive's manifests, in a second or two for ten million events; then the head of whoever began
with it is that of the events, or all of these were changed alike, and a head that was kept says so. The state beside
the events is in no head: `wrong_state` makes it anew of the events, for `topicwright verify`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec

from events.logs.archive.base import Base
from events.logs.archive.manifest import ArchiveDamaged, Manifest, manifests_of, read_manifest, starts_in
from events.logs.archive.place import Place
from events.logs.log import EventLog, LogCorrupted
from events.logs.merkle import node_hash
from projections.store.snapshotting import KEPT, Refold
from projections.store.tree import BLOCK, KEPT_LEVEL, LogTree, kept_head, kept_subtrees, root_over, stretch_root

READ_AT_ONCE = 8
"""Manifests are small: it is the way to the store that takes time."""


def check_tree(log: EventLog, base: Base, place: Place) -> None:
    """Raise ArchiveDamaged unless the log that a base came to has the tree of its events, and of those in the archive
    beside it. Raises ArchiveAway."""
    starts = [start for start in starts_in(place) if start < base.offset]
    with ThreadPoolExecutor(READ_AT_ONCE) as threads:
        manifests = list(threads.map(partial(read_manifest, place), starts))
    try:
        if log.next_offset != base.offset or log.start_offset != base.start:
            raise LogCorrupted(f"it holds the events from {log.start_offset} to {log.next_offset - 1}")
        _check_own(log)
        _check_stretches(log, manifests)
    except (LogCorrupted, msgspec.DecodeError) as error:
        raise ArchiveDamaged(f"{place.url}: {base.name} is not what the log came to: {error}") from None


def _check_own(log: EventLog) -> None:
    """Every subtree is made of the two below it, or of the events that are here; the head of the highest."""
    size, _ = kept_head(log)
    below = _level(log, KEPT_LEVEL, size)
    for index in range(-(-log.start_offset // BLOCK), size // BLOCK):
        events = log.read(index * BLOCK, (index + 1) * BLOCK)
        if root_over(value for _, value in events) != below[index]:
            raise LogCorrupted(f"events {index * BLOCK} to {(index + 1) * BLOCK - 1} are not those of its tree")
    for level in range(KEPT_LEVEL + 1, size.bit_length()):
        here = _level(log, level, size)
        if here != [node_hash(*pair) for pair in zip(below[::2], below[1::2], strict=False)]:
            raise LogCorrupted(f"its tree does not fit itself at level {level}")
        below = here
    LogTree(log)


def _level(log: EventLog, level: int, size: int) -> list[bytes]:
    found = list(kept_subtrees(log, level))
    if len(found) != size >> level:
        raise LogCorrupted(f"its tree has {len(found)} hashes at level {level}, of {size} events")
    return found


def _check_stretches(log: EventLog, archived: Iterable[Manifest]) -> None:
    known = {one.start: one for one in manifests_of(log)}
    for one in archived:
        if known.get(one.start, one) != one:
            raise LogCorrupted(f"its manifest of the stretch at {one.start} is not the archive's")
        root = stretch_root(log, one.start, one.end) if one.end <= log.next_offset else None
        if root is not None and root.hex() != one.tree:
            raise LogCorrupted(f"events {one.start} to {one.end - 1} are not those that were archived")


def wrong_state(log: EventLog, refold: Refold) -> Iterator[str]:
    """Which state keys of a log are not what its events lead to, in words; `refold` goes on to its end. Raises
    LogError."""
    refold.go_to(log.next_offset)
    found = (pair for prefix in KEPT for pair in log.scan(prefix))
    expected, here = dict(refold.pairs()), dict(found)
    for key in sorted(expected.keys() | here.keys()):
        if expected.get(key) != here.get(key):
            what = (
                "is missing" if key not in here else "is no key of it" if key not in expected else "has another value"
            )
            yield f"its state is not what its events lead to: {key!r} {what}"
