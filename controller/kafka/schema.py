"""The layout of each version of a message on the wire, and of a record of the metadata log.

kio (PyPI) generates one dataclass for each entity and version from Kafka's own schema. This module turns such a class
into a `Layout`: the fields in the order of the wire, each with its kind. `OWN` has the versions that kio lacks, each as
the changes to a version that kio has. kio has the control records of a quorum, but not the records of metadata: their
schemas are in metadata_records.json, one record a line, in the notation of `common/metadata/*.json` in Kafka's jars.

A message class of Topicwright covers all versions of an entity. It has kio's name, unless `RENAMED` of `api_keys` has
another. `generate` writes the classes; `codec` compiles layouts to readers and writers.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
import re
import struct
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from importlib.resources import files
from typing import Any, ClassVar, Final, Literal

import msgspec

from controller.kafka.api_keys import RENAMED, ApiKey, Family

Direction = Literal["request", "response"]

Kind = Literal["int8", "int16", "int32", "int64", "uint16", "uint32", "bool", "float64", "uuid", "string", "bytes"]

_KINDS: Final[Mapping[str, Kind]] = {
    **{kind: kind for kind in typing.get_args(Kind)},
    "records": "bytes",
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}
"""kio's field types and their encoding. Durations and times are milliseconds on the wire."""

_MILLISECONDS: Final = ("timedelta", "datetime")

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

    `kind` is None for a nested entity, whose layout is then `entity`. `default` is Kafka's default; for an entity it
    has the pairs of its fields and values. A field with a `tag` is not written if it has its default.
    """

    name: str
    kind: Kind | None
    entity: Layout | None = None
    is_array: bool = False
    nullable: bool = False
    tag: int | None = None
    default: Any = None


class Layout(msgspec.Struct, frozen=True):
    """An entity in one version: its message class (from `ClassOf`), and its fields in the order of the wire."""

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


class Schema(msgspec.Struct, frozen=True):
    """A message in one version; `flexible_header` is True if its header has tagged fields."""

    layout: Layout
    flexible_header: bool


Changes = Mapping[str, tuple[Field, ...]]
"""By the name of a field in kio's version: the fields that replace it."""


def _without(*names: str) -> Changes:
    return dict.fromkeys(names, ())


_API_VERSIONS_5: Final[Changes] = {
    "client_software_version": (
        Field("client_software_version", "string", default=""),
        Field("cluster_id", "string", nullable=True),
        Field("node_id", "int32", default=-1),
    )
}

OWN: Final[Mapping[tuple[int, int], tuple[ApiKey, int, Changes, Changes]]] = {
    (ApiKey.CREATE_TOPICS, 0): (
        ApiKey.CREATE_TOPICS,
        2,
        _without("validate_only"),
        _without("throttle_time_ms", "error_message"),
    ),
    (ApiKey.CREATE_TOPICS, 1): (ApiKey.CREATE_TOPICS, 2, {}, _without("throttle_time_ms")),
    (ApiKey.DELETE_TOPICS, 0): (ApiKey.DELETE_TOPICS, 1, {}, _without("throttle_time_ms")),
    (ApiKey.DESCRIBE_CONFIGS, 0): (
        ApiKey.DESCRIBE_CONFIGS,
        1,
        _without("include_synonyms"),
        {"config_source": (Field("is_default", "bool", default=False),), "synonyms": ()},
    ),
    (ApiKey.API_VERSIONS, 5): (ApiKey.API_VERSIONS, 4, _API_VERSIONS_5, {}),
    (ApiKey.UNREGISTER_CONTROLLER, 0): (
        ApiKey.UNREGISTER_BROKER,
        0,
        {"broker_id": (Field("controller_id", "int32", default=0),)},
        {},
    ),
}
"""The versions that kio lacks: for each a version that kio has, with the changes to its request and to its response.

Old versions: Kafka 4.0 dropped them (KIP-896), and kafka-go and old settings of sarama still send them. Sources: KIP-4
for CreateTopics and DeleteTopics v0, KIP-133 for DescribeConfigs v0, and the message definitions of Kafka 3.9. New
versions: those of Kafka 4.4 (KIP-1242, KIP-1312), from its message definitions; kio 0.6.5 does not have them.
"""


_APIS: Final[Mapping[int, ApiKey]] = {key: key for key in ApiKey}

ClassOf = Callable[[str], Any]
"""Returns the message class of a name; `generate` runs before the classes exist and uses the names themselves."""


def read_schema(api_key: int, version: int, direction: Direction, class_of: ClassOf) -> Schema:
    """The schema of one message in a version that the codec supports."""
    api = _APIS[api_key]
    assert api.min_version <= version <= api.max_version, (api.api_name, version)
    kio_api, kio_version, *changes = OWN.get((api_key, version), (api, version, {}, {}))
    entity = load_entity(kio_api, kio_version, direction)
    message = api.api_name + direction.capitalize()
    names = {kio_api.api_name + direction.capitalize(): message, **RENAMED.get(message, {})}
    is_request = direction == "request"
    return Schema(
        layout=_layout(entity, lambda name: class_of(names.get(name, name)), changes[0 if is_request else 1]),
        flexible_header=entity.__header_schema__.__version__ == (2 if is_request else 1),
    )


def load_entity(api_key: int, version: int, direction: Direction) -> Any:
    """kio's class of a message, for one version."""
    api = _APIS[api_key]
    return _kio_class(f"{api.name.lower()}.v{version}.{direction}", api.api_name + direction.capitalize())


def _kio_class(module: str, name: str) -> Any:
    _import_kio()
    # By path, not through kio.index, which takes 0.2 s to import.
    return getattr(importlib.import_module(f"kio.schema.{module}"), name)


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


def _layout(entity: Any, class_of: ClassOf, changes: Changes) -> Layout:
    fields: list[Field] = []
    for kio_field in dataclasses.fields(entity):
        is_time = kio_field.metadata.get("kafka_type", "").startswith(_MILLISECONDS)
        name = kio_field.name + "_ms" if is_time else kio_field.name
        fields += changes[name] if name in changes else (_field(name, kio_field, class_of, changes),)
    return _layout_of(class_of(entity.__name__), entity.__flexible__, fields)


def _layout_of(message: Any, flexible: bool, fields: Sequence[Field]) -> Layout:
    tagged = sorted((field for field in fields if field.tag is not None), key=lambda field: field.tag or 0)
    return Layout(message, flexible, tuple(field for field in fields if field.tag is None), tuple(tagged))


def _field(name: str, kio_field: dataclasses.Field[Any], class_of: ClassOf, changes: Changes) -> Field:
    kio_kind = kio_field.metadata.get("kafka_type", "")
    type_, nullable, is_array = unwrap(kio_field.type)
    kind = None if dataclasses.is_dataclass(type_) else _KINDS[kio_kind]
    entity = None if kind else _layout(type_, class_of, changes)
    # kio reads the zero id and the time -1 as None; here they are plain values.
    is_plain = not is_array and (kio_kind == "uuid" or kio_kind.startswith("datetime"))
    if kio_field.default is not dataclasses.MISSING:
        default = _written(kio_field.default, None if not is_plain else ZERO_UUID if kind == "uuid" else -1)
    elif is_array or entity is None:
        default = () if is_array else None if nullable and not is_plain else _ZEROS.get(kind, 0)
    else:
        default = None if nullable else tuple((each.name, each.default) for each in (*entity.fields, *entity.tagged))
    return Field(
        name=name,
        kind=kind,
        entity=entity,
        is_array=is_array,
        nullable=nullable and not is_plain,
        tag=kio_field.metadata.get("tag"),
        default=default,
    )


_ZEROS: Final[Mapping[Kind | None, Any]] = {
    "string": "",
    "bytes": b"",
    "uuid": ZERO_UUID,
    "bool": False,
    "float64": 0.0,
}


class RecordField(msgspec.Struct, frozen=True, rename="camel"):
    """A field of a record, as in Kafka's schema. `versions` begin with the first one that has the field."""

    name: str
    type: str
    versions: str
    nullable_versions: str = ""
    tag: int | None = None
    default: str | None = None
    fields: tuple[RecordField, ...] = ()


class Record(msgspec.Struct, frozen=True, rename="camel"):
    """A record of the metadata log. The schema of one without a key, a control record, is in kio."""

    name: str
    api_key: int | None = None
    valid_versions: str = "0"
    about: str = ""
    fields: tuple[RecordField, ...] = ()
    family: ClassVar[Family] = "records"
    min_version: ClassVar[int] = 0

    @property
    def max_version(self) -> int:
        return int(self.valid_versions.rpartition("-")[2])


_OF_KIO: Final = (
    "LeaderChangeMessage",
    "SnapshotHeaderRecord",
    "SnapshotFooterRecord",
    "KRaftVersionRecord",
    "VotersRecord",
    "DefaultPrincipalData",
)
_TEXT: Final = files(__package__).joinpath("metadata_records.json").read_bytes()
RECORDS: Final[Mapping[str, Record]] = {
    each.name: each for each in (*msgspec.json.decode(_TEXT, type=tuple[Record, ...]), *map(Record, _OF_KIO))
}
"""The records of the metadata log by name; also the principal in Envelope, which is encoded like a control record."""


def record_layout(name: str, version: int, class_of: ClassOf) -> Layout:
    """The layout of a record, which is always flexible, in one version."""
    record, names = RECORDS[name], RENAMED.get(name, {})

    def class_of_entity(entity: str) -> Any:
        return class_of(names.get(entity, entity))

    if record.api_key is None:
        return _layout(_kio_class(f"{_snake_case(name)}.v{version}.data", name), class_of_entity, {})
    return _record_layout(name, record.fields, version, class_of_entity)


def _record_layout(name: str, fields: Sequence[RecordField], version: int, class_of: ClassOf) -> Layout:
    there = (each for each in fields if int(each.versions.removesuffix("+")) <= version)
    return _layout_of(class_of(name), True, [_record_field(each, version, class_of) for each in there])


def _record_field(field: RecordField, version: int, class_of: ClassOf) -> Field:
    type_ = field.type.removeprefix("[]")
    is_array, kind = type_ != field.type, _KINDS.get(type_)
    empty = () if is_array else _ZEROS.get(kind, 0)
    return Field(
        name=_snake_case(field.name),
        kind=kind,
        entity=_record_layout(type_, field.fields, version, class_of) if kind is None else None,
        is_array=is_array,
        nullable=bool(field.nullable_versions),
        tag=field.tag,
        default=empty if field.default is None else msgspec.json.decode(field.default),
    )


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _written(default: Any, none: Any) -> Any:
    """kio's default as the value to encode, with `none` in place of None."""
    if isinstance(default, timedelta):
        return default // timedelta(milliseconds=1)
    if isinstance(default, enum.Enum):
        return default.value
    if dataclasses.is_dataclass(default):
        return tuple((field.name, getattr(default, field.name)) for field in dataclasses.fields(default))
    return none if default is None else default


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
