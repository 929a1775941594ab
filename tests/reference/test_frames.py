"""Topicwright handles unusual frames like Kafka 4.4: both respond, or both close the connection.

Each frame is written by hand, because no client library sends it.
"""

import struct
from collections.abc import Mapping

import pytest

from tests.support.reference_kafka import ReferenceKafka
from tests.support.topicwright import Topicwright
from tests.support.wire import ConnectionClosed, Wire

PRODUCE, METADATA, API_VERSIONS, CREATE_TOPICS, VOTE = 0, 3, 18, 19, 52
CORRELATION_ID = 7
NO_TAGS = b"\0"
EMPTY_COMPACT = b"\x01"


def header(
    key: int, version: int, client_id: bytes | None = b"x", *, flexible: bool = False, tags: bytes = NO_TAGS
) -> bytes:
    size = -1 if client_id is None else len(client_id)
    fixed = struct.pack(">hhih", key, version, CORRELATION_ID, size)
    return fixed + (client_id or b"") + (tags if flexible else b"")


def create(count: int, *topics: bytes) -> bytes:
    """The body of CreateTopics v2: validate only."""
    return struct.pack(">i", count) + b"".join(topics) + struct.pack(">ib", 1000, 1)


def named(name: bytes) -> bytes:
    """A topic of CreateTopics v2."""
    return struct.pack(">h", len(name)) + name + struct.pack(">ihii", 1, 1, 0, 0)


def expecting(cluster_id: bytes, node_id: int) -> bytes:
    """ApiVersions v5 of a client that expects this node."""
    return header(API_VERSIONS, 5, flexible=True) + b"\x02a\x02b" + cluster_id + struct.pack(">i", node_id) + NO_TAGS


UNKNOWN_TAG = b"\x01\x63\x03abc"
FRAMES: Mapping[str, bytes] = {
    "ApiVersions v0": header(API_VERSIONS, 0),
    "ApiVersions v0 without client id": header(API_VERSIONS, 0, None),
    "ApiVersions v0 with more behind": header(API_VERSIONS, 0) + b"xyz",
    "ApiVersions v3": header(API_VERSIONS, 3, flexible=True) + b"\x02a\x02b" + NO_TAGS,
    "ApiVersions v3 with an unknown tag": header(API_VERSIONS, 3, flexible=True) + b"\x02a\x02b" + UNKNOWN_TAG,
    "ApiVersions v3 with an unknown tag in the header": header(API_VERSIONS, 3, flexible=True, tags=UNKNOWN_TAG)
    + b"\x02a\x02b"
    + NO_TAGS,
    "ApiVersions v3 without a name": header(API_VERSIONS, 3, flexible=True) + EMPTY_COMPACT * 2 + NO_TAGS,
    "ApiVersions v3 with a space in its name": header(API_VERSIONS, 3, flexible=True) + b"\x04a b\x02b" + NO_TAGS,
    "ApiVersions v3 cut short": header(API_VERSIONS, 3, flexible=True),
    "ApiVersions v5": expecting(b"\x00", -1),
    "ApiVersions v5 of another cluster": expecting(b"\x06other", 1),
    "ApiVersions v5 of a node in no cluster": expecting(b"\x00", 1),
    "ApiVersions v5 of no node": expecting(b"\x06other", -1),
    "ApiVersions v5 cut short": header(API_VERSIONS, 5, flexible=True) + b"\x02a\x02b" + NO_TAGS,
    "ApiVersions v6": header(API_VERSIONS, 6, flexible=True) + b"\x02a\x02b" + NO_TAGS,
    "ApiVersions v99": header(API_VERSIONS, 99, flexible=True) + b"\x02a\x02b" + NO_TAGS,
    "ApiVersions v-1": header(API_VERSIONS, -1),
    "CreateTopics v8": header(CREATE_TOPICS, 8, flexible=True) + EMPTY_COMPACT + struct.pack(">ib", 1000, 0) + NO_TAGS,
    "CreateTopics v-1": header(CREATE_TOPICS, -1) + create(0),
    "CreateTopics v2 empty": header(CREATE_TOPICS, 2) + create(0),
    "CreateTopics v2 without client id": header(CREATE_TOPICS, 2, None) + create(0),
    "CreateTopics v2 of null topics": header(CREATE_TOPICS, 2) + create(-1),
    "CreateTopics v2 of -2 topics": header(CREATE_TOPICS, 2) + create(-2),
    "CreateTopics v2 of 2^31-1 topics": header(CREATE_TOPICS, 2) + create(2**31 - 1),
    "CreateTopics v2 of more topics than there are": header(CREATE_TOPICS, 2) + create(2, named(b"frame-two")),
    "CreateTopics v2 with more behind": header(CREATE_TOPICS, 2) + create(1, named(b"frame-behind")) + b"xyz",
    "CreateTopics v2 named in bad UTF-8": header(CREATE_TOPICS, 2) + create(1, named(b"\xff\xfea")),
    "CreateTopics v2 with a null name": header(CREATE_TOPICS, 2)
    + create(1, struct.pack(">h", -1) + struct.pack(">ihii", 1, 1, 0, 0)),
    "CreateTopics v2 with a boolean of 2": header(CREATE_TOPICS, 2) + struct.pack(">iib", 0, 1000, 2),
    "CreateTopics v2 without a body": header(CREATE_TOPICS, 2),
    "CreateTopics v7 of null topics": header(CREATE_TOPICS, 7, flexible=True)
    + b"\0"
    + struct.pack(">ib", 1000, 0)
    + NO_TAGS,
    "CreateTopics v7 with unknown tags": header(CREATE_TOPICS, 7, flexible=True, tags=UNKNOWN_TAG)
    + EMPTY_COMPACT
    + struct.pack(">ib", 1000, 0)
    + UNKNOWN_TAG,
    "Metadata v13 as librdkafka sends it": header(METADATA, 13, flexible=True) + EMPTY_COMPACT + b"\0\0\0\0\0\0",
    "an unknown API": header(999, 0),
    "a controller's API": header(VOTE, 0, flexible=True) + b"\0\x01\0",
    "a frame of nothing": b"",
    "a frame of one byte": b"\0",
    "a header cut short": header(CREATE_TOPICS, 2)[:7],
    "a header whose client id is longer than the frame": struct.pack(">hhih", CREATE_TOPICS, 2, CORRELATION_ID, 500),
}
"""Frames by name, without their size."""


def outcome(address: str, name: str) -> str:
    """Returns `closed`, or the part of the response that does not depend on the server."""
    with Wire(address, timeout_s=20) as wire:
        wire.send_frame(FRAMES[name])
        try:
            answer = wire.receive_frame()
        except ConnectionClosed:
            return "closed"
        (correlation_id,) = struct.unpack_from(">i", answer)
        assert correlation_id == CORRELATION_ID
        if name.startswith("ApiVersions"):
            return f"answered, error {struct.unpack_from('>h', answer, 4)[0]}"
        return "answered" if name.startswith("Metadata") else f"answered {answer.hex()}"


@pytest.mark.parametrize("name", FRAMES)
def test_malformed_frames_are_handled_as_by_kafka(
    name: str, kafka44: ReferenceKafka, topicwright_server: Topicwright
) -> None:
    assert outcome(topicwright_server.kafka, name) == outcome(kafka44.bootstrap, name)
    with Wire(topicwright_server.kafka) as wire:
        assert wire.call("Metadata", 0, topics=[])["brokers"], "the server still answers other clients"


def test_a_frame_of_negative_length_closes_the_connection(
    kafka44: ReferenceKafka, topicwright_server: Topicwright
) -> None:
    for address in (kafka44.bootstrap, topicwright_server.kafka):
        with Wire(address, timeout_s=20) as wire:
            wire.send_bytes(struct.pack(">i", -1))
            with pytest.raises(ConnectionClosed):
                wire.receive_frame()


def test_api_versions_are_kafkas_and_older_ones(kafka44: ReferenceKafka, topicwright_server: Topicwright) -> None:
    kafka, ours = offered(kafka44.bootstrap), offered(topicwright_server.kafka)
    assert set(ours) <= set(kafka), "only APIs of Kafka"
    assert PRODUCE in ours, "without it clients of 2.x hang"
    newer = {key: span for key, span in ours.items() if span[1] > kafka[key][1]}
    assert not newer, "versions that no Kafka has"


def offered(address: str) -> dict[int, tuple[int, int]]:
    """The oldest and newest version by API key."""
    with Wire(address) as wire:
        body = wire.call("ApiVersions", 3, client_software_name="table", client_software_version="1")
    return {each["api_key"]: (each["min_version"], each["max_version"]) for each in body["api_keys"]}
