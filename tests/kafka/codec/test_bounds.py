"""The cost of a request is bounded by its size: tags are read once, elements counted, formats not cached."""

import gc
import struct
import tracemalloc
from typing import Any

import pytest

from controller.kafka.codec import codec
from controller.kafka.codec.primitives import (
    ELEMENTS_MAX,
    TAGS_MAX,
    MalformedRequest,
    array_packer,
    array_unpacker,
    encode_uvarint,
)
from controller.kafka.messages import ApiKey
from controller.kafka.messages.cluster import ApiVersionsResponse
from controller.kafka.messages.quorum import FetchRequest
from controller.kafka.messages.topics import ElectLeadersRequest

EMPTY_FETCH = codec.encode_request(ApiKey.FETCH, 15, 1, "c", FetchRequest())[4:]
REPLICA_STATE = 1
"""The tag of a Fetch field with an int32, an int64 and an empty tag section: 13 bytes."""


def read_fetch(tags: bytes) -> Any:
    """Decode a Fetch with these tagged fields."""
    frame = EMPTY_FETCH[:-1] + tags
    return codec.read_request(ApiKey.FETCH, 15, frame, codec.parse_header(frame).body_offset)[0]


def state(replica: int, size: int = 13, tag: int = REPLICA_STATE) -> bytes:
    """Encode ReplicaState as a tagged field with any announced size."""
    return encode_uvarint(tag) + encode_uvarint(size) + struct.pack(">iq", replica, 5) + b"\0"


def test_tagged_field_is_read_within_its_size() -> None:
    assert read_fetch(b"\1" + state(7)).replica_state.replica_id == 7


@pytest.mark.parametrize(
    ("tags", "complaint"),
    [
        (b"\1" + state(7, size=12), "12 bytes announced, and the value has 13"),
        (b"\1" + state(7, size=14) + b"\0", "14 bytes announced, and the value has 13"),
        (b"\1" + encode_uvarint(REPLICA_STATE) + b"\0" + bytes(13), "0 bytes announced, and the value has 13"),
        (b"\1" + state(7, size=14), "14 bytes announced, 13 left"),
        (b"\2" + state(7) + state(8), "tag 1 after tag 1"),
        (b"\2" + state(7, tag=9) + state(8), "tag 1 after tag 9"),
        (b"\2" + state(7) + b"\0\0", "tag 0 after tag 1"),
    ],
    ids=["overrun", "rest", "nothing", "past the end", "repeated", "out of order", "unfilled"],
)
def test_malformed_tagged_fields_are_rejected(tags: bytes, complaint: str) -> None:
    with pytest.raises(MalformedRequest) as refusal:
        read_fetch(tags)
    assert complaint in str(refusal.value)


@pytest.mark.parametrize("tags", [b"\2\x05\0\x05\0", b"\2\x05\0\x04\0"], ids=["repeated", "out of order"])
def test_unknown_tags_must_ascend(tags: bytes) -> None:
    frame = struct.pack(">hhih", ApiKey.CREATE_TOPICS, 7, 1, 1) + b"x" + tags
    with pytest.raises(MalformedRequest, match=r"request header: tag . after tag 5"):
        codec.parse_header(frame)


def test_header_tags_are_limited() -> None:
    def frame(count: int) -> bytes:
        tags = b"".join(encode_uvarint(tag) + b"\0" for tag in range(count))
        return struct.pack(">hhih", ApiKey.API_VERSIONS, 3, 1, 1) + b"x" + encode_uvarint(count) + tags

    assert codec.parse_header(frame(TAGS_MAX)).body_offset == len(frame(TAGS_MAX))
    with pytest.raises(MalformedRequest, match="request header: 1001 tagged fields, at most 1000 allowed"):
        codec.parse_header(frame(TAGS_MAX + 1))


def test_array_in_tagged_field_must_fit() -> None:
    """Else the reader of each small field could read all bytes after it."""
    count = 20_000
    feature = encode_uvarint(count + 1) + b"\2a\0\0\0\1\0" * count
    with pytest.raises(MalformedRequest, match="20000 elements announced, 2 bytes left"):
        _read_versions(b"\1\0" + encode_uvarint(5) + feature)
    whole = b"\1\0" + encode_uvarint(len(feature)) + feature
    assert len(_read_versions(whole).supported_features) == count


def _read_versions(tags: bytes) -> Any:
    frame = codec.encode_response(18, 3, 1, ApiVersionsResponse())[4:-1] + tags
    return codec.decode_response(18, 3, frame)[1]


def of_empty_names(count: int) -> bytes:
    """Returns the body of a Metadata v0 request with `count` empty names."""
    return struct.pack(">i", count) + bytes(2 * count)


def test_element_limit_counts_all_arrays() -> None:
    message, elements = codec.read_request(ApiKey.METADATA, 0, of_empty_names(ELEMENTS_MAX))
    assert (len(message.topics), elements) == (ELEMENTS_MAX, ELEMENTS_MAX)  # type: ignore[attr-defined]
    with pytest.raises(MalformedRequest, match="topics: more elements than one request may have"):
        codec.read_request(ApiKey.METADATA, 0, of_empty_names(ELEMENTS_MAX + 1))
    inner = struct.pack(">i", ELEMENTS_MAX // 2) + b"\0\0" * (ELEMENTS_MAX // 2)
    resource = b"\2\0\1t" + inner
    for count, is_read in ((1, True), (3, False)):
        body = struct.pack(">i", count) + resource * count
        if is_read:
            assert codec.read_request(ApiKey.DESCRIBE_CONFIGS, 0, body)[1] == ELEMENTS_MAX // 2 + 1
        else:
            with pytest.raises(MalformedRequest, match="more elements than"):
                codec.read_request(ApiKey.DESCRIBE_CONFIGS, 0, body)


def test_eight_numbers_count_as_one_element() -> None:
    partitions = 8 * (ELEMENTS_MAX - 2)
    body = b"\0" + struct.pack(">ih1si", 1, 1, b"t", partitions) + bytes(4 * partitions) + bytes(4)
    message, elements = codec.read_request(ApiKey.ELECT_LEADERS, 1, body)
    assert isinstance(message, ElectLeadersRequest)
    assert elements == ELEMENTS_MAX - 1
    with pytest.raises(MalformedRequest, match="more elements than"):
        codec.read_request(
            ApiKey.ELECT_LEADERS, 1, body[:8] + struct.pack(">i", partitions + 24) + bytes(4 * partitions + 100)
        )


def test_no_memory_is_allocated_for_too_many_elements() -> None:
    body = of_empty_names(2_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedRequest):
            codec.read_request(ApiKey.METADATA, 0, body)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_struct_formats_of_long_arrays_are_small() -> None:
    array_unpacker.cache_clear()
    array_packer.cache_clear()
    gc.collect()
    tracemalloc.start()
    try:
        for count in range(100_000, 110_000):
            array_unpacker("i", count)
            array_packer("q", count)
        assert tracemalloc.get_traced_memory()[0] < 2_000_000, "clients could fill a cache of formats"
    finally:
        tracemalloc.stop()
    assert array_unpacker("i", 3)(struct.pack(">3i", 1, -2, 3), 0) == (1, -2, 3)
