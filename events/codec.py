"""Encodes events to canonical bytes and decodes them, for logs, archives, exports and proofs.

A record is the MessagePack array `[version, at_ms, [command, request_id], [type, field…]]`. The same event always has
the same bytes: structs encode as arrays in the order of their fields, and no map is used anywhere. The bytes do not
contain the offset: it is the position of the record in the log.

Only the log holds secrets, because logins are checked against them. Code that displays, exports or prints events
uses `without_secrets`.
"""

from typing import Any, Union

import msgspec
from msgspec.structs import replace

from events.access import LoginSecretDrawn, ScramCredentialSet
from events.catalog import EVENT_TYPES, EVENT_VERSION, Cause, Configs, Event, Recorded, ResourceConfigsChanged
from events.errors import UserError
from events.names import Offset, TopicName
from events.values import Fact

UNREADABLE = (ValueError, RecursionError)
"""The exceptions that msgspec raises for invalid bytes: DecodeError or UnicodeDecodeError, both ValueErrors, or
RecursionError for deep nesting."""


class EventDecodeError(UserError):
    """Bytes that are not an event of this release. The message says where and why."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(f"event at offset {offset}: {why}")


def _beginning(kind: type[Fact]) -> type[msgspec.Struct]:
    """A struct that decodes only the fields of an event up to its topic, if any."""
    names = kind.__struct_fields__
    fields: list[Any] = [*names[: names.index("topic")], ("topic", str)] if "topic" in names else []
    return msgspec.defstruct(kind.__name__, fields, array_like=True, tag=True, gc=False)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[int, int, Cause, Event])
_Beginnings: Any = Union[tuple(_beginning(kind) for kind in EVENT_TYPES)]  # noqa: UP007
_beginning_decoder = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw, msgspec.Raw, _Beginnings])
_raw_decoder = msgspec.msgpack.Decoder(tuple[int, int, Cause, list[Any]])


def encode_event(at_ms: int, cause: Cause, event: Event) -> bytes:
    """The canonical bytes of an event with its time and cause."""
    return _encoder.encode((EVENT_VERSION, at_ms, cause, event))


def decode_event(offset: int, value: bytes) -> Recorded:
    """The event in `value`. Raises EventDecodeError for an unknown event type, a newer version, or invalid bytes."""
    try:
        version, at_ms, cause, event = _decoder.decode(value)
        if version == EVENT_VERSION:
            return Recorded(Offset(offset), at_ms, cause, event)
    except UNREADABLE as error:
        raise _undecodable(offset, value, str(error)) from None
    raise _undecodable(offset, value, "")


def topic_of(offset: int, value: bytes) -> TopicName | None:
    """The topic of an event; None for a cluster-wide one. Takes half the time of `decode_event`, because the fields
    after the topic are not checked. Raises EventDecodeError."""
    try:
        version, _, _, event = _beginning_decoder.decode(value)
        name: TopicName | None = getattr(event, "topic", None)
        if version == EVENT_VERSION and name is not None:
            return name
    except UNREADABLE:
        pass  # the decoder of whole events has the better message
    return getattr(decode_event(offset, value).event, "topic", None)


def _undecodable(offset: int, value: bytes, why: str) -> EventDecodeError:
    try:
        version, _, _, event = _raw_decoder.decode(value)
    except UNREADABLE:
        return EventDecodeError(offset, f"not an event: {why}")
    kind = event[0] if event else None
    if version != EVENT_VERSION:
        why = f"written in event version {version}; this release reads up to {EVENT_VERSION}"
    elif any(kind == known.__name__ for known in EVENT_TYPES):
        why = f"malformed event of type {kind!r}: {why}"
    else:
        why = f"unknown event type {kind!r}"
    return EventDecodeError(offset, why)


HIDDEN = b"(hidden)"
"""Replaces a secret."""
_SECRETS = (
    "ssl.key.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.password",
    "ssl.truststore.certificates",
    "ssl.truststore.password",
    "sasl.jaas.config",
)
"""Suffixes of the names of dynamic broker configs that Kafka treats as secrets."""


def without_secrets(event: Event) -> Event:
    """The event with its secrets hidden; the same object if it has none."""
    if isinstance(event, ScramCredentialSet):
        return replace(event, salt=HIDDEN, stored_key=HIDDEN, server_key=HIDDEN)
    if isinstance(event, LoginSecretDrawn):
        return replace(event, secret=HIDDEN)
    if isinstance(event, ResourceConfigsChanged):
        configs = configs_without_secrets(event.configs)
        before = None if event.before is None else configs_without_secrets(event.before)
        unchanged = (configs, before) == (event.configs, event.before)
        return event if unchanged else replace(event, configs=configs, before=before)
    return event


def configs_without_secrets(configs: Configs) -> Configs:
    return tuple((name, HIDDEN.decode() if name.endswith(_SECRETS) else value) for name, value in configs)


def value_without_secrets(record: Recorded, value: bytes) -> bytes:
    """The canonical bytes of an event with its secrets hidden; `value` itself if it has none."""
    masked = without_secrets(record.event)
    return value if masked is record.event else encode_event(record.at_ms, record.cause, masked)
