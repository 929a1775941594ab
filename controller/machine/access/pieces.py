"""A mapping as a value, of which a change copies a piece: what many changes one after another would else copy whole.

Keys lie in pieces by a checksum of what they say. All other pieces stay the very same, so what changed is found by
identity. The order of keys says nothing: whoever goes through them and lets it be seen sorts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final, TypeVar
from zlib import crc32

PIECES: Final = 256
"""About the root of the most entries that there will be, so that pieces are as many as what is in them."""

K = TypeVar("K")
V = TypeVar("V")


def _piece_of(key: object) -> int:
    return crc32(repr(key).encode()) % PIECES


class Pieces(Mapping[K, V]):
    """A mapping in pieces. Equal to any mapping with the same entries."""

    __slots__ = ("count", "pieces")

    def __init__(self, entries: Mapping[K, V]) -> None:
        self.pieces: tuple[dict[K, V], ...] = tuple({} for _ in range(PIECES))
        self.count = len(entries)
        for key, value in entries.items():
            self.pieces[_piece_of(key)][key] = value

    def __getitem__(self, key: K) -> V:
        return self.pieces[_piece_of(key)][key]

    def get(self, key: K, default: Any = None) -> Any:
        """The value of a key, or the default."""
        return self.pieces[_piece_of(key)].get(key, default)

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self.pieces)

    def __len__(self) -> int:
        return self.count


def changed(entries: Mapping[K, V], key: K, value: V | None) -> Pieces[K, V]:
    """The entries with another value of a key; without the key where that is None."""
    before = entries if isinstance(entries, Pieces) else Pieces(entries)
    number = _piece_of(key)
    piece = dict(before.pieces[number])
    if value is None:
        piece.pop(key, None)
    else:
        piece[key] = value
    after: Pieces[K, V] = Pieces.__new__(Pieces)
    after.pieces = (*before.pieces[:number], piece, *before.pieces[number + 1 :])
    after.count = before.count + len(piece) - len(before.pieces[number])
    return after


def differing(before: Mapping[K, V], after: Mapping[K, V]) -> set[K]:
    """The keys under which the two have not the very same value, in no order."""
    pairs: Iterator[tuple[Mapping[K, V], Mapping[K, V]]] = iter(((before, after),))
    if isinstance(before, Pieces) and isinstance(after, Pieces):
        pairs = zip(before.pieces, after.pieces, strict=True)
    return {
        key
        for old, new in pairs
        if old is not new
        for key in old.keys() | new.keys()
        if old.get(key) is not new.get(key)
    }
