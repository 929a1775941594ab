"""The Merkle tree of a log (`events.logs.merkle`), kept beside its events as state keys.

Every commit extends the tree over its events, in the same atomic write:
    m             head: how many events the tree is over (8 bytes), and the root over them
    m LEVEL INDEX the hash of a complete subtree of `1 << LEVEL` events, of level 8 (256 events) and above

Smaller subtrees are not kept: 256 events are next to each other in the log, and hashing them takes less than a
millisecond. So the tree takes less than a byte an event, a commit writes little more than its head, and a proof reads a
key for each level and a stretch of events or two.

A log from before this release has no tree: `build_some` makes it in slices, beside deciding, and until it is nearly
over all events commits write nothing of it (`TreeBehind`). What is kept is trusted by nobody: `LogTree` compares the
root with the events' own at each start, an audit reads all of it, and who kept a head needs neither.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from events.logs import merkle
from events.logs.log import EventLog, LogCorrupted
from events.logs.merkle import Frontier
from projections.store.keys import Puts

HEAD = b"m"
KEPT_LEVEL = 8
BLOCK = 1 << KEPT_LEVEL
"""So many events are under the lowest subtrees that are kept."""
BEHIND_MAX = 2048
"""So many events that the tree lacks are taken up by whoever writes next, or are hashed by who reads: 5 ms."""
SLICE = 512
"""So many are taken up at once while a tree is built: the writing thread is kept for some milliseconds."""
_node_key = struct.Struct(">cBQ").pack
_BLOCKS_CACHED = 4


class TreeBehind(Exception):
    """The tree is not over so many events yet: it is being built. Says how far it is."""

    def __init__(self, size: int, end: int) -> None:
        super().__init__(f"the tree of the log is being built: it is over {size} of {end} events; try again later")
        self.size, self.end = size, end


class LogTree:
    """The tree of a log as its only writer extends it; a new one after a write that failed."""

    def __init__(self, log: EventLog) -> None:
        """Raises LogError: LogCorrupted where the newest events are not those that the tree covers."""
        self._log = log
        self._frontier: Frontier | None = None
        self._puts: dict[bytes, bytes] = {}
        self._take_up()

    @property
    def is_behind(self) -> bool:
        """Whether the log is one from before that has no tree yet, or not all of it: see `build_some`."""
        return self._frontier is None

    def changes(self, values: Sequence[bytes]) -> Puts:
        """The state keys of the commit that appends these events; none while the tree is being built."""
        frontier = self._frontier
        if frontier is None or frontier.size != self._log.next_offset:  # what was to be written before was not
            frontier = self._take_up()
        if frontier is None:
            return {}
        taken_up, self._puts = self._puts, {}
        return {**taken_up, **_extended(frontier, values)}

    def _take_up(self) -> Frontier | None:
        """Go on from the kept tree over the few events that it lacks; None where it lacks more than a few."""
        log, (size, _) = self._log, kept_head(self._log)
        end, self._frontier = log.next_offset, None
        if end - size <= BEHIND_MAX:
            self._frontier = _frontier_at(log, size)
            self._puts = _extended(self._frontier, [value for _, value in log.read(size, end)]) if size < end else {}
        return self._frontier


def build_some(log: EventLog) -> bool:
    """Take up the next older events that the tree lacks, where these are many; whether more are left. For the thread
    that writes the log. Raises LogError."""
    size, _ = kept_head(log)
    if log.next_offset - size <= BEHIND_MAX:
        return False
    frontier = _frontier_at(log, size)
    log.note(_extended(frontier, [value for _, value in log.read(size, size + SLICE)]))
    return True


def kept_head(log: EventLog) -> tuple[int, bytes]:
    """How many events the kept tree is over, and its root: for who writes the log, or where nobody does. Raises
    LogCorrupted."""
    size, root = _kept_head(log)
    if size > log.next_offset:
        raise LogCorrupted(
            f"the log is damaged: its tree is over {size} events, and there are {log.next_offset}; restore it from a "
            "copy"
        )
    return size, root


def _kept_head(log: EventLog) -> tuple[int, bytes]:
    """The same beside who writes the log: of a commit that is just written the tree may be seen before its end is."""
    value = log.get(HEAD)
    if value is None:
        return 0, merkle.EMPTY_ROOT
    if len(value) != 8 + merkle.HASH_BYTES:
        raise LogCorrupted(f"the log is damaged: the head of its tree has {len(value)} bytes; restore it from a copy")
    return int.from_bytes(value[:8], "big"), value[8:]


class TreeReader:
    """The tree of a log for readers, in any thread: roots and proofs for the log as it was at any size.

    One is for one answer: it knows how far the kept tree was as it was made.
    """

    def __init__(self, log: EventLog, end: int | None = None) -> None:
        """A reader of the first `end` events (None: of those that are durable). Raises TreeBehind, LogError."""
        self._log = log
        self.end = log.durable_offset if end is None else end
        self._kept, _ = _kept_head(log)
        if self.end - self._kept > BEHIND_MAX:
            raise TreeBehind(self._kept, self.end)
        self._levels_of = lru_cache(_BLOCKS_CACHED)(self._levels_of_block)

    def root(self, size: int | None = None) -> bytes:
        """The root over the first `size` events; None for all. Raises LogError."""
        return merkle.root_at(self._subtree, self.end if size is None else size)

    def inclusion(self, offset: int, size: int) -> list[bytes]:
        """The path from an event to the root over the first `size`. Raises LogError."""
        return merkle.inclusion_path(self._subtree, offset, size)

    def consistency(self, old: int, size: int) -> list[bytes]:
        """The proof that the first `old` events are the beginning of the first `size`. Raises LogError."""
        return merkle.consistency_path(self._subtree, old, size)

    def _subtree(self, level: int, index: int) -> bytes:
        if level < KEPT_LEVEL:
            within = KEPT_LEVEL - level
            return self._levels_of(index >> within)[level][index & ((1 << within) - 1)]
        if (index + 1) << level <= self._kept:
            return kept_subtree(self._log, level, index)
        if level == KEPT_LEVEL:
            return self._levels_of(index)[level][0]
        return merkle.node_hash(self._subtree(level - 1, 2 * index), self._subtree(level - 1, 2 * index + 1))

    def _levels_of_block(self, block: int) -> list[list[bytes]]:
        """The complete subtrees under a block of events, by level and index within it."""
        start = block << KEPT_LEVEL
        levels = [[merkle.leaf_hash(value) for _, value in self._log.read(start, min(start + BLOCK, self.end))]]
        while len(below := levels[-1]) > 1:
            pairs = zip(below[::2], below[1::2], strict=False)
            levels.append([merkle.node_hash(left, right) for left, right in pairs])
        return levels


def head_of(log: EventLog, size: int | None = None) -> tuple[int, bytes]:
    """The size and the root of a log at its durable end, or of its first `size` events. Raises TreeBehind, LogError."""
    reader = TreeReader(log, size)
    return reader.end, reader.root()


def kept_subtree(log: EventLog, level: int, index: int) -> bytes:
    """The hash of a complete subtree that is kept. Raises LogCorrupted."""
    value = log.get(_node_key(HEAD, level, index))
    if value is None or len(value) != merkle.HASH_BYTES:
        first, last = index << level, ((index + 1) << level) - 1
        raise LogCorrupted(f"the log is damaged: its tree lacks the hash over events {first} to {last}; restore it")
    return value


def kept_subtrees(log: EventLog, level: int) -> Iterator[bytes]:
    """The hashes of the complete subtrees of a level that are kept, in order. Raises LogError."""
    return (value for _, value in log.scan(HEAD + bytes((level,))))


def stretch_root(log: EventLog, start: int, end: int) -> bytes | None:
    """The root over the events from `start` on, below `end`, alone; None where the kept tree does not reach so far yet.
    That of a kept subtree is what was kept. Raises LogError."""
    count = end - start
    level = count.bit_length() - 1
    if end > _kept_head(log)[0]:
        return None
    if level >= KEPT_LEVEL and count == 1 << level and not start % count:
        return kept_subtree(log, level, start >> level)
    return root_over(value for _, value in log.read(start, end))


def root_over(values: Iterable[bytes]) -> bytes:
    """The root over some events alone."""
    frontier = Frontier()
    frontier.extend(values, merkle.PATH_LENGTH_MAX)
    return frontier.root()


def _frontier_at(log: EventLog, size: int) -> Frontier:
    """The frontier of the kept tree, of its kept subtrees and the last events. Raises LogCorrupted where these do not
    have the root that was kept."""
    whole = size & -BLOCK
    frontier = Frontier(whole, [kept_subtree(log, level, index) for level, index in merkle.peaks_of(whole)])
    frontier.extend([value for _, value in log.read(whole, size)], KEPT_LEVEL)
    if frontier.root() != kept_head(log)[1]:
        raise LogCorrupted(
            f"the log is damaged: its first {size} events are not those of its tree; restore it from a "
            "copy, and see `topicwright verify`"
        )
    return frontier


def _extended(frontier: Frontier, values: Sequence[bytes]) -> dict[bytes, bytes]:
    """The state keys that change with the tree as it takes up these events."""
    kept = frontier.extend(values, KEPT_LEVEL)
    puts = {_node_key(HEAD, level, index): hash_ for level, index, hash_ in kept}
    puts[HEAD] = frontier.size.to_bytes(8, "big") + frontier.root()
    return puts
