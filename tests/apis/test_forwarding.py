"""Requests that are passed to another server: byte for byte, in their turn, and never those between brokers."""

from __future__ import annotations

import asyncio
import struct

import pytest

from controller.apis import forwarding
from controller.apis.forwarding import (
    BETWEEN_BROKERS,
    BY_IDENTITY,
    CLIENT_ID_CHARACTERS_MAX,
    RECORDS,
    RecordClients,
    closing_rows,
    forwarding_rows,
    to_broker,
    with_broker_addresses,
)
from controller.brokers.cluster.connections import ClusterUnreachable
from controller.kafka.handling import (
    NO_RESPONSE,
    ApiHandler,
    Disconnect,
    ForwardedRequest,
    ForwardedResponse,
    RequestContext,
)
from controller.kafka.messages.cluster import ApiVersion
from controller.kafka.messages.topics import MetadataRequest, MetadataRequestTopic, MetadataResponse
from controller.kafka.server.protocol import ServerProtocol
from controller.machine.state import Broker, Cluster
from events.catalog import Endpoint
from events.names import BrokerId

PRODUCE, METADATA, FIND_COORDINATOR, JOIN_GROUP, LIST_GROUPS, SASL_HANDSHAKE, FETCH_SNAPSHOT = 0, 3, 10, 11, 16, 17, 59
SPOKEN = [
    ApiVersion(api_key=key, min_version=0, max_version=5)
    for key in (FIND_COORDINATOR, JOIN_GROUP, LIST_GROUPS, METADATA, SASL_HANDSHAKE, FETCH_SNAPSHOT)
]
ANSWER = b"\x00\x00\x00\x07whatever the broker says"


def anybody(_: RequestContext) -> bool:
    return True


async def echo(payload: bytes, within_s: float, to: tuple[str, int] | None = None) -> bytes:
    """A broker that answers the same to everything."""
    return ANSWER


def frame(api_key: int, version: int, body: bytes) -> bytes:
    """A request frame, without its size."""
    return struct.pack(">hhih", api_key, version, 7, 2) + b"me" + body


def test_only_client_apis_are_forwarded() -> None:
    assert forwarding_rows(SPOKEN, {METADATA}, echo, anybody, RecordClients()).keys() == {
        FIND_COORDINATOR,
        JOIN_GROUP,
        LIST_GROUPS,
    }
    assert not BETWEEN_BROKERS & BY_IDENTITY


async def test_frames_are_forwarded_unchanged() -> None:
    table = forwarding_rows(SPOKEN, {METADATA}, echo, anybody, RecordClients())
    protocol = ServerProtocol(table, 1000)
    sent = frame(JOIN_GROUP, 5, b"\xff\xfe no message that is known here")
    protocol.receive(struct.pack(">i", len(sent)) + sent)
    exchange = protocol.next_exchange()
    assert exchange is not None
    assert exchange.request == ForwardedRequest(frame=sent)
    context = RequestContext(JOIN_GROUP, 5)
    answer = await table[JOIN_GROUP].handle(context, exchange.request)  # type: ignore[misc]
    assert isinstance(answer, ForwardedResponse)
    exchange.answer(answer)
    assert exchange.frame == struct.pack(">i", len(ANSWER)) + ANSWER


async def test_forwarded_requests_of_a_connection_are_sequential() -> None:
    """As a broker works on them: a group sees the requests of a member in their order."""
    assert forwarding_rows(SPOKEN, (), echo, anybody, RecordClients())[LIST_GROUPS].alone


def test_find_coordinator_client_gets_broker_addresses() -> None:
    clients = RecordClients()
    row = with_broker_addresses(ApiHandler(0, 13, metadata), clients, closes=False)
    assert wants_brokers(row, "admin") is False
    clients.add(RequestContext(FIND_COORDINATOR, 4, client_id="consumer"))
    assert [wants_brokers(row, each) for each in ("consumer", "admin")] == [True, False]


def test_record_clients_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "CLIENTS_MAX", 2)
    clients = RecordClients()
    contexts = [RequestContext(FIND_COORDINATOR, 4, client_id=each * 10_000) for each in "abc"]
    for context in contexts:
        clients.add(context)
    assert [each in clients for each in contexts] == [False, True, True]
    assert max(len(client_id) for _, client_id in clients._seen) == CLIENT_ID_CHARACTERS_MAX


@pytest.mark.parametrize(
    ("software", "topics", "closes", "ends"),
    [
        ("apache-kafka-java", (MetadataRequestTopic(name="orders"),), True, True),
        ("apache-kafka-java", (MetadataRequestTopic(name="orders"),), False, False),
        ("apache-kafka-java", (), True, False),
        ("librdkafka", (MetadataRequestTopic(name="orders"),), True, False),
    ],
)
def test_java_record_client_is_disconnected_after_metadata(
    software: str, topics: tuple[MetadataRequestTopic, ...], closes: bool, ends: bool
) -> None:
    context = RequestContext(METADATA, 12)
    context.connection.software_name = software
    with_broker_addresses(ApiHandler(0, 13, metadata), RecordClients(), closes).handle(
        context, MetadataRequest(topics=topics)
    )
    assert context.connection.ends is ends


def test_produce_and_fetch_disconnect() -> None:
    clients = RecordClients()
    spoken = [ApiVersion(api_key=key, min_version=0, max_version=12) for key in (*RECORDS, LIST_GROUPS)]
    rows = closing_rows(spoken, clients)
    assert rows.keys() == RECORDS
    context = RequestContext(PRODUCE, 9, client_id="producer")
    assert rows[PRODUCE].handle(context, ForwardedRequest(frame=b"")) is NO_RESPONSE
    assert context.connection.ends
    assert context in clients


def metadata(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    return MetadataResponse()


def wants_brokers(row: ApiHandler, client_id: str) -> bool:
    context = RequestContext(METADATA, 12, client_id=client_id)
    row.handle(context, MetadataRequest(topics=None))
    return context.connection.wants_brokers


async def test_broker_listener_forwards_to_the_brokers_current_address() -> None:
    went: list[tuple[str, int] | None] = []

    async def noting(payload: bytes, within_s: float, to: tuple[str, int] | None = None) -> bytes:
        went.append(to)
        return ANSWER

    api = ControllerApi()
    forward = to_broker(api, BrokerId(5), noting)  # type: ignore[arg-type]
    with pytest.raises(ClusterUnreachable, match="broker 5 is not registered"):
        await forward(b"", 1)
    for port in (9092, 9095):
        api.moves(port)
        assert await forward(b"", 1) == ANSWER
    assert went == [("broker5", 9092), ("broker5", 9095)]


class ControllerApi:
    """The part of a gateway that knows where brokers are."""

    def __init__(self) -> None:
        self.cluster = Cluster()

    def moves(self, port: int) -> None:
        endpoints = (Endpoint("PLAINTEXT", "broker5", port),)
        self.cluster = Cluster(brokers={BrokerId(5): Broker(BrokerId(5), 1, "", None, endpoints, fenced=False)})


@pytest.mark.parametrize(
    ("software", "at_broker", "ends"),
    [("librdkafka", False, True), ("librdkafka", True, False), ("apache-kafka-java", False, False)],
)
async def test_find_coordinator_of_librdkafka_closes_at_the_own_listener(
    software: str, at_broker: bool, ends: bool
) -> None:
    clients = RecordClients()
    context = RequestContext(FIND_COORDINATOR, 2, client_id="me")
    context.connection.software_name = software
    request = ForwardedRequest(frame=frame(FIND_COORDINATOR, 2, b"\x00\x01g\x00"))
    given = forwarding_rows(SPOKEN, (), echo, anybody, clients, at_broker)[FIND_COORDINATOR].handle(context, request)
    assert context.connection.ends is ends
    assert context in clients, "Metadata shows it the brokers when it reconnects"
    if ends:
        assert given is NO_RESPONSE
    else:
        assert await given == ForwardedResponse(frame=ANSWER)  # type: ignore[misc]


async def test_unsupported_forwarded_version_disconnects() -> None:
    protocol = ServerProtocol(forwarding_rows(SPOKEN, (), echo, anybody, RecordClients()), 1000)
    sent = frame(JOIN_GROUP, 6, b"")
    protocol.receive(struct.pack(">i", len(sent)) + sent)
    exchange = protocol.next_exchange()
    assert exchange is not None
    assert exchange.ends == "unsupported version"


async def test_forwarding_without_a_broker_disconnects() -> None:
    async def nobody(payload: bytes, within_s: float, to: tuple[str, int] | None = None) -> bytes:
        raise ClusterUnreachable("127.0.0.1:1 cannot be reached")

    table = forwarding_rows(SPOKEN, (), nobody, anybody, RecordClients())
    given = table[LIST_GROUPS].handle(
        RequestContext(LIST_GROUPS, 4), ForwardedRequest(frame=frame(LIST_GROUPS, 4, b""))
    )
    assert isinstance(given, asyncio.Task)
    with pytest.raises(Disconnect, match="cannot forward it"):
        await given


async def test_forwarding_needs_cluster_action() -> None:
    async def never(payload: bytes, within_s: float, to: tuple[str, int] | None = None) -> bytes:
        raise AssertionError("it was forwarded")

    table = forwarding_rows(SPOKEN, (), never, lambda context: context.principal == "User:admin", RecordClients())
    with pytest.raises(Disconnect, match="User:ANONYMOUS may not have requests forwarded: ClusterAction is needed"):
        table[LIST_GROUPS].handle(RequestContext(LIST_GROUPS, 0), ForwardedRequest(frame=b""))
