"""Events in the metadata log: the first record of each batch of ours is a NoOpRecord that carries them.

Kafka's controllers and brokers keep a record's bytes and pass over tagged fields that they do not know; their snapshots
drop them. The field holds, in MessagePack, the form (1), the offset that the first event has in the event log of who
led, the canonical bytes of each event, and the root of the tree over all events before the first one, where it is the
first of its commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from controller.kafka.codec.primitives import encode_uvarint, read_uvarint
from controller.kafka.codec.reader import READ_FAILURES

TAG: Final = 7409
"""Far from those that Kafka gives in turn."""
_FORM: Final = 1
_HEAD: Final = b"".join(map(encode_uvarint, (1, 20, 0, 1, TAG)))
"""Frame version 1, NoOpRecord in version 0, and one tagged field, which is ours."""


class Carried(msgspec.Struct, frozen=True, array_like=True):
    """The events of a batch; `first` is the offset of the first one, and `root` that of the tree over all before it,
    empty where it is not said."""

    form: int
    first: int
    values: tuple[bytes, ...]
    root: bytes = b""


_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Carried)


def carrying(first: int, values: Sequence[bytes], root: bytes = b"") -> bytes:
    """The value of a NoOpRecord that carries events."""
    data = _encoder.encode((_FORM, first, tuple(values), *([root] if root else ())))
    return _HEAD + encode_uvarint(len(data)) + data


def carried(value: bytes) -> Carried | None:
    """The events that a record carries; None where it is any other, or of a form that this release does not know."""
    if not value.startswith(_HEAD):
        return None
    try:
        size, at = read_uvarint(value, len(_HEAD))
        found = _decoder.decode(value[at : at + size])
    except (*READ_FAILURES, msgspec.DecodeError):
        return None
    return found if found.form == _FORM and at + size == len(value) else None
