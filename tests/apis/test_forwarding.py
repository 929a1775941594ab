"""Requests forwarded to another server: unchanged, in order, and never requests of the cluster's own brokers."""

import asyncio
import struct
from types import SimpleNamespace
from typing import Any

import pytest

from controller.access.authorizer import Operation
from controller.apis import metadata
from controller.apis.forwarding import (
    BETWEEN_BROKERS,
    BY_IDENTITY,
    forwarding_rows,
    metadata_then_close,
    produce_closes,
    to_broker,
    without_group,
)
from controller.apis.records import PRODUCE_ROW
from controller.kafka.codec.codec import decode_response, encode_response
from controller.kafka.connections import ClusterUnreachable
from controller.kafka.handling import ApiHandler, ClientConnection, Disconnect, RawFrame, RequestContext, Session
from controller.kafka.messages import ApiKey, clients
from controller.kafka.messages.cluster import ApiVersion
from controller.kafka.messages.topics import MetadataRequest, MetadataRequestTopic, MetadataResponse
from controller.kafka.server.protocol import Exchange, ServerProtocol
from controller.machine.state import Broker, Cluster
from events.catalog import Endpoint
from events.names import BrokerId

FETCH, METADATA, FIND_COORDINATOR, JOIN_GROUP, LIST_GROUPS, SASL_HANDSHAKE, FETCH_SNAPSHOT = 1, 3, 10, 11, 16, 17, 59
SPOKEN = [
    ApiVersion(api_key=key, min_version=0, max_version=5)
    for key in (FIND_COORDINATOR, JOIN_GROUP, LIST_GROUPS, METADATA, SASL_HANDSHAKE, FETCH_SNAPSHOT)
]
ANSWER = b"\x00\x00\x00\x07whatever the broker says"


def anybody(_: RequestContext, __: Operation) -> bool:
    return True


async def echo(payload: bytes, within_s: float, to: tuple[str, int] | None = None) -> bytes:
    """A broker with the same response to every request."""
    return ANSWER


def frame(api_key: int, version: int, body: bytes) -> bytes:
    """Encodes a request frame without its size."""
    return struct.pack(">hhih", api_key, version, 7, 2) + b"me" + body


def received(table: dict[int, ApiHandler], sent: bytes) -> Exchange:
    """The exchange of a request frame that a listener received."""
    protocol = ServerProtocol(table, 1000)
    protocol.receive(struct.pack(">i", len(sent)) + sent)
    exchange = protocol.next_exchange()
    assert exchange is not None
    return exchange


def context_of(api_key: int, version: int, software: str) -> RequestContext:
    return RequestContext(api_key, version, connection=ClientConnection(software=software))


def test_only_client_apis_are_forwarded() -> None:
    assert forwarding_rows(SPOKEN, {METADATA}, echo, anybody).keys() == {FIND_COORDINATOR, JOIN_GROUP, LIST_GROUPS}
    assert not BETWEEN_BROKERS & BY_IDENTITY


async def test_frames_are_forwarded_unchanged() -> None:
    table = forwarding_rows(SPOKEN, {METADATA}, echo, anybody)
    sent = frame(JOIN_GROUP, 5, b"\xff\xfe no message that is known here")
    exchange = received(table, sent)
    assert exchange.request == RawFrame(frame=sent)
    context = RequestContext(JOIN_GROUP, 5)
    answer = await table[JOIN_GROUP].handle(context, exchange.request)  # type: ignore[misc]
    assert isinstance(answer, RawFrame)
    exchange.answer(answer)
    assert exchange.frame == struct.pack(">i", len(ANSWER)) + ANSWER


@pytest.mark.parametrize("version", [0, 5])
async def test_list_groups_hides_the_workers_group(version: int) -> None:
    groups = tuple(clients.ListedGroup(group_id=each, protocol_type="consumer") for each in ("billing", "workers"))

    async def broker(payload: bytes, within_s: float, to: tuple[str, int] | None = None) -> bytes:
        return encode_response(LIST_GROUPS, version, 7, clients.ListGroupsResponse(groups=groups))[4:]

    newest = [ApiVersion(api_key=LIST_GROUPS, min_version=0, max_version=99)]
    row = without_group(forwarding_rows(newest, (), broker, anybody)[LIST_GROUPS], "workers")
    assert row.max_version == ApiKey.LIST_GROUPS.max_version, "the response must be decoded"
    request = RawFrame(frame=frame(LIST_GROUPS, version, b""))
    answer = await row.handle(RequestContext(LIST_GROUPS, version), request)  # type: ignore[misc]
    assert isinstance(answer, RawFrame)
    expected = clients.ListGroupsResponse(groups=groups[:1])
    assert decode_response(LIST_GROUPS, version, answer.frame) == (7, expected)


async def test_forwarded_requests_of_a_connection_are_sequential() -> None:
    """Requests of a connection stay in order, so that a group sees a member's requests in order."""
    assert forwarding_rows(SPOKEN, (), echo, anybody)[LIST_GROUPS].is_exclusive


@pytest.mark.parametrize(
    ("software", "topics", "closes"),
    [
        ("apache-kafka-java", (MetadataRequestTopic(name="orders"),), True),
        ("apache-kafka-java", (), False),
        ("librdkafka", (MetadataRequestTopic(name="orders"),), False),
    ],
)
def test_java_client_is_disconnected_after_metadata_of_named_topics(
    software: str, topics: tuple[MetadataRequestTopic, ...], closes: bool
) -> None:
    context = context_of(METADATA, 12, software)
    row = metadata_then_close(ApiHandler(0, 13, lambda *_: MetadataResponse()))
    row.handle(context, MetadataRequest(topics=topics))
    assert context.connection.closes_after_responses is closes


def test_produce_disconnects() -> None:
    row = produce_closes(PRODUCE_ROW)
    assert row.is_undecoded
    context = RequestContext(ApiKey.PRODUCE, 9)
    assert row.handle(context, RawFrame(frame=b"")) is None
    assert context.connection.closes_after_responses


@pytest.mark.parametrize("listeners", [True, False])
@pytest.mark.parametrize(
    ("software", "topics", "shown"),
    [
        ("librdkafka", (MetadataRequestTopic(name="orders"),), (True, True)),
        ("librdkafka", None, (False, True)),
        ("librdkafka", (), (False, True)),
        ("kgo", (), (False, False)),
        ("apache-kafka-java", None, (True, True)),
        ("apache-kafka-java", (), (False, False)),
    ],
)
def test_metadata_has_broker_addresses_for_clients_that_need_them(
    software: str, topics: tuple[MetadataRequestTopic, ...] | None, shown: tuple[bool, bool], listeners: bool
) -> None:
    context = context_of(METADATA, 12, software)
    api: Any = SimpleNamespace(broker_ports=(lambda *_: None) if listeners else None)
    response = metadata._Response(api, metadata._EncodedTopics(), context, MetadataRequest(topics=topics))
    assert response.shows_brokers() is shown[not listeners]


async def test_broker_listener_forwards_to_the_brokers_current_address() -> None:
    went: list[tuple[str, int] | None] = []

    async def noting(payload: bytes, within_s: float, to: tuple[str, int] | None = None) -> bytes:
        went.append(to)
        return ANSWER

    api: Any = SimpleNamespace(cluster=Cluster())
    forward = to_broker(api, BrokerId(5), noting)
    with pytest.raises(ClusterUnreachable, match="broker 5 is not registered"):
        await forward(b"", 1, None)
    for port in (9092, 9095):
        endpoints = (Endpoint("PLAINTEXT", "broker5", port),)
        api.cluster = Cluster(brokers={BrokerId(5): Broker(BrokerId(5), 1, "", None, endpoints, fenced=False)})
        assert await forward(b"", 1, None) == ANSWER
    assert went == [("broker5", 9092), ("broker5", 9095)]


@pytest.mark.parametrize(
    ("software", "at_broker", "closes"),
    [("librdkafka", False, True), ("librdkafka", True, False), ("apache-kafka-java", False, False)],
)
async def test_find_coordinator_of_librdkafka_closes_at_the_own_listener(
    software: str, at_broker: bool, closes: bool
) -> None:
    context = context_of(FIND_COORDINATOR, 2, software)
    request = RawFrame(frame=frame(FIND_COORDINATOR, 2, b"\x00\x01g\x00"))
    given = forwarding_rows(SPOKEN, (), echo, anybody, at_broker)[FIND_COORDINATOR].handle(context, request)
    assert context.connection.closes_after_responses is closes
    if closes:
        assert given is None
    else:
        assert await given == RawFrame(frame=ANSWER)  # type: ignore[misc]


async def test_unsupported_forwarded_version_disconnects() -> None:
    exchange = received(forwarding_rows(SPOKEN, (), echo, anybody), frame(JOIN_GROUP, 6, b""))
    assert exchange.ends == "unsupported version"


async def test_forwarding_without_a_broker_disconnects() -> None:
    async def nobody(payload: bytes, within_s: float, to: tuple[str, int] | None = None) -> bytes:
        raise ClusterUnreachable("127.0.0.1:1 cannot be reached")

    table = forwarding_rows(SPOKEN, (), nobody, anybody)
    given = table[LIST_GROUPS].handle(RequestContext(LIST_GROUPS, 4), RawFrame(frame=frame(LIST_GROUPS, 4, b"")))
    assert isinstance(given, asyncio.Task)
    with pytest.raises(Disconnect, match="cannot forward the request"):
        await given


async def test_forwarding_requires_cluster_action() -> None:
    async def never(payload: bytes, within_s: float, to: tuple[str, int] | None = None) -> bytes:
        raise AssertionError("it was forwarded")

    table = forwarding_rows(SPOKEN, (), never, lambda context, _: context.principal == "User:admin")
    with pytest.raises(Disconnect, match="User:ANONYMOUS is not authorized: forwarding needs ClusterAction"):
        table[LIST_GROUPS].handle(RequestContext(LIST_GROUPS, 0), RawFrame(frame=b""))


DESCRIBE_ACLS, ALTER_REASSIGNMENTS = 29, 45


@pytest.mark.parametrize(("key", "needed"), [(DESCRIBE_ACLS, "Describe"), (ALTER_REASSIGNMENTS, "Alter")])
async def test_requests_about_the_cluster_need_its_operation(key: int, needed: str) -> None:
    spoken = [ApiVersion(api_key=key, min_version=0, max_version=0)]
    table = forwarding_rows(spoken, (), echo, lambda _, operation: operation == needed)
    response = await table[key].handle(RequestContext(key, 0), RawFrame(frame=b""))  # type: ignore[misc]
    assert response == RawFrame(frame=ANSWER)


async def test_a_client_that_logged_in_at_the_cluster_is_forwarded_on_its_own_connection() -> None:
    """Its permissions are the cluster's business."""

    class Own:
        async def exchange(self, payload: bytes) -> bytes:
            return b"for " + payload

        def close(self) -> None: ...

    connection = ClientConnection(session=Session(principal="User:bob", at_cluster=Own()))
    table = forwarding_rows(SPOKEN, (), echo, lambda *_: False)
    context = RequestContext(LIST_GROUPS, 0, connection=connection)
    response = await table[LIST_GROUPS].handle(context, RawFrame(frame=b"bob"))  # type: ignore[misc]
    assert response == RawFrame(frame=b"for bob")
