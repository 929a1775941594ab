"""The tree of RFC 9162: the paths of every tree are right, and nothing else passes for them."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.logs.merkle import (
    EMPTY_ROOT,
    Frontier,
    Subtree,
    consistency_path,
    inclusion_path,
    leaf_hash,
    node_hash,
    peaks_of,
    root_at,
    root_from_inclusion,
)
from tests.events.logs.consistency import is_consistent

SIZES = range(1, 40)


def values(count: int) -> list[bytes]:
    return [b"event %d" % number for number in range(count)]


def by_definition(leaves: list[bytes]) -> bytes:
    """RFC 9162, 2.1.1, word for word."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return leaf_hash(leaves[0])
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return node_hash(by_definition(leaves[:split]), by_definition(leaves[split:]))


def subtree_of(leaves: list[bytes]) -> Subtree:
    return lambda level, index: by_definition(leaves[index << level : (index + 1) << level])


def test_known_root() -> None:
    """Of the test vectors of Certificate Transparency (google/certificate-transparency, merkle_tree_test)."""
    hexes = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
    leaves = [bytes.fromhex(one) for one in hexes]
    assert EMPTY_ROOT.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    frontier = Frontier()
    frontier.extend(leaves, 8)
    assert frontier.root().hex() == "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"


@pytest.mark.parametrize("size", [0, *SIZES])
def test_roots_match_rfc_9162(size: int) -> None:
    leaves = values(size)
    frontier = Frontier()
    kept = [each for value in leaves for each in frontier.extend([value], 2)]
    assert frontier.root() == root_at(subtree_of(leaves), size) == by_definition(leaves)
    whole = subtree_of(leaves)
    assert [hash_ for *_, hash_ in kept] == [whole(level, index) for level, index, _ in kept]
    expected = {(level, index) for level in range(2, 7) for index in range(size >> level)}
    assert {(level, index) for level, index, _ in kept} == expected
    again = Frontier(size, [whole(level, index) for level, index in peaks_of(size)])
    again.extend([b"more"], 2)
    assert again.root() == by_definition([*leaves, b"more"])


@pytest.mark.parametrize("size", SIZES)
def test_inclusion_proofs(size: int) -> None:
    leaves = values(size)
    root = by_definition(leaves)
    for offset, value in enumerate(leaves):
        path = inclusion_path(subtree_of(leaves), offset, size)
        assert root_from_inclusion(leaf_hash(value), offset, size, path) == root
        others = (other for other in range(size) if other != offset)
        assert all(root_from_inclusion(leaf_hash(value), other, size, path) != root for other in others)
        assert root_from_inclusion(leaf_hash(b"other"), offset, size, path) != root
        assert root_from_inclusion(leaf_hash(value), offset, size, [*path, root]) is None
        assert not path or root_from_inclusion(leaf_hash(value), offset, size, path[:-1]) is None
        assert root_from_inclusion(leaf_hash(value), -1, size, path) is None
        assert root_from_inclusion(leaf_hash(value), size, size, path) is None


@pytest.mark.parametrize("size", SIZES)
def test_consistency_proofs(size: int) -> None:
    leaves = values(size)
    root = by_definition(leaves)
    for old in range(size + 1):
        path = consistency_path(subtree_of(leaves), old, size)
        older = by_definition(leaves[:old])
        assert is_consistent(old, older, size, root, path)
        assert not is_consistent(old, b"\0" * 32, size, root, path)
        assert not is_consistent(old, older, size, root, [*path, root])
        if old:
            assert not is_consistent(old, older, size, b"\0" * 32, path)
            changed = [b"changed", *leaves[1:]]
            wrong = consistency_path(subtree_of(changed), old, size)
            assert not is_consistent(old, older, size, by_definition(changed), wrong)
        assert not path or not is_consistent(old, older, size, root, path[:-1])
    assert not is_consistent(size + 1, root, size, root, [])


@given(st.integers(0, 80), st.integers(0, 80), st.lists(st.binary(min_size=32, max_size=32), max_size=8))
def test_forged_paths_are_rejected(old: int, size: int, path: list[bytes]) -> None:
    """Whatever is in a file of a proof, checking it ends with an answer."""
    roots = b"\1" * 32, b"\2" * 32
    assert not is_consistent(old, roots[0], size, roots[1], path)
    assert root_from_inclusion(roots[0], old, size, path) != roots[1]
