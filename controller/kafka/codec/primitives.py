"""Helpers of the compiled readers and writers of Kafka messages: varints, strings, tagged fields, decoding errors."""

import functools
import struct
from collections.abc import Callable
from typing import Any, Final

UVARINT_BYTES_MAX: Final = 5
"""Kafka's unsigned varints hold 32 bits."""

STRING_BYTES_MAX: Final = 0x7FFF
"""Kafka's limit, also for strings whose length is a varint."""

ELEMENTS_MAX: Final = 50_000
"""The most elements in all arrays of a request together; eight numbers count as one element. Bounds the time and
memory for a request. Kafka has no such limit, but writes at most 10,000 records for a request."""

TAGS_MAX: Final = 1000
"""The most unknown tagged fields in one section, far more than any version has. Headers are read on the event loop."""


class MalformedRequest(Exception):
    """Bytes that cannot be decoded; the text names the API, the version and the field."""


class Malformation(Exception):
    """The reason why bytes are malformed, without the field; `read_request` adds the field in a MalformedRequest."""


@functools.lru_cache(maxsize=1 << 14)
def encode_uvarint(number: int) -> bytes:
    """An unsigned varint (protobuf, KIP-482). Cached, because nearly all are lengths of short texts and arrays."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def int32(number: int) -> bytes:
    """A four-byte integer, big-endian: the length of an array before KIP-482."""
    return number.to_bytes(4, "big", signed=True)


def legacy_string(value: str) -> bytes:
    """A string with a two-byte length, as before KIP-482; truncated to `STRING_BYTES_MAX`."""
    data = value.encode()
    if len(data) > STRING_BYTES_MAX:
        data = cut(data)
    return len(data).to_bytes(2, "big") + data


def cut(text: bytes) -> bytes:
    """Truncate to `STRING_BYTES_MAX`, at a character boundary."""
    return text[:STRING_BYTES_MAX].decode(errors="ignore").encode()


def read_uvarint(buffer: bytes, offset: int) -> tuple[int, int]:
    """The varint at `offset` and the offset after it.

    Raises IndexError where the buffer ends early, Malformation for more than 32 bits.
    """
    number = shift = 0
    for end in range(offset + 1, offset + UVARINT_BYTES_MAX + 1):
        byte = buffer[end - 1]
        number |= (byte & 127) << shift
        if byte < 128:
            return number, end
        shift += 7
    raise Malformation("a varint of more than five bytes")


def read_string_length(buffer: bytes, offset: int) -> tuple[int, int]:
    """The length of a compact string, -1 for null, and the offset after it. Raises as `read_uvarint` does, and
    Malformation for a string longer than Kafka accepts.
    """
    number, offset = read_uvarint(buffer, offset)
    if number - 1 > STRING_BYTES_MAX:
        raise Malformation(f"a string of {number - 1} bytes, at most {STRING_BYTES_MAX} allowed")
    return number - 1, offset


def skip_tags(buffer: bytes, offset: int, limit: int) -> int:
    """The offset after a section of tagged fields, none of which is known (KIP-482)."""
    count, offset = read_uvarint(buffer, offset)
    if count > TAGS_MAX:
        raise Malformation(f"{count} tagged fields, at most {TAGS_MAX} allowed")
    last = -1
    for _ in range(count):
        tag, offset = read_uvarint(buffer, offset)
        if tag <= last:
            raise out_of_order(tag, last)
        last = tag
        size, offset = read_uvarint(buffer, offset)
        offset += size
        if offset > limit:
            raise too_long(size, limit - offset + size)
    return offset


def out_of_order(tag: int, last: int) -> Malformation:
    """The error for a repeated tag, or a tag after a higher one (KIP-482)."""
    return Malformation(f"tag {tag} after tag {last}")


def is_null() -> Malformation:
    return Malformation("null, which this version does not allow")


def too_long(announced: int, left: int) -> Malformation:
    """The error for a length beyond the remaining bytes; a negative length is a null."""
    return is_null() if announced < 0 else Malformation(f"{announced} bytes announced, {left} left")


def too_many(announced: int, left: int) -> Malformation:
    """The error for an array with more elements than the remaining bytes can hold; found before memory is allocated."""
    return is_null() if announced < 0 else Malformation(f"{announced} elements announced, {left} bytes left")


@functools.lru_cache(maxsize=1024)
def array_unpacker(code: str, count: int) -> Callable[[bytes, int], tuple[Any, ...]]:
    # A count before the code makes a format of 136 bytes, whatever the count. Repeated, the code would take 32 bytes
    # each time, and formats are cached for every length that clients send.
    return struct.Struct(f">{count}{code}").unpack_from


@functools.lru_cache(maxsize=1024)
def array_packer(code: str, count: int) -> Callable[..., bytes]:
    return struct.Struct(f">{count}{code}").pack


def uuids_at(buffer: bytes, start: int, end: int) -> tuple[bytes, ...]:
    """The UUIDs between two offsets; struct has no repeat count for `16s`."""
    return tuple([buffer[offset : offset + 16] for offset in range(start, end, 16)])
