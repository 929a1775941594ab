"""Parts of all messages: the base class, null values, entities used by several APIs, and pre-encoded arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec

ZERO_UUID: Final = bytes(16)
"""Kafka's "no id": how a missing topic id is written, and what a field without one holds."""

OPERATIONS_OMITTED: Final = -(2**31)
"""Authorized operations that were not requested (KIP-430)."""

_Partition = TypeVar("_Partition")


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of every request, response and nested entity.

    One class stands for all versions of an entity and declares the fields that are used, named as in Kafka's schema in
    snake_case. A field that a version lacks is skipped when written and has its default when read; one that is not
    declared is skipped when read and written with Kafka's default. Defaults are those of Kafka's schema, except that a
    nullable string left out is null. `Message` itself stands for an entity of which nothing is used.

    Immutable values without cycles, so the garbage collector need not look at them (`gc=False`).
    """


class Outcome(Message, frozen=True, kw_only=True):
    """The error of a response or of a part of it, 0 for none, and its message."""

    error_code: int = 0
    error_message: str | None = None


class Listener(Message, frozen=True, kw_only=True):
    """An endpoint of a broker or a controller, by listener name. The annotations give the encoding in metadata records,
    which have no schema in kio."""

    name: Annotated[str, "string"] = ""
    host: Annotated[str, "string"] = ""
    port: Annotated[int, "uint16"] = 0
    security_protocol: Annotated[int, "int16"] = 0


class NodeEndpoint(Message, frozen=True, kw_only=True):
    """A broker in Metadata, or the leader that a response of the quorum names (KIP-853)."""

    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


class LeaderIdAndEpoch(Message, frozen=True, kw_only=True):
    leader_id: int = -1
    leader_epoch: int = -1


class Feature(Message, frozen=True, kw_only=True):
    """The levels of a feature that a broker or controller supports; annotated like `Listener`."""

    name: Annotated[str, "string"] = ""
    min_supported_version: Annotated[int, "int16"] = 0
    max_supported_version: Annotated[int, "int16"] = 0


class TopicByName(Message, Generic[_Partition], frozen=True, kw_only=True):
    """Entries for partitions of a topic."""

    name: str = ""
    partitions: tuple[_Partition, ...] = ()


class TopicById(Message, Generic[_Partition], frozen=True, kw_only=True):
    """Entries for partitions of a topic."""

    topic_id: bytes = ZERO_UUID
    partitions: tuple[_Partition, ...] = ()


class Encoded(tuple[Any, ...]):
    """An array whose elements are encoded already, accepted wherever a message has an array of entities.

    Holds the parts (bytes) that make up the elements, without the array's length, which is written from
    `element_count`. The bytes belong to one API and version: make them with `encode_array` or `encode_element` of
    `controller.kafka.codec.codec`, never by hand. To the type checker it is a tuple of anything; for writing only.
    """

    element_count: int

    def __new__(cls, parts: Iterable[bytes], element_count: int | None = None) -> Encoded:
        """`element_count` left out, each part is one element."""
        self = super().__new__(cls, parts)
        self.element_count = len(self) if element_count is None else element_count
        return self
