"""Metadata records to bytes and back, by the codec that reads and writes Kafka's requests.

The value of a record in the metadata log is a frame version (1), the record's key and version as varints, and the
record itself (`MetadataRecordSerde` in Kafka).
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Final

import msgspec

from controller.brokers.kraft.metadata_records.table import RECORDS
from controller.kafka.codec_primitives import encode_uvarint, read_uvarint
from controller.kafka.codec_reader import READ_FAILURES, Reader
from controller.kafka.codec_schema import SIZES, Field, Kind, Layout, unwrap
from controller.kafka.codec_writer import Write, compile_writer

FRAME_VERSION: Final = 1
MetadataRecord = Any
"""A value of one of the classes of `RECORDS`."""


class UnknownRecord(msgspec.Struct, frozen=True):
    """A record that this release does not know. It is kept as it is."""

    value: bytes


class MalformedRecord(Exception):
    """Bytes that are not the metadata record that they claim to be; says which, and why."""


def encode_record(record: MetadataRecord) -> bytes:
    """The value of a record in the metadata log."""
    if isinstance(record, UnknownRecord):
        return record.value
    kind: Any = type(record)
    parts = [_head(kind)]
    _writer(kind)(record, parts)
    return b"".join(parts)


def decode_record(value: bytes) -> MetadataRecord:
    """The record in a value of the metadata log; `UnknownRecord` for a newer one. Raises MalformedRecord."""
    try:
        frame_version, offset = read_uvarint(value, 0)
        key, offset = read_uvarint(value, offset)
        version, offset = read_uvarint(value, offset)
    except READ_FAILURES as failure:
        raise MalformedRecord(f"metadata record: {failure}") from None
    kind = RECORDS.get((key, version))
    if frame_version != FRAME_VERSION or kind is None:
        return UnknownRecord(value)
    reader = _reader(kind)
    try:
        return reader.read(value, offset, len(value))
    except READ_FAILURES as failure:
        raise MalformedRecord(reader.explain(failure)) from None


@functools.cache
def _head(kind: Any) -> bytes:
    return b"".join(encode_uvarint(number) for number in (FRAME_VERSION, kind.__api_key__, kind.__version__))


@functools.cache
def _writer(kind: Any) -> Write:
    return compile_writer(_layout(kind), kind.__name__)


@functools.cache
def _reader(kind: Any) -> Reader:
    return Reader(_layout(kind), kind.__name__)


@functools.cache
def _layout(kind: Any) -> Layout:
    fields = [_field(field) for field in dataclasses.fields(kind)]
    return Layout(
        message=kind,
        flexible=kind.__flexible__,
        fields=tuple(field for field in fields if field.tag is None),
        tagged=tuple(sorted((field for field in fields if field.tag is not None), key=lambda field: field.tag or 0)),
    )


def _field(field: dataclasses.Field[Any]) -> Field:
    type_, nullable, is_array = unwrap(field.type)
    is_entity = dataclasses.is_dataclass(type_)
    kind: Kind | None = None if is_entity else field.metadata["kafka_type"]
    assert is_entity or kind in SIZES or kind in ("string", "bytes"), f"kind of {field.name}"
    return Field(
        name=field.name,
        kind=kind,
        entity=_layout(type_) if is_entity else None,
        is_array=is_array,
        nullable=nullable,
        tag=field.metadata.get("tag"),
        default=field.default,
    )
