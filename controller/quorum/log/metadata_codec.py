"""Encodes the records of `metadata_records` to bytes and decodes them, with the codec of Kafka's requests.

The value of a record in the metadata log is a frame version (1), the record's key and version as varints, and the
record itself (`MetadataRecordSerde` in Kafka).
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar

import msgspec

from controller.kafka.codec.primitives import encode_uvarint, read_uvarint
from controller.kafka.codec.reader import READ_FAILURES, Reader
from controller.kafka.codec.writer import Write, compile_writer
from controller.kafka.messages import Message
from controller.kafka.schema import Field, Kind, Layout
from controller.quorum.log.metadata_records import RECORDS, ControlMessage, MetadataRecord, OnWire, UnknownRecord
from events.errors import UserError

M = TypeVar("M", bound=Message)

FRAME_VERSION: Final = 1
_KINDS: Final[tuple[Kind, ...]] = typing.get_args(Kind)


class MalformedRecord(UserError):
    """Bytes that do not encode the expected metadata record; the message names the record and the reason."""


def encode_record(record: MetadataRecord) -> bytes:
    return record.value if isinstance(record, UnknownRecord) else _encode(record, record.version)


def decode_record(value: bytes) -> MetadataRecord:
    """Decode a record; `UnknownRecord` for a newer one. Raises MalformedRecord."""
    try:
        frame_version, offset = read_uvarint(value, 0)
        key, offset = read_uvarint(value, offset)
        version, offset = read_uvarint(value, offset)
    except READ_FAILURES as failure:
        raise MalformedRecord(f"metadata record: {failure}") from None
    kind = RECORDS.get(key)
    if frame_version != FRAME_VERSION or kind is None or version > newest_version(kind):
        return UnknownRecord(value=value)
    record = _decode(kind, version, value, offset)
    return msgspec.structs.replace(record, version=version) if version else record


def encode_control(message: ControlMessage) -> bytes:
    return _encode(message, 0)


def decode_control(kind: type[M], value: bytes) -> M:
    """Decode a control record. Raises MalformedRecord."""
    return _decode(kind, 0, value, 0)


def _encode(message: Message, version: int) -> bytes:
    head, write = _writer(type(message), version)
    parts = [head]
    write(message, parts)
    return b"".join(parts)


def _decode(kind: type[M], version: int, value: bytes, offset: int) -> M:
    reader = _reader(kind, version)
    try:
        message, _ = reader.read(value, offset, len(value), len(value))
    except READ_FAILURES as failure:
        raise MalformedRecord(reader.explain(failure)) from None
    assert isinstance(message, kind), "that is what the layout makes"
    return message


@functools.cache
def newest_version(kind: type[MetadataRecord]) -> int:
    """The newest version of a record: the first with all its fields."""
    return max((_on_wire(each).since for each in _types(kind).values()), default=0)


@functools.cache
def layout(kind: type[Message], version: int) -> Layout:
    """The layout of a record, or of a part of one, in a version."""
    defaults = {each.name: each.default for each in msgspec.structs.fields(kind)}
    fields = [
        _field(name, type_, defaults[name], version)
        for name, type_ in _types(kind).items()
        if _on_wire(type_).since <= version
    ]
    return Layout(
        message=kind,
        flexible=True,
        fields=tuple(field for field in fields if field.tag is None),
        tagged=tuple(sorted((field for field in fields if field.tag is not None), key=lambda field: field.tag or 0)),
    )


@functools.cache
def _writer(kind: type[Message], version: int) -> tuple[bytes, Write]:
    """The bytes before a message, and the function that writes it. Control records have no frame."""
    frame = (FRAME_VERSION, int(kind.__struct_config__.tag or 0), version) if issubclass(kind, MetadataRecord) else ()
    return b"".join(map(encode_uvarint, frame)), compile_writer(layout(kind, version), f"{kind.__name__}V{version}")


@functools.cache
def _reader(kind: type[Message], version: int) -> Reader:
    return Reader(layout(kind, version), f"{kind.__name__}V{version}")


def _types(kind: type[Message]) -> Mapping[str, Any]:
    """The types of a record's fields, in order. Only control records encode their version as a field."""
    types = typing.get_type_hints(kind, include_extras=True)
    if issubclass(kind, MetadataRecord):
        del types["version"]
    return types


def _on_wire(type_: Any) -> OnWire:
    extras = getattr(type_, "__metadata__", ())
    return next((each for each in extras if isinstance(each, OnWire)), OnWire())


def _field(name: str, type_: Any, default: Any, version: int) -> Field:
    tag = _on_wire(type_).tag
    kind: Kind | None = None
    nullable = is_array = False
    while not isinstance(type_, type):  # Annotated, a tuple, or one of them or None
        origin = typing.get_origin(type_)
        if origin is Annotated:
            kind = next((each for each in type_.__metadata__ if each in _KINDS), kind)
            type_ = type_.__origin__
            continue
        is_array = is_array or origin is tuple
        nullable = nullable or origin is not tuple
        type_ = typing.get_args(type_)[0]
    entity = layout(type_, version) if kind is None else None
    return Field(name=name, kind=kind, entity=entity, is_array=is_array, nullable=nullable, tag=tag, default=default)
