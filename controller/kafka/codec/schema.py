"""The layout of each version on the wire, taken from kio's entity classes.

kio (PyPI) generates one dataclass for each entity and version from Kafka's own schema. This module turns such a class
and our `Message` into a `Layout`: the fields in the order of the wire, each with its kind, under our names. Versions
that kio does not have come from `controller.kafka.codec.schema_own`, whose classes are written the same way.

`reader` and `writer` compile layouts to functions.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import re
import sys
import types
import typing
from typing import Any, Final, Literal

import msgspec

from controller.kafka.messages import APIS, Message

Direction = Literal["request", "response"]

Kind = Literal["int8", "int16", "int32", "int64", "uint16", "uint32", "bool", "float64", "uuid", "string", "bytes"]

_KINDS: Final[dict[str, Kind]] = {
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "uint16": "uint16",
    "uint32": "uint32",
    "bool": "bool",
    "float64": "float64",
    "uuid": "uuid",
    "string": "string",
    "bytes": "bytes",
    "records": "bytes",
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}
"""kio's field types and their encoding. Durations and times are milliseconds on the wire."""

_MILLISECONDS: Final = ("timedelta", "datetime")

SIZES: Final[dict[Kind, int]] = {
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint16": 2,
    "uint32": 4,
    "bool": 1,
    "float64": 8,
    "uuid": 16,
}
"""Bytes of each kind of fixed size."""


class Field(msgspec.Struct, frozen=True):
    """One field of an entity in one version.

    `kind` is None for an entity, whose layout is then `entity`. `default` is the value left unwritten if `tag` is set.
    """

    name: str
    kind: Kind | None
    entity: Layout | None
    is_array: bool
    nullable: bool
    tag: int | None
    default: object


class Layout(msgspec.Struct, frozen=True):
    """An entity in one version: the message that holds it, and its fields in the order of the wire."""

    message: type[Message]
    flexible: bool
    fields: tuple[Field, ...]
    tagged: tuple[Field, ...]

    @property
    def size_min(self) -> int:
        """The smallest encoding of this entity; bounds how many fit into the rest of a frame."""
        return sum(map(self._field_size_min, self.fields)) + (1 if self.flexible else 0)

    def _field_size_min(self, field: Field) -> int:
        if field.is_array:
            return 1 if self.flexible else 4
        if field.kind is None:
            return 1 if field.nullable or field.entity is None else field.entity.size_min
        if field.kind in SIZES:
            return SIZES[field.kind]
        return 1 if self.flexible else 2 if field.kind == "string" else 4


class Schema(msgspec.Struct, frozen=True):
    """A message in one version; `flexible_header` is True if its header has tagged fields."""

    layout: Layout
    flexible_header: bool


def load_schema(api_key: int, version: int, direction: Direction) -> Schema:
    """The schema of one message; `api_key` and `version` must be in the table of `controller.kafka.messages`."""
    api = APIS[api_key]
    assert api.min_version <= version <= api.max_version, (api.name, version)
    entity = load_entity(api_key, version, direction)
    message = api.request if direction == "request" else api.response
    header_version = entity.__header_schema__.__version__
    return Schema(
        layout=_layout(entity, message), flexible_header=header_version == (2 if direction == "request" else 1)
    )


def load_entity(api_key: int, version: int, direction: Direction) -> Any:
    """kio's class of a message, or that of `schema_own`."""
    api_name = APIS[api_key].name
    class_name = f"{api_name}{direction.capitalize()}"
    folder = re.sub(r"(?<!^)(?=[A-Z])", "_", api_name).lower()
    _import_kio()
    try:
        # By path, not through kio.index, which takes 0.2 s to import.
        module = importlib.import_module(f"kio.schema.{folder}.v{version}.{direction}")
    except ModuleNotFoundError:
        module = importlib.import_module("controller.kafka.codec.schema_own")
        class_name += f"V{version}"
    return getattr(module, class_name)


@functools.cache
def _import_kio() -> None:
    """Import kio's types without hypothesis, if it is installed: registering its strategies would delay the first
    connection by half a second."""
    if "hypothesis" not in sys.modules:
        sys.modules["hypothesis"] = None  # type: ignore[assignment]
        try:
            importlib.import_module("kio.static.primitive")
        finally:
            sys.modules.pop("hypothesis", None)


def _layout(entity: Any, message: type[Message]) -> Layout:
    ours = {field.name: field for field in msgspec.structs.fields(message)}
    fields = [_field(field, ours) for field in dataclasses.fields(entity)]
    return Layout(
        message=message,
        flexible=entity.__flexible__,
        fields=tuple(field for field in fields if field.tag is None),
        tagged=tuple(sorted((field for field in fields if field.tag is not None), key=lambda field: field.tag or 0)),
    )


def _field(kio_field: dataclasses.Field[Any], ours: dict[str, msgspec.structs.FieldInfo]) -> Field:
    kio_kind = kio_field.metadata.get("kafka_type", "")
    own = ours[kio_field.name + "_ms" if kio_kind.startswith(_MILLISECONDS) else kio_field.name]
    type_, nullable, is_array = unwrap(kio_field.type)
    is_entity = dataclasses.is_dataclass(type_)
    return Field(
        name=own.name,
        kind=None if is_entity else _KINDS[kio_kind],
        entity=_layout(type_, unwrap(own.type)[0]) if is_entity else None,
        is_array=is_array,
        # kio reads the zero id and the time -1 as None; here they are plain values.
        nullable=nullable and kio_kind != "uuid" and not kio_kind.startswith("datetime"),
        tag=kio_field.metadata.get("tag"),
        default=own.default,
    )


def unwrap(type_: Any) -> tuple[Any, bool, bool]:
    """Returns the inner type, and True or False for nullable and for array."""
    nullable = is_array = False
    if isinstance(type_, types.UnionType):
        (type_,) = (arg for arg in typing.get_args(type_) if arg is not types.NoneType)
        nullable = True
    if typing.get_origin(type_) is tuple:
        type_ = typing.get_args(type_)[0]
        is_array = True
    return type_, nullable, is_array
