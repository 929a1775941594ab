"""The codec accepts what a broker accepts. Bytes that it cannot decode raise only MalformedRequest."""

import random
import struct
from typing import Any

import pytest

from controller.kafka.codec import codec
from controller.kafka.codec.primitives import MalformedRequest
from controller.kafka.messages.cluster import ApiVersionsResponse
from controller.kafka.messages.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    MetadataRequest,
)
from controller.kafka.schema import Direction
from tests.kafka.codec.samples import EVERY_VERSION, samples

OLDEST_AND_NEWEST = [
    row
    for row in EVERY_VERSION
    if row[1] in {choose(each[1] for each in EVERY_VERSION if each[::2] == row[::2]) for choose in (min, max)}
]
"""The first or last version of each API; test_messages.py and test_oracles.py have the others."""

CREATE = CreateTopicsRequest(
    topics=(CreatableTopic(name="ab", num_partitions=1, replication_factor=1),), timeout_ms=256, validate_only=True
)
CREATE_V7 = b"\x02" + b"\x03ab" + b"\0\0\0\1" + b"\0\1" + b"\x01\x01\0" + b"\0\0\1\0" + b"\1" + b"\0"
CREATE_V2 = b"\0\0\0\1" + b"\0\2ab" + b"\0\0\0\1" + b"\0\1" + bytes(8) + b"\0\0\1\0" + b"\1"


def read(version: int, body: bytes) -> Any:
    return codec.read_request(19, version, body)[0]


@pytest.mark.parametrize("rest", [b"", b"\0\0\0"], ids=["whole", "trailing bytes"])
def test_create_topics_bytes_decode_and_trailing_bytes_are_ignored(rest: bytes) -> None:
    assert read(7, CREATE_V7 + rest) == CREATE
    assert read(2, CREATE_V2 + rest) == CREATE


@pytest.mark.parametrize(
    "tags",
    [b"\x01\x63\x03abc", b"\x02\x63\x00\xff\x7f\x01x", b"\x01\x80\x80\x01\x80\x01" + bytes(128)],
    ids=["one", "two", "long"],
)
def test_unknown_tagged_fields_are_skipped(tags: bytes) -> None:
    assert read(7, CREATE_V7[:-1] + tags) == CREATE, "in the message"
    nested = CREATE_V7.replace(b"\x01\x01\0", b"\x01\x01" + tags)
    assert read(7, nested) == CREATE, "in an element of an array"
    header = struct.pack(">hhih", 19, 7, 1, 1) + b"x" + tags
    assert codec.parse_header(header + CREATE_V7).body_offset == len(header), "in the header"


def test_known_tagged_fields_are_read() -> None:
    response = codec.encode_response(18, 3, 1, ApiVersionsResponse())[4:]
    tags = b"\x04" + b"\x01\x08" + struct.pack(">q", 77) + b"\x02\x01\x01" + b"\x63\x02ab" + b"\x64\x00"
    _, read_back = codec.decode_response(18, 3, response[:-1] + tags)
    assert read_back == ApiVersionsResponse(finalized_features_epoch=77)
    for size in range(1, len(tags)):
        with pytest.raises(MalformedRequest):
            codec.decode_response(18, 3, response[:-1] + tags[:size])


def test_invalid_utf_8_is_replaced() -> None:
    assert read(7, CREATE_V7.replace(b"ab", b"\xff\xfe")).topics[0].name == "\ufffd\ufffd"
    header = codec.parse_header(struct.pack(">hhih", 3, 1, 1, 2) + b"\xff\xfe")
    assert header.client_id == "\ufffd\ufffd"


def test_all_topics_is_a_null_array_from_version_1_of_metadata() -> None:
    assert codec.read_request(3, 1, b"\xff\xff\xff\xff")[0] == MetadataRequest(topics=None)
    assert codec.read_request(3, 0, b"\0\0\0\0")[0] == MetadataRequest(topics=())


@pytest.mark.parametrize(
    ("version", "body", "complaint"),
    [
        (7, b"", "CreateTopics v7 request: topics: the bytes end early"),
        (2, b"", "CreateTopics v2 request: topics: the bytes end early"),
        (7, b"\0" + bytes(6), "topics: null, which this version does not allow"),
        (2, b"\xff\xff\xff\xff" + bytes(6), "topics: null, which this version does not allow"),
        (2, b"\xff\xff\xff\xfe" + bytes(6), "topics: null, which this version does not allow"),
        (7, b"\x02\0" + bytes(20), "topics.name: null, which this version does not allow"),
        (2, b"\0\0\0\1\xff\xff" + bytes(20), "topics.name: null, which this version does not allow"),
        (7, b"\xff\xff\xff\xff\x07" + bytes(6), "topics: 2147483646 elements announced, 6 bytes left"),
        (2, b"\x7f\xff\xff\xff" + bytes(6), "topics: 2147483647 elements announced, 6 bytes left"),
        (2, b"\0\0\0\2" + CREATE_V2[4:], "topics: 2 elements announced, 23 bytes left"),
        (7, b"\x02\x7fab" + bytes(20), "topics.name: 126 bytes announced, 22 left"),
        (7, b"\x02\x81\x80\x02" + bytes(40_000), "topics.name: a string of 32768 bytes, at most 32767 allowed"),
        (7, b"\xff" * 9, "topics: a varint of more than five bytes"),
        (7, CREATE_V7[:-1] + b"\x01\x63\x03ab", "tagged fields: 3 bytes announced, 2 left"),
        (7, CREATE_V7[:5], "topics: 1 elements announced, 4 bytes left"),
        (7, b"\x02\x0babcdefghij" + b"\0" * 5, "topics.num_partitions: the bytes end early"),
        (7, CREATE_V7[:-3], "timeout_ms: the bytes end early"),
    ],
)
def test_malformed_request_names_the_field(version: int, body: bytes, complaint: str) -> None:
    with pytest.raises(MalformedRequest) as refusal:
        read(version, body)
    assert complaint in str(refusal.value)


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        (b"", "request header: the bytes end early"),
        (struct.pack(">hhi", 19, 7, 1), "request header: the bytes end early"),
        (struct.pack(">hhih", 19, 7, 1, 9) + b"x", "request header: 9 bytes announced, 1 left"),
        (struct.pack(">hhih", 19, 7, 1, 1) + b"x", "request header: the bytes end early"),
        (struct.pack(">hhih", 19, 7, 1, 1) + b"x\x01\x01\x09a", "request header: 9 bytes announced, 1 left"),
    ],
)
def test_a_malformed_request_header_is_rejected(frame: bytes, complaint: str) -> None:
    with pytest.raises(MalformedRequest) as refusal:
        codec.parse_header(frame)
    assert complaint in str(refusal.value)


def test_a_truncated_response_header_is_rejected() -> None:
    with pytest.raises(MalformedRequest, match="response header"):
        codec.decode_response(19, 7, b"\0\0\0\1")


@pytest.mark.parametrize("version", [1, 2, 4, 5, 7])
def test_long_error_message_is_truncated_at_a_character(version: int) -> None:
    result = CreatableTopicResult(name="a", error_code=44, error_message="é" * 40_000)
    frame = codec.encode_response(19, version, 1, CreateTopicsResponse(topics=(result,)))
    _, read_back = codec.decode_response(19, version, frame[4:])
    assert read_back.topics[0].error_message == "é" * 16_383  # type: ignore[attr-defined]


def decode(api_key: int, version: int, direction: Direction, frame: bytes) -> Any:
    if direction == "response":
        return codec.decode_response(api_key, version, frame)[1]
    return codec.read_request(api_key, version, frame, codec.parse_header(frame).body_offset)[0]


@pytest.mark.parametrize(("api_key", "version", "direction"), OLDEST_AND_NEWEST)
def test_truncated_or_random_bytes_give_malformed_request_or_a_message(
    api_key: int, version: int, direction: Direction
) -> None:
    for message in samples(api_key, version, direction, 3):
        if direction == "request":
            frame = codec.encode_request(api_key, version, 1, "c", message)[4:]
        else:
            frame = codec.encode_response(api_key, version, 1, message)[4:]
        for size in random.sample(range(len(frame)), min(len(frame), 60)):
            with pytest.raises(MalformedRequest):
                decode(api_key, version, direction, frame[:size])
        assert decode(api_key, version, direction, frame) == message, "the whole frame decodes differently"
        for _ in range(8):
            start = random.randint(8, max(8, len(frame)))
            noise = random.randbytes(random.randint(0, 60))
            try:
                read_back = decode(api_key, version, direction, frame[:start] + noise + frame[start + len(noise) :])
            except MalformedRequest:
                continue
            assert type(read_back) is type(message), "noise decodes to another message type"
