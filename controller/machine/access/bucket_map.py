"""An immutable mapping in buckets, so that a change copies one bucket instead of the whole mapping.

The cluster state uses it for quotas, credentials and dynamic configs. Keys are assigned to buckets by a checksum.
Unchanged buckets are the same objects, so that `differing` compares only changed buckets. The order of keys has no
meaning; callers that print them must sort.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final, TypeVar
from zlib import crc32

BUCKETS: Final = 256
"""About the square root of the largest expected size, so that a bucket has about as many keys as there are buckets."""

K = TypeVar("K")
V = TypeVar("V")


def _bucket_of(key: object) -> int:
    return crc32(repr(key).encode()) % BUCKETS


class BucketMap(Mapping[K, V]):
    """An immutable mapping in `BUCKETS` buckets. Equal to any mapping with the same entries."""

    __slots__ = ("buckets", "count")

    def __init__(self, entries: Mapping[K, V]) -> None:
        self.buckets: tuple[dict[K, V], ...] = tuple({} for _ in range(BUCKETS))
        self.count = len(entries)
        for key, value in entries.items():
            self.buckets[_bucket_of(key)][key] = value

    def __getitem__(self, key: K) -> V:
        return self.buckets[_bucket_of(key)][key]

    def get(self, key: K, default: Any = None) -> Any:
        return self.buckets[_bucket_of(key)].get(key, default)

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self.buckets)

    def __len__(self) -> int:
        return self.count


def changed(entries: Mapping[K, V], key: K, value: V | None) -> BucketMap[K, V]:
    """Returns a mapping in which the key is set, or removed if the value is None; `entries` itself does not change."""
    before = entries if isinstance(entries, BucketMap) else BucketMap(entries)
    number = _bucket_of(key)
    bucket = {each: old for each, old in before.buckets[number].items() if each != key}
    if value is not None:
        bucket[key] = value
    after: BucketMap[K, V] = BucketMap.__new__(BucketMap)
    after.buckets = (*before.buckets[:number], bucket, *before.buckets[number + 1 :])
    after.count = before.count + len(bucket) - len(before.buckets[number])
    return after


def differing(before: Mapping[K, V], after: Mapping[K, V]) -> set[K]:
    """Returns the keys whose values in the two mappings are not the same object, in no order."""
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
