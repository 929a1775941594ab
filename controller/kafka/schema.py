"""The layout of each version of a message on the wire, and of a record of the metadata log.

schemas.json has Kafka's own schemas of these messages (Apache License 2.0), one a line, in the notation of the files
`common/message/*.json` in Kafka's jars; `python -m tests.kafka.codec.schemas` writes it. A schema has all versions of a
message. This module turns one version into a `Layout`: the fields in the order of the wire, each with its kind. Kafka
4.0 dropped the oldest versions of some APIs (KIP-896), which kafka-go and old settings of sarama still send; the
schemas still describe them.

A message class of Topicwright covers all versions of an entity. It has Kafka's name, unless `RENAMED` of `api_keys` has
another. `generate` writes the classes; `codec` compiles layouts to readers and writers.
"""

from __future__ import annotations

import re
import struct
import typing
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, Final, Literal

import msgspec

from controller.kafka.api_keys import RENAMED

Direction = Literal["request", "response"]

Kind = Literal["int8", "int16", "int32", "int64", "uint16", "uint32", "bool", "float64", "uuid", "string", "bytes"]

CODES: Final[dict[Kind, str]] = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "bool": "?",
    "float64": "d",
    "uuid": "16s",
}
"""`struct` codes of kinds of fixed size."""

SIZES: Final[dict[Kind, int]] = {kind: struct.calcsize(f">{code}") for kind, code in CODES.items()}
"""Bytes of each kind of fixed size."""

ZERO_UUID: Final = bytes(16)
"""Kafka's "no id": the encoding of a missing topic id, and the default of fields of type uuid."""


class Field(msgspec.Struct, frozen=True):
    """One field of an entity in one version.

    `kind` is None for a nested entity, whose layout is then `entity`. A field with a `tag` is not written if it has its
    default.
    """

    name: str
    kind: Kind | None
    entity: Layout | None = None
    is_array: bool = False
    nullable: bool = False
    tag: int | None = None


class Layout(msgspec.Struct, frozen=True):
    """An entity in one version: its message class, and its fields in the order of the wire."""

    message: Any
    flexible: bool
    fields: tuple[Field, ...]
    tagged: tuple[Field, ...]

    @property
    def size_min(self) -> int:
        """The smallest encoded size in bytes; limits the number of elements that the rest of a frame may announce."""
        return sum(map(self._field_size_min, self.fields)) + (1 if self.flexible else 0)

    def _field_size_min(self, field: Field) -> int:
        if field.is_array:
            return 1 if self.flexible else 4
        if field.kind is None:
            return 1 if field.nullable or field.entity is None else field.entity.size_min
        if field.kind in SIZES:
            return SIZES[field.kind]
        return 1 if self.flexible else 2 if field.kind == "string" else 4


_KINDS: Final[Mapping[str, Kind]] = {**{kind: kind for kind in typing.get_args(Kind)}, "records": "bytes"}


class FieldSchema(msgspec.Struct, frozen=True, rename="camel"):
    """A field of a message, as in Kafka's schema; `default` is JSON."""

    name: str
    type: str
    versions: str
    nullable_versions: str = "none"
    tag: int | None = None
    default: str | None = None
    fields: tuple[FieldSchema, ...] = ()

    @property
    def own_name(self) -> str:
        """The name of the field in a message class: `topic_id` for Kafka's `TopicId`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).lower()

    @property
    def is_array(self) -> bool:
        return self.type.startswith("[]")

    @property
    def entity(self) -> str:
        """Kafka's name of the nested entity, if `kind` is None."""
        return self.type.removeprefix("[]")

    @property
    def kind(self) -> Kind | None:
        return _KINDS.get(self.entity)


class MessageSchema(msgspec.Struct, frozen=True, rename="camel"):
    """A message in all its versions. `api_key` is the key of an API, or of a record; control records have none."""

    name: str
    type: Literal["request", "response", "metadata", "data"]
    fields: tuple[FieldSchema, ...]
    flexible_versions: str = "none"
    valid_versions: str = "0"
    """Of a record; `ApiKey` has the versions of APIs."""
    api_key: int | None = None
    about: str = ""

    @property
    def max_version(self) -> int:
        return int(self.valid_versions.rpartition("-")[2])


_TEXT: Final = files(__package__).joinpath("schemas.json").read_bytes()
SCHEMAS: Final[Mapping[str, MessageSchema]] = {
    each.name: each for each in msgspec.json.decode(_TEXT, type=tuple[MessageSchema, ...])
}
RECORDS: Final = {name: each for name, each in SCHEMAS.items() if each.type in ("metadata", "data")}
"""The records of the metadata log by name; also the principal in Envelope, which is encoded like a control record."""


def layout_of(name: str, version: int, classes: Mapping[str, Any]) -> Layout:
    """The layout of a message in one version. `classes` are the message classes by name."""
    schema, names = SCHEMAS[name], RENAMED.get(name, {})
    flexible = has_version(schema.flexible_versions, version)

    def layout(entity: str, fields: Sequence[FieldSchema]) -> Layout:
        there = [field(each) for each in fields if has_version(each.versions, version)]
        tagged = sorted((each for each in there if each.tag is not None), key=lambda each: each.tag or 0)
        untagged = tuple(each for each in there if each.tag is None)
        return Layout(classes[names.get(entity, entity)], flexible, untagged, tuple(tagged))

    def field(each: FieldSchema) -> Field:
        entity = layout(each.entity, each.fields) if each.kind is None else None
        nullable = has_version(each.nullable_versions, version)
        return Field(each.own_name, each.kind, entity, each.is_array, nullable, each.tag)

    return layout(name, schema.fields)


def has_version(versions: str, version: int) -> bool:
    """True if a range of versions as in Kafka's schemas (`none`, `3`, `0-4`, `2+`) has this one."""
    if versions == "none":
        return False
    first, dash, last = versions.partition("-")
    if dash:
        return int(first) <= version <= int(last)
    return version >= int(first[:-1]) if first.endswith("+") else version == int(first)
