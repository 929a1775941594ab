"""A mapping as a value, of which a change copies a piece: what many changes one after another would else copy whole.

Keys lie in pieces by a checksum of what they say. All other pieces stay the very same, so what changed is found by
identity. The order of keys says nothing: whoever goes through them and lets it be seen sorts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final, TypeVar
from zlib import crc32

BUCKETS: Final = 256
"""About the root of the most entries that there will be, so that pieces are as many as what is in them."""

K = TypeVar("K")
V = TypeVar("V")


def _bucket_of(key: object) -> int:
    return crc32(repr(key).encode()) % BUCKETS


class BucketMap(Mapping[K, V]):
    """A mapping in pieces. Equal to any mapping with the same entries."""

    __slots__ = ("count", "pieces")

    def __init__(self, entries: Mapping[K, V]) -> None:
        self.buckets: tuple[dict[K, V], ...] = tuple({} for _ in range(BUCKETS))
        self.count = len(entries)
        for key, value in entries.items():
            self.buckets[_bucket_of(key)][key] = value

    def __getitem__(self, key: K) -> V:
        return self.buckets[_bucket_of(key)][key]

    def get(self, key: K, default: Any = None) -> Any:
        """The value of a key, or the default."""
        return self.buckets[_bucket_of(key)].get(key, default)

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self.buckets)

    def __len__(self) -> int:
        return self.count


def changed(entries: Mapping[K, V], key: K, value: V | None) -> BucketMap[K, V]:
    """The entries with another value of a key; without the key where that is None."""
    before = entries if isinstance(entries, BucketMap) else BucketMap(entries)
    number = _bucket_of(key)
    bucket = dict(before.buckets[number])
    if value is None:
        bucket.pop(key, None)
    else:
        bucket[key] = value
    after: BucketMap[K, V] = BucketMap.__new__(BucketMap)
    after.buckets = (*before.buckets[:number], bucket, *before.buckets[number + 1 :])
    after.count = before.count + len(bucket) - len(before.buckets[number])
    return after


def differing(before: Mapping[K, V], after: Mapping[K, V]) -> set[K]:
    """The keys under which the two have not the very same value, in no order."""
    pairs: Iterator[tuple[Mapping[K, V], Mapping[K, V]]] = iter(((before, after),))
    if isinstance(before, BucketMap) and isinstance(after, BucketMap):
        pairs = zip(before.buckets, after.buckets, strict=True)
    return {
        key
        for old, new in pairs
        if old is not new
        for key in old.keys() | new.keys()
        if old.get(key) is not new.get(key)
    }
