"""Maintains the Merkle tree of a log (`events.logs.merkle`) as state keys, and reads roots and proofs from it.

Every commit extends the tree in the same atomic write:
    m             head: the number of events that the tree covers (8 bytes), and their root
    m LEVEL INDEX the hash of a complete subtree of `1 << LEVEL` events, from level 8 (256 events) on

Smaller subtrees are not stored: 256 events are adjacent in the log, and hashing them takes less than a millisecond.
So the tree takes less than a byte an event, a commit writes little more than the head, and a proof reads one key a
level and one or two blocks of events.

The stored tree is not trusted. `LogTree` compares its root with the newest events at each start, and an audit compares
all of it with all events. With a tree head that was saved elsewhere, events can be verified without the stored tree.
"""

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache

from controller.store.keys import Puts
from events.logs import merkle
from events.logs.log import EventLog, LogCorrupted
from events.logs.merkle import Frontier

HEAD = b"m"
STORED_LEVEL = 8
BLOCK = 1 << STORED_LEVEL
"""The number of events of the smallest stored subtree."""
_node_key = struct.Struct(">cBQ").pack
_BLOCKS_CACHED = 4


class LogTree:
    """The tree of a log, for its only writer. After a failed write the writer must create a new one."""

    def __init__(self, log: EventLog) -> None:
        """Raises LogError; LogCorrupted if the newest events are not those of the tree."""
        self._log = log
        self._frontier = _frontier(log)

    def changes(self, values: Sequence[bytes]) -> Puts:
        """The state keys to write in the commit of these events."""
        if self._frontier.size != self._log.next_offset:  # the previous commit was not written
            self._frontier = _frontier(self._log)
        kept = self._frontier.extend(values, STORED_LEVEL)
        puts: Puts = {_node_key(HEAD, level, index): hash_ for level, index, hash_ in kept}
        puts[HEAD] = self._frontier.size.to_bytes(8, "big") + self._frontier.root()
        return puts


def stored_head(log: EventLog) -> tuple[int, bytes]:
    """The size and root of the stored tree, for the writer of the log. Raises LogCorrupted."""
    value = log.get(HEAD) or bytes(8) + merkle.EMPTY_ROOT
    if len(value) != 8 + merkle.HASH_BYTES:
        raise LogCorrupted(f"the log is damaged: the head of its tree has {len(value)} bytes; restore it from a copy")
    size = int.from_bytes(value[:8], "big")
    if size != log.next_offset:
        raise LogCorrupted(
            f"the log is damaged: its tree covers {size} events instead of {log.next_offset}; restore it from a copy"
        )
    return size, value[8:]


class TreeReader:
    """Roots and proofs of a log at any size, in any thread. A reader is for one response: it caches some blocks."""

    def __init__(self, log: EventLog, end: int | None = None) -> None:
        """Read the first `end` events (None: the durable ones). Raises LogError."""
        self._log = log
        self.end = log.durable_offset if end is None else end
        self._levels_of = lru_cache(_BLOCKS_CACHED)(self._levels_of_block)

    def root(self, size: int | None = None) -> bytes:
        """The root over the first `size` events; None for all. Raises LogError."""
        return merkle.root_at(self._subtree, self.end if size is None else size)

    def inclusion(self, offset: int, size: int) -> list[bytes]:
        """The path from an event to the root over the first `size`. Raises LogError."""
        return merkle.inclusion_path(self._subtree, offset, size)

    def _subtree(self, level: int, index: int) -> bytes:
        if level < STORED_LEVEL:
            within = STORED_LEVEL - level
            return self._levels_of(index >> within)[level][index & ((1 << within) - 1)]
        return stored_subtree(self._log, level, index)

    def _levels_of_block(self, block: int) -> list[list[bytes]]:
        """The complete subtrees under a block of events, by level and index within it."""
        start = block << STORED_LEVEL
        levels = [[merkle.leaf_hash(value) for _, value in self._log.read(start, min(start + BLOCK, self.end))]]
        while len(below := levels[-1]) > 1:
            pairs = zip(below[::2], below[1::2], strict=False)
            levels.append([merkle.node_hash(left, right) for left, right in pairs])
        return levels


def head_of(log: EventLog, size: int | None = None) -> tuple[int, bytes]:
    """The size and root of the durable events, or of the first `size`. Raises LogError."""
    reader = TreeReader(log, size)
    return reader.end, reader.root()


def stored_subtree(log: EventLog, level: int, index: int) -> bytes:
    """The hash of a stored subtree. Raises LogCorrupted."""
    value = log.get(_node_key(HEAD, level, index))
    if value is None or len(value) != merkle.HASH_BYTES:
        first, last = index << level, ((index + 1) << level) - 1
        raise LogCorrupted(f"the log is damaged: its tree lacks the hash over events {first} to {last}; restore it")
    return value


def range_root(log: EventLog, start: int, end: int) -> bytes:
    """The root over the events from `start` until before `end`. The root of a stored subtree is read, not computed.
    Raises LogError."""
    count = end - start
    level = count.bit_length() - 1
    if level >= STORED_LEVEL and count == 1 << level and not start % count:
        return stored_subtree(log, level, start >> level)
    return root_over(value for _, value in log.read(start, end))


def root_over(values: Iterable[bytes]) -> bytes:
    """The Merkle root over these encoded events."""
    frontier = Frontier()
    frontier.extend(values, merkle.PATH_LENGTH_MAX)
    return frontier.root()


def _frontier(log: EventLog) -> Frontier:
    """The frontier of the stored tree. Raises LogCorrupted if its subtrees and last events do not have its root."""
    size, root = stored_head(log)
    whole = size & -BLOCK
    frontier = Frontier(whole, [stored_subtree(log, level, index) for level, index in merkle.peaks_of(whole)])
    frontier.extend([value for _, value in log.read(whole, size)], STORED_LEVEL)
    if frontier.root() != root:
        raise LogCorrupted(
            f"the log is damaged: its first {size} events are not those of its tree; restore it from a "
            "copy, and see `topicwright verify`"
        )
    return frontier
