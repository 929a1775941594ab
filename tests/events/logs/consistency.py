"""Verifies consistency proofs as a client does (RFC 9162, 2.1.4.2)."""

from __future__ import annotations

from collections.abc import Sequence

from events.logs.merkle import EMPTY_ROOT, node_hash


def is_consistent(old: int, old_root: bytes, size: int, root: bytes, path: Sequence[bytes]) -> bool:
    """True if the path proves that the tree of the first `old` of `size` events has the root `old_root`."""
    if old > size:
        return False
    if old in (0, size):
        return not path and old_root == (root if old else EMPTY_ROOT)
    hashes = list(path) if old & (old - 1) else [old_root, *path]
    if not hashes:
        return False
    index, last = old - 1, size - 1
    while index & 1:
        index, last = index >> 1, last >> 1
    older = newer = hashes[0]
    for hash_ in hashes[1:]:
        if last == 0:
            return False
        if index & 1 or index == last:
            older, newer = node_hash(hash_, older), node_hash(hash_, newer)
            while not index & 1 and index:
                index, last = index >> 1, last >> 1
        else:
            newer = node_hash(newer, hash_)
        index, last = index >> 1, last >> 1
    return last == 0 and older == old_root and newer == root
