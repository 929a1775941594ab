"""A proof that events stand in a log: their bytes, their places, and the paths to a head.

It is whole by itself: who checks it needs neither the service nor the log, only a head or a public key that they trust.
`docs/verify_proof.py` checks the same without a line of this project.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from events.logs.merkle import HASH_BYTES, PATH_LENGTH_MAX, leaf_hash, root_from_inclusion
from events.logs.tree_heads import OFFSET_MAX, Head

FORMAT: Final = "topicwright proof 1"
EVENTS_MAX = 1000
FILE_BYTES_MAX = 64 << 20
"""Of a file that holds a proof: the largest that is made has a tenth of it."""

_Hash = Annotated[bytes, Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]


class ProvedEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event at its place. `value` are its canonical bytes; where it holds a secret there is only `leaf`, their hash,
    which shows that something stands there, and not what."""

    offset: Annotated[int, Meta(ge=0, le=OFFSET_MAX)]
    path: Annotated[tuple[_Hash, ...], Meta(max_length=PATH_LENGTH_MAX)]
    value: bytes = b""
    leaf: _Hash | None = None


class Proof(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What `topicwright prove` writes. `about` is what was to be proved, and itself not proved; `next_offset` is where
    further events of it begin, which are not in here."""

    about: str
    head: Head
    events: Annotated[tuple[ProvedEvent, ...], Meta(min_length=1, max_length=EVENTS_MAX)]
    next_offset: Annotated[int, Meta(ge=0, le=OFFSET_MAX)] | None = None
    format: Literal["topicwright proof 1"] = FORMAT


class ProofFails(ValueError):
    """The proof does not hold, or is none; the message says where."""


def read_proof(text: bytes) -> Proof:
    """The proof in the text of a file. Raises ProofFails."""
    if len(text) > FILE_BYTES_MAX:
        raise ProofFails(f"it is larger than {FILE_BYTES_MAX} bytes: no proof is")
    try:
        return msgspec.json.decode(text, type=Proof)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise ProofFails(f"it is not a proof: {error}") from None


def check_paths(proof: Proof) -> None:
    """Raise ProofFails unless every event stands where it says under the root of the proof's head, each once."""
    head, before = proof.head, -1
    for event in proof.events:
        if event.offset <= before:
            raise ProofFails(f"event {event.offset}: it comes after event {before}, which is not the order of the log")
        before = event.offset
        if (event.leaf is None) != bool(event.value):
            raise ProofFails(f"event {event.offset}: it has either its bytes or their hash")
        leaf = event.leaf if event.leaf is not None else leaf_hash(event.value)
        root = root_from_inclusion(leaf, event.offset, head.size, event.path)
        if root is None or root.hex() != head.root:
            raise ProofFails(
                f"event {event.offset}: it is not what stood there when the log had {head.size} events and root "
                f"{head.root}"
            )
