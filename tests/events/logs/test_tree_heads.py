"""Merkle trees of RFC 9162: valid proofs verify and no others do. Signed tree heads: signatures, invalid keys, and
voters with different roots."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from events.logs.merkle import (
    EMPTY_ROOT,
    Frontier,
    Subtree,
    inclusion_path,
    leaf_hash,
    node_hash,
    peaks_of,
    root_at,
    root_from_inclusion,
)
from events.logs.tree_heads import BadKey, Head, HeadSigner, differing, log_name, read_public_key

HEAD = Head(log=log_name("c", 3), size=7, root="ab" * 32, at_ms=1_700_000_000_000)
PEM, PKCS8 = Encoding.PEM, PrivateFormat.PKCS8


def key_files(folder: Path) -> tuple[Path, Path]:
    key, pem, public = Ed25519PrivateKey.generate(), folder / "key.pem", folder / "public.pem"
    pem.write_bytes(key.private_bytes(PEM, PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(PEM, PublicFormat.SubjectPublicKeyInfo))
    return pem, public


def test_signed_tree_heads_verify_with_the_public_key(tmp_path: Path) -> None:
    pem, public = key_files(tmp_path)
    head = HeadSigner.read(pem).signed(HEAD)
    key = read_public_key(public)
    assert head.text == b"topicwright log head 1\nc/3\n7\n" + b"ab" * 32 + b"\n1700000000000\n"
    assert head.public_key == key
    assert head.is_signed_by(key)
    assert not HEAD.is_signed_by(key)
    (tmp_path / "other").mkdir()
    assert not head.is_signed_by(read_public_key(key_files(tmp_path / "other")[1]))
    for changed in ({"size": 8}, {"root": "cd" * 32}, {"at_ms": 1}, {"log": "c"}, {"signature": bytes(64)}):
        assert not msgspec.structs.replace(head, **changed).is_signed_by(key)
    assert not head.is_signed_by(b"short")


@pytest.mark.parametrize(
    "changed", [{"log": "a\nb"}, {"log": ""}, {"size": -1}, {"size": 1 << 63}, {"root": "AB" * 32}, {"at_ms": "1"}]
)
def test_invalid_tree_heads_are_rejected(changed: dict[str, object]) -> None:
    text = msgspec.json.encode({**msgspec.to_builtins(HEAD), **changed})
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=Head)


def elliptic(folder: Path) -> bytes:
    return generate_private_key(SECP256R1()).private_bytes(PEM, PKCS8, NoEncryption())


def encrypted(folder: Path) -> bytes:
    return Ed25519PrivateKey.generate().private_bytes(PEM, PKCS8, BestAvailableEncryption(b"secret"))


def public(folder: Path) -> bytes:
    return key_files(folder)[1].read_bytes()


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (elliptic, r"a key of another kind \(.*\); it must be an Ed25519 private key in PEM: openssl genpkey"),
        (encrypted, "is encrypted"),
        (public, "no key that can be read; it must be an Ed25519 private key"),
        (lambda folder: b"", "no key that can be read"),
        (lambda folder: b"-" * 70_000, "larger than 65536 bytes"),
    ],
)
def test_invalid_key_file_is_rejected(tmp_path: Path, made: Callable[[Path], bytes], says: str) -> None:
    path = tmp_path / "some.pem"
    path.write_bytes(made(tmp_path))
    with pytest.raises(BadKey, match=says) as raised:
        HeadSigner.read(path)
    assert str(path) in str(raised.value)


def test_missing_key_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(BadKey, match="cannot be read: No such file"):
        HeadSigner.read(tmp_path / "none.pem")


def test_voters_with_a_different_root_are_found() -> None:
    assert differing({1: b"a", 2: b"a", 3: b"a"}) == (b"a", frozenset())
    assert differing({1: b"a", 2: b"b", 3: b"a"}) == (b"a", frozenset({2}))
    assert differing({1: b"a", 2: b"b"}) == (None, frozenset({1, 2}))
    assert differing({1: b"a", 2: b"b", 3: b"c"}) == (None, frozenset({1, 2, 3}))
    assert differing({}) == (None, frozenset())


SIZES = range(1, 40)


def values(count: int) -> list[bytes]:
    return [b"event %d" % number for number in range(count)]


def by_definition(leaves: list[bytes]) -> bytes:
    """The definition of RFC 9162, 2.1.1."""
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


def test_merkle_root_equals_the_certificate_transparency_vector() -> None:
    """The vector is from Certificate Transparency (google/certificate-transparency, merkle_tree_test)."""
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
def test_inclusion_proofs_verify_for_every_tree_size(size: int) -> None:
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


@given(st.integers(0, 80), st.integers(0, 80), st.lists(st.binary(min_size=32, max_size=32), max_size=8))
def test_forged_paths_are_rejected(old: int, size: int, path: list[bytes]) -> None:
    """Verification of an arbitrary proof ends, and rejects it."""
    roots = b"\1" * 32, b"\2" * 32
    assert root_from_inclusion(roots[0], old, size, path) != roots[1]
