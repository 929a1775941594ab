"""Kafka's wire protocol: decodes frames to messages and encodes messages to frames.

Readers and writers are compiled from Kafka's schemas when a version is first used (see `schema`, `reader`, `writer`),
in a few milliseconds each. `server/protocol` reads requests and writes responses; our clients, tests and benchmarks
write requests and read responses.

Non-goals: connections, advertised versions, the meaning of requests.
"""

import functools
import struct
from typing import Final

import msgspec

from controller.kafka.codec.primitives import (
    ELEMENTS_MAX,
    Malformation,
    MalformedRequest,
    legacy_string,
    skip_tags,
    too_long,
)
from controller.kafka.codec.reader import READ_FAILURES, Reader
from controller.kafka.codec.writer import Write, compile_writer
from controller.kafka.messages import APIS, CLASSES, ApiKey, Message
from controller.kafka.schema import Direction, Layout, layout_of
from events.errors import CLIENT_TEXT_MAX, shortened

_HEADER_START: Final = struct.Struct(">hhih")
_REQUEST_START: Final = struct.Struct(">ihhi")
_RESPONSE_START: Final = struct.Struct(">ii")
_INT32: Final = struct.Struct(">i")
_NO_TAGS: Final = b"\0"


class RequestHeader(msgspec.Struct, frozen=True, gc=False):
    """The header of a request, versions 1 and 2.

    `client_id` may be null. `body_offset` is the start of the body, after the header's tagged fields. For an unknown
    API or version `body_offset` is the start of the header's tagged fields.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


@functools.cache
def load_layout(api_key: int, version: int, direction: Direction) -> Layout:
    """The layout of one message; `is_known(api_key, version)` must hold."""
    return layout_of(APIS[api_key].name + direction.capitalize(), version, CLASSES)


def _response_tags(api_key: int, version: int) -> bytes:
    """The empty tagged fields in the header of a response; that of ApiVersions never has any (KIP-511)."""
    return _NO_TAGS if load_layout(api_key, version, "response").flexible and api_key != ApiKey.API_VERSIONS else b""


def is_known(api_key: int, version: int) -> bool:
    api = APIS.get(api_key)
    return api is not None and api.min_version <= version <= api.max_version


def parse_header(frame: bytes) -> RequestHeader:
    """The header of a request frame (without its size). Raises MalformedRequest.

    The client id has a two-byte length even in the flexible header version 2 (KIP-482), so that a header can be read
    before its version is known.
    """
    try:
        api_key, version, correlation_id, length = _HEADER_START.unpack_from(frame)
        offset = 10 + max(length, 0)
        if offset > len(frame):
            raise too_long(length, len(frame) - 10)
        client_id = None if length < 0 else shortened(frame[10:offset].decode("utf-8", "replace"), CLIENT_TEXT_MAX)
        if is_known(api_key, version) and load_layout(api_key, version, "request").flexible:
            offset = skip_tags(frame, offset, len(frame))
    except READ_FAILURES as failure:
        reason = str(failure) if isinstance(failure, Malformation) else "the bytes end early"
        raise MalformedRequest(f"request header: {reason}") from None
    return RequestHeader(api_key, version, correlation_id, client_id, offset)


def read_request(
    api_key: int, version: int, buffer: bytes, offset: int = 0, elements_max: int = ELEMENTS_MAX
) -> tuple[Message, int]:
    """The request whose body begins at `offset`, and its number of array elements; bytes after it are ignored.

    `is_known(api_key, version)` must hold. Raises MalformedRequest, also for more than `elements_max` elements.
    """
    message, left = _read(_reader(api_key, version, "request"), buffer, offset, elements_max)
    return message, elements_max - left


def decode_response(api_key: int, version: int, frame: bytes) -> tuple[int, Message]:
    """The correlation id and the message of a response frame (without its size). Raises MalformedRequest."""
    try:
        (correlation_id,) = _INT32.unpack_from(frame)
        offset = skip_tags(frame, 4, len(frame)) if _response_tags(api_key, version) else 4
    except READ_FAILURES:
        raise MalformedRequest("response header: the bytes end early") from None
    # No limit on elements: our own clients read responses of servers that they trust.
    return correlation_id, _read(_reader(api_key, version, "response"), frame, offset, len(frame))[0]


def encode_response(api_key: int, version: int, correlation_id: int, response: Message) -> bytes:
    """The frame of a response, its size included."""
    parts = [b"", _response_tags(api_key, version)]
    _writer(api_key, version, "response")(response, parts)
    parts[0] = _RESPONSE_START.pack(4 + sum(map(len, parts)), correlation_id)
    return b"".join(parts)


def encode_request(api_key: int, version: int, correlation_id: int, client_id: str | None, request: Message) -> bytes:
    """The frame of a request, its size included."""
    client = b"\xff\xff" if client_id is None else legacy_string(client_id)
    parts = [b"", client, _NO_TAGS if load_layout(api_key, version, "request").flexible else b""]
    _writer(api_key, version, "request")(request, parts)
    parts[0] = _REQUEST_START.pack(8 + sum(map(len, parts)), api_key, version, correlation_id)
    return b"".join(parts)


def encode_element(api_key: int, version: int, element: Message) -> bytes:
    """The bytes of one element of an array in a response; an `Encoded` array consists of such elements."""
    parts: list[bytes] = []
    _element_writer(api_key, version, type(element))(element, parts)
    return b"".join(parts)


def _read(reader: Reader, buffer: bytes, offset: int, elements_max: int) -> tuple[Message, int]:
    try:
        return reader.read(buffer, offset, len(buffer), elements_max)
    except READ_FAILURES as failure:
        raise MalformedRequest(reader.explain(failure)) from None


@functools.cache
def _reader(api_key: int, version: int, direction: Direction) -> Reader:
    return Reader(load_layout(api_key, version, direction), f"{APIS[api_key].name} v{version} {direction}")


@functools.cache
def _writer(api_key: int, version: int, direction: Direction) -> Write:
    return compile_writer(load_layout(api_key, version, direction), f"{APIS[api_key].name} v{version} {direction}")


@functools.cache
def _element_writer(api_key: int, version: int, element: type[Message]) -> Write:
    layout = _find(load_layout(api_key, version, "response"), element)
    name = f"{APIS[api_key].name} v{version}"
    if layout is None:
        raise LookupError(f"{name} has no {element.__name__}")
    return compile_writer(layout, f"{name} {element.__name__}")


def _find(layout: Layout, element: type[Message]) -> Layout | None:
    if layout.message is element:
        return layout
    nested = (field.entity for field in layout.fields + layout.tagged if field.entity is not None)
    return next((found for entity in nested if (found := _find(entity, element)) is not None), None)
