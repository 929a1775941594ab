"""Signed tree heads of a log, and proofs that events are in the log (`topicwright prove` and `verify`).

A tree head is a size and the root of the Merkle tree over that many events. A client that stored a head can later
detect that events below it were changed, dropped, reordered or truncated. A signature (Ed25519, RFC 8032) also shows
which service issued the head, and when. The signed text is plain, so that other programs can check it:

    topicwright log head 1
    LOG
    SIZE
    ROOT, in hexadecimal digits
    TIME, in ms since the epoch

each line ended by a line feed. LOG is the cluster id; in a partitioned log `/` and the partition number follow.

A proof holds the bytes of events, their offsets, and their paths to a head. It is self-contained: checking it needs
neither the service nor the log, only a trusted head or public key. `docs/verify_proof.py` does so without this project.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, Self, TypeVar

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from msgspec import Meta

from events.errors import UserError
from events.logs.log import read_bytes
from events.logs.merkle import HASH_BYTES, PATH_LENGTH_MAX, leaf_hash, root_from_inclusion

KEY_FILE_BYTES_MAX = 1 << 16
TIME_MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999: later ones cannot be written as a date."""
_V = TypeVar("_V", bound=Hashable)


class BadKey(UserError):
    """A file without a key of the right kind. The message names it and says what is allowed."""


Name = Annotated[str, Meta(pattern=r"\A[!-~]{1,300}\Z")]
OffsetInLog = Annotated[int, Meta(ge=0, le=2**63 - 1)]
HexHash = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]


class Head(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tree head over the first `size` events of a log; `root` in hexadecimal digits. A signed head has `public_key`
    (32 bytes) and `signature` (64)."""

    log: Name
    size: OffsetInLog
    root: HexHash
    at_ms: Annotated[int, Meta(ge=0, le=TIME_MS_MAX)]
    public_key: Annotated[bytes, Meta(max_length=32)] = b""
    signature: Annotated[bytes, Meta(max_length=64)] = b""

    @property
    def text(self) -> bytes:
        lines = ("topicwright log head 1", self.log, str(self.size), self.root, str(self.at_ms))
        return "".join(f"{line}\n" for line in lines).encode()

    def is_signed_by(self, public_key: bytes) -> bool:
        """True if the key (32 bytes) signed the head."""
        return verifies(public_key, self.signature, self.text)


def verifies(public_key: bytes, signature: bytes, text: bytes) -> bool:
    """True if the key (32 bytes) made the signature of a text."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True


def log_name(cluster_id: str, partition: int | None = None) -> str:
    return cluster_id if partition is None else f"{cluster_id}/{partition}"


class HeadSigner:
    """Signs tree heads with an Ed25519 key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public_key = key.public_key().public_bytes_raw()

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read an unencrypted Ed25519 key in PEM. Raises BadKey."""
        key = _key(path, lambda pem: load_pem_private_key(pem, None))
        if not isinstance(key, Ed25519PrivateKey):
            raise _wrong_kind(path, key, "private", "openssl genpkey -algorithm ed25519")
        return cls(key)

    def sign(self, text: bytes) -> bytes:
        return self._key.sign(text)

    def signed(self, head: Head) -> Head:
        return msgspec.structs.replace(head, public_key=self.public_key, signature=self.sign(head.text))


def read_public_key(path: Path) -> bytes:
    """The 32 bytes of an Ed25519 public key in PEM. Raises BadKey."""
    key = _key(path, load_pem_public_key)
    if not isinstance(key, Ed25519PublicKey):
        raise _wrong_kind(path, key, "public", "openssl pkey -in KEY -pubout")
    return key.public_bytes_raw()


def differing(roots: Mapping[_V, bytes]) -> tuple[bytes | None, frozenset[_V]]:
    """Compare the roots of several voters at the same size: the root of the majority, and the voters with another one.

    None, and all voters, if no root has a majority.
    """
    root, count = Counter(roots.values()).most_common(1)[0] if roots else (None, 0)
    if 2 * count <= len(roots):
        return None, frozenset(roots)
    return root, frozenset(voter for voter, own in roots.items() if own != root)


def _key(path: Path, load: Callable[[bytes], object]) -> object:
    try:
        pem = read_bytes(path, KEY_FILE_BYTES_MAX)
    except OSError as error:
        raise BadKey(f"{path} cannot be read: {error.strerror}") from error
    try:
        return load(pem)
    except TypeError:
        raise BadKey(f"{path} is encrypted: store it unencrypted in a protected file") from None
    except (ValueError, UnsupportedAlgorithm):
        return None


def _wrong_kind(path: Path, key: object, kind: str, how: str) -> BadKey:
    found = "no key that can be read" if key is None else f"a key of another kind ({type(key).__name__.lstrip('_')})"
    return BadKey(f"{path} holds {found}; it must be an Ed25519 {kind} key in PEM: {how}")


FORMAT: Final = "topicwright proof 1"
EVENTS_MAX = 1000
FILE_BYTES_MAX = 64 << 20
"""The limit of a file with a proof; the largest proof has a tenth of it."""

_Hash = Annotated[bytes, Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]


class ProvedEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event at its offset. An event with a secret has only `leaf`, the hash of its bytes, instead of `value`."""

    offset: OffsetInLog
    path: Annotated[tuple[_Hash, ...], Meta(max_length=PATH_LENGTH_MAX)]
    value: bytes = b""
    leaf: _Hash | None = None


class Proof(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The output of `topicwright prove`. `about` describes the query and is not itself proved; further events that are
    not included begin at `next_offset`."""

    about: str
    head: Head
    events: Annotated[tuple[ProvedEvent, ...], Meta(min_length=1, max_length=EVENTS_MAX)]
    next_offset: OffsetInLog | None = None
    format: Literal["topicwright proof 1"] = FORMAT


class ProofFails(UserError):
    """The proof is invalid. The message says where."""


def read_proof(text: bytes) -> Proof:
    """The proof in a file's text. Raises ProofFails."""
    if len(text) > FILE_BYTES_MAX:
        raise ProofFails(f"it is larger than {FILE_BYTES_MAX} bytes, more than any proof")
    try:
        return msgspec.json.decode(text, type=Proof)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise ProofFails(f"it is not a proof: {error}") from None


def check_paths(proof: Proof) -> None:
    """Raise ProofFails unless every event is at its offset under the root of the head, each once."""
    head, before = proof.head, -1
    for event in proof.events:
        if event.offset <= before:
            raise ProofFails(f"event {event.offset}: it comes after event {before}, which is not the order of the log")
        before = event.offset
        if (event.leaf is None) != bool(event.value):
            raise ProofFails(f"event {event.offset}: it must have either its bytes or their hash")
        leaf = event.leaf if event.leaf is not None else leaf_hash(event.value)
        root = root_from_inclusion(leaf, event.offset, head.size, event.path)
        if root is None or root.hex() != head.root:
            raise ProofFails(
                f"event {event.offset}: it is not the event at this offset of the log with {head.size} events and root "
                f"{head.root}"
            )
