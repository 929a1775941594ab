"""The partitions of a topic as an immutable value in blocks, so that a change copies one block. `Topic` stores it.

Up to `BLOCK` partitions are a plain tuple. A change of one partition of a larger topic copies its block and the tuple
of blocks, a few hundred references at 100,000 partitions. Unchanged blocks are the same objects, so that `differing`
compares only changed blocks.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any, TypeGuard

from events.catalog import Partition

BLOCK = 256
"""Partitions per block: about the square root of the largest count, so that there are about as many blocks."""

Block = tuple[Partition, ...]


class Blocks(Sequence[Partition]):
    """Partitions in blocks; only the last may be partly filled. Equal to a tuple of the same partitions."""

    __slots__ = ("blocks",)

    def __init__(self, blocks: tuple[Block, ...]) -> None:
        self.blocks = blocks

    def __len__(self) -> int:
        return (len(self.blocks) - 1) * BLOCK + len(self.blocks[-1])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int) and index >= 0:
            return self.blocks[index // BLOCK][index % BLOCK]
        places = range(len(self))[index]
        if isinstance(places, range):
            return tuple(map(self.__getitem__, places))
        return self.blocks[places // BLOCK][places % BLOCK]

    def __iter__(self) -> Iterator[Partition]:
        return chain.from_iterable(self.blocks)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Blocks):
            return self.blocks == other.blocks
        return tuple(self) == other

    def __repr__(self) -> str:
        return repr(tuple(self))


def is_one_block(partitions: Sequence[Partition]) -> TypeGuard[Block]:
    return type(partitions) is tuple and len(partitions) <= BLOCK


def in_blocks(partitions: Sequence[Partition]) -> Sequence[Partition]:
    """Returns partitions as a topic stores them: a tuple, or blocks."""
    return _stored(blocks_of(partitions))


def blocks_of(partitions: Sequence[Partition]) -> tuple[Block, ...]:
    """Returns the blocks of partitions that a topic stores; a plain tuple is a single block."""
    if is_one_block(partitions):
        return (partitions,)
    if type(partitions) is Blocks:
        return partitions.blocks
    if len(partitions) <= BLOCK:
        return (tuple(partitions),)
    return tuple(tuple(partitions[start : start + BLOCK]) for start in range(0, len(partitions), BLOCK))


def extended(partitions: Sequence[Partition], more: Sequence[Partition]) -> Sequence[Partition]:
    *full, last = blocks_of(partitions)
    return _stored((*full, *blocks_of((*last, *more))))


def changed(partitions: Sequence[Partition], changes: Mapping[int, Partition]) -> Sequence[Partition]:
    """Returns the partitions with those in `changes` (by index) replaced. Copies only the blocks that change."""
    blocks = list(blocks_of(partitions))
    copies: dict[int, list[Partition]] = {}
    for index, partition in changes.items():
        number = index // BLOCK
        copy = copies.get(number)
        if copy is None:
            copy = copies[number] = list(blocks[number])
        copy[index % BLOCK] = partition
    for number, copy in copies.items():
        blocks[number] = tuple(copy)
    return _stored(tuple(blocks))


def differing(before: Sequence[Partition], after: Sequence[Partition]) -> Iterator[tuple[int, Partition]]:
    """Yields the partitions of `after`, with their indexes, that are not the same objects in `before`. `before` must
    not have more partitions than `after`."""
    known = blocks_of(before)
    for number, block in enumerate(blocks_of(after)):
        old: Block = known[number] if number < len(known) else ()
        if block is not old:
            start = number * BLOCK
            for place, (was, partition) in enumerate(zip_longest(old, block), start):
                if was is not partition and partition is not None:
                    yield place, partition


def numbered(partitions: Sequence[Partition], indexes: Iterable[int] | None = None) -> Iterator[tuple[int, Partition]]:
    """Yields the partitions with these indexes, or all, with their indexes. Skips indexes beyond the last partition."""
    if indexes is None:
        return enumerate(partitions)
    count = len(partitions)
    return ((index, partitions[index]) for index in indexes if index < count)


def _stored(blocks: tuple[Block, ...]) -> Sequence[Partition]:
    return Blocks(blocks) if len(blocks) > 1 else blocks[0]
