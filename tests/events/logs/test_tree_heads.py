"""Heads: what is signed, keys that cannot sign, and whose root differs."""

from __future__ import annotations

from collections.abc import Callable
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

from events.logs.tree_heads import BadKey, Head, HeadSigner, differing, log_name, read_public_key

HEAD = Head(log=log_name("c", 3), size=7, root="ab" * 32, at_ms=1_700_000_000_000)
PEM, PKCS8 = Encoding.PEM, PrivateFormat.PKCS8


def key_files(folder: Path) -> tuple[Path, Path]:
    key, pem, public = Ed25519PrivateKey.generate(), folder / "key.pem", folder / "public.pem"
    pem.write_bytes(key.private_bytes(PEM, PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(PEM, PublicFormat.SubjectPublicKeyInfo))
    return pem, public


def test_signature_of_a_tree_head(tmp_path: Path) -> None:
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


def test_a_private_key_is_no_public_one(tmp_path: Path) -> None:
    with pytest.raises(BadKey, match="it must be an Ed25519 public key in PEM: openssl pkey"):
        read_public_key(key_files(tmp_path)[0])


def test_voters_with_a_differing_root() -> None:
    assert differing({1: b"a", 2: b"a", 3: b"a"}) == (b"a", frozenset())
    assert differing({1: b"a", 2: b"b", 3: b"a"}) == (b"a", frozenset({2}))
    assert differing({1: b"a", 2: b"b"}) == (None, frozenset({1, 2}))
    assert differing({1: b"a", 2: b"b", 3: b"c"}) == (None, frozenset({1, 2, 3}))
    assert differing({}) == (None, frozenset())
