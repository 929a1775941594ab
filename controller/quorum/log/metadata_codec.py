"""Encodes the records of the metadata log to bytes and decodes them, with the codec of Kafka's requests.

The value of a record in the metadata log is a frame version (1), the record's key and version as varints, and the
record itself (`MetadataRecordSerde` in Kafka). As with requests, one class serves all versions of a record. Control
records, which belong to the quorum (KIP-595, KIP-630, KIP-853), have no frame.
"""

import functools
from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from controller.kafka.codec.primitives import encode_uvarint, read_uvarint
from controller.kafka.codec.reader import READ_FAILURES, Reader
from controller.kafka.codec.writer import Write, compile_writer
from controller.kafka.messages import CLASSES, Message
from controller.kafka.messages.message import MetadataRecord, UnknownRecord
from controller.kafka.schema import RECORDS, Layout, layout_of
from events.errors import UserError

M = TypeVar("M", bound=Message)

FRAME_VERSION: Final = 1
_KINDS: Final[Mapping[int | None, str]] = {each.api_key: name for name, each in RECORDS.items()}


class MalformedRecord(UserError):
    """Bytes that do not encode the expected metadata record; the message names the record and the reason."""


def encode_record(record: Message) -> bytes:
    """Encode a record or a control record."""
    if isinstance(record, UnknownRecord):
        return record.value
    head, write = _writer(type(record), record.version if isinstance(record, MetadataRecord) else 0)
    parts = [head]
    write(record, parts)
    return b"".join(parts)


def decode_record(value: bytes) -> MetadataRecord:
    """Decode a record; `UnknownRecord` for a newer one. Raises MalformedRecord."""
    try:
        frame_version, offset = read_uvarint(value, 0)
        key, offset = read_uvarint(value, offset)
        version, offset = read_uvarint(value, offset)
    except READ_FAILURES as failure:
        raise MalformedRecord(f"metadata record: {failure}") from None
    name = _KINDS.get(key)
    if frame_version != FRAME_VERSION or name is None or version > RECORDS[name].max_version:
        return UnknownRecord(value=value)
    record = decode_control(CLASSES[name], value, version, offset)
    assert isinstance(record, MetadataRecord), "it has a key"
    return msgspec.structs.replace(record, version=version) if version else record


def decode_control(kind: type[M], value: bytes, version: int = 0, offset: int = 0) -> M:
    """Decode a control record, which is all of `value`, or another record, which begins at `offset`. Raises
    MalformedRecord."""
    reader = _reader(kind, version)
    try:
        message, _ = reader.read(value, offset, len(value), len(value))
    except READ_FAILURES as failure:
        raise MalformedRecord(reader.explain(failure)) from None
    assert isinstance(message, kind), "that is what the layout makes"
    return message


def newest_version(kind: type[MetadataRecord]) -> int:
    return RECORDS[kind.__name__].max_version


def layout(kind: type[Message], version: int) -> Layout:
    """The layout of a record in a version."""
    return layout_of(kind.__name__, version, CLASSES)


@functools.cache
def _writer(kind: type[Message], version: int) -> tuple[bytes, Write]:
    """The bytes before a message, and the function that writes it."""
    key = RECORDS[kind.__name__].api_key
    frame = () if key is None else (FRAME_VERSION, key, version)
    return b"".join(map(encode_uvarint, frame)), compile_writer(layout(kind, version), f"{kind.__name__}V{version}")


@functools.cache
def _reader(kind: type[Message], version: int) -> Reader:
    return Reader(layout(kind, version), f"{kind.__name__}V{version}")
