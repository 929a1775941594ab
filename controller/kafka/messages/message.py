"""Parts of all Kafka messages: the base classes, null values, and pre-encoded arrays."""

from typing import Any, Final

import msgspec

OPERATIONS_OMITTED: Final = -(2**31)
"""The value of the authorized operations if the client did not request them (KIP-430)."""

BROKER_ENDPOINTS, CONTROLLER_ENDPOINTS = 1, 2
"""Endpoint types (KIP-919)."""


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of every request, response and nested entity.

    A field that a version lacks is not written, and has its default when read. Defaults are those of Kafka's schema,
    but a nullable array that a handler does not set in a request is null.

    Messages are immutable and have no cycles, so the garbage collector need not track them (`gc=False`).
    """


class MetadataRecord(Message, frozen=True, kw_only=True):
    """Base of the records of the metadata log. A class's `tag` is Kafka's key of the record."""

    version: int = 0
    """The version of the record to write, or of the record that was read."""


class UnknownRecord(MetadataRecord, frozen=True, kw_only=True):
    """A record unknown to this release, stored unchanged."""

    value: bytes


class Encoded(tuple[Any, ...]):
    """An array whose elements are encoded already, accepted wherever a message has an array of entities.

    The bytes of an element belong to one API and version: make them with `encode_element` of
    `controller.kafka.codec.codec`, never by hand. For writing only: the type checker sees a tuple of anything.
    """
