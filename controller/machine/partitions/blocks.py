"""The partitions of a topic as a value, of which a change copies a piece.

Few of them are a plain tuple. More than `BLOCK` lie in blocks of so many: who changes one partition copies its block
and the row of blocks, some hundred references at 100,000 partitions. All other blocks stay the very same, so whoever
keeps topics, or passes on what changed of them, finds that by identity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from typing import TypeGuard, overload

from events.catalog import Partition

BLOCK = 256
"""Partitions of a block: about the root of the most that a topic may have, so that blocks are as many as what is in
them."""

Block = tuple[Partition, ...]
Span = tuple[int, int]
"""Partitions from an index up to, but not including, another."""


class Blocks(Sequence[Partition]):
    """Partitions in blocks, all of them full but the last. Equal to a tuple of the same partitions."""

    __slots__ = ("blocks",)

    def __init__(self, blocks: tuple[Block, ...]) -> None:
        self.blocks = blocks

    def __len__(self) -> int:
        return (len(self.blocks) - 1) * BLOCK + len(self.blocks[-1])

    @overload
    def __getitem__(self, index: int) -> Partition: ...
    @overload
    def __getitem__(self, index: slice) -> Block: ...
    def __getitem__(self, index: int | slice) -> Partition | Block:
        places = range(len(self))[index]
        if isinstance(places, range):
            return tuple(self.blocks[place // BLOCK][place % BLOCK] for place in places)
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
    """Whether they are few, and a tuple."""
    return type(partitions) is tuple and len(partitions) <= BLOCK


def in_blocks(partitions: Sequence[Partition]) -> Sequence[Partition]:
    """Partitions as a topic keeps them: a tuple of few, or blocks."""
    return _kept(blocks_of(partitions))


def blocks_of(partitions: Sequence[Partition]) -> tuple[Block, ...]:
    """Their blocks, the last of which may not be full; one of a tuple of few."""
    if is_one_block(partitions):
        return (partitions,)
    if type(partitions) is Blocks:
        return partitions.blocks
    if len(partitions) <= BLOCK:
        return (tuple(partitions),)
    return tuple(tuple(partitions[start : start + BLOCK]) for start in range(0, len(partitions), BLOCK))


def extended(partitions: Sequence[Partition], more: Sequence[Partition]) -> Sequence[Partition]:
    """These partitions with more after them."""
    *full, last = blocks_of(partitions)
    return _kept((*full, *blocks_of((*last, *more))))


def changed(partitions: Sequence[Partition], changes: Mapping[int, Partition]) -> Sequence[Partition]:
    """These partitions with others at some indexes."""
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
    return _kept(tuple(blocks))


def differing(before: Sequence[Partition], after: Sequence[Partition]) -> Iterator[tuple[int, Partition]]:
    """The partitions of `after`, with their indexes, that are not the very same in `before`, which has no more."""
    known = blocks_of(before)
    for number, block in enumerate(blocks_of(after)):
        old: Block = known[number] if number < len(known) else ()
        if block is not old:
            start = number * BLOCK
            for place, (was, partition) in enumerate(zip_longest(old, block), start):
                if was is not partition and partition is not None:
                    yield place, partition


def numbered(partitions: Sequence[Partition], span: Span | None = None) -> Iterator[tuple[int, Partition]]:
    """The partitions of a span, or all, with their indexes; a span may reach beyond them."""
    return enumerate(partitions) if span is None else enumerate(partitions[slice(*span)], span[0])


def _kept(blocks: tuple[Block, ...]) -> Sequence[Partition]:
    return Blocks(blocks) if len(blocks) > 1 else blocks[0]
