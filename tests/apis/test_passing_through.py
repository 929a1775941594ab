"""Requests that are passed to another server: byte for byte, in their turn, and never those between brokers."""

from __future__ import annotations

import asyncio
import struct

import pytest

from controller.apis import passing_through
from controller.apis.passing_through import (
    BETWEEN_BROKERS,
    BY_IDENTITY,
    CLIENT_ID_CHARACTERS_MAX,
    RECORDS,
    RecordClients,
    SentOn,
    closing,
    passing,
    showing_addresses,
    to_broker,
)
from controller.brokers.cluster.connections import ClusterUnreachable
from controller.kafka.handling import (
    NO_RESPONSE,
    ApiHandler,
    Disconnect,
    PassedAnswer,
    PassedRequest,
    RequestContext,
)
from controller.kafka.messages.api_versions import ApiVersion
from controller.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)
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


def test_only_what_brokers_speak_to_clients_is_passed() -> None:
    assert passing(SPOKEN, {METADATA}, echo, anybody, RecordClients()).keys() == {
        FIND_COORDINATOR,
        JOIN_GROUP,
        LIST_GROUPS,
    }
    assert not BETWEEN_BROKERS & BY_IDENTITY


async def test_bytes_go_and_come_as_they_are() -> None:
    table = passing(SPOKEN, {METADATA}, echo, anybody, RecordClients())
    protocol = ServerProtocol(table, 1000)
    sent = frame(JOIN_GROUP, 5, b"\xff\xfe no message that is known here")
    protocol.receive(struct.pack(">i", len(sent)) + sent)
    exchange = protocol.next_exchange()
    assert exchange is not None
    assert exchange.request == PassedRequest(frame=sent)
    context = RequestContext(JOIN_GROUP, 5)
    answer = await table[JOIN_GROUP].handle(context, exchange.request)  # type: ignore[misc]
    assert isinstance(answer, PassedAnswer)
    exchange.answer(answer)
    assert exchange.frame == struct.pack(">i", len(ANSWER)) + ANSWER


async def test_requests_of_a_connection_are_passed_one_after_another() -> None:
    """As a broker works on them: a group sees the requests of a member in their order."""
    assert passing(SPOKEN, (), echo, anybody, RecordClients())[LIST_GROUPS].alone


def test_a_client_that_looks_for_a_coordinator_is_shown_the_brokers_own_addresses() -> None:
    clients = RecordClients()
    row = showing_addresses(ApiHandler(0, 13, metadata), clients, closes=False)
    assert wants_brokers(row, "admin") is False
    clients.add(RequestContext(FIND_COORDINATOR, 4, client_id="consumer"))
    assert [wants_brokers(row, each) for each in ("consumer", "admin")] == [True, False]


def test_clients_that_produce_or_consume_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing_through, "CLIENTS_MAX", 2)
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
def test_a_java_client_does_not_keep_its_connection_to_a_listener_for_records(
    software: str, topics: tuple[MetadataRequestTopic, ...], closes: bool, ends: bool
) -> None:
    context = RequestContext(METADATA, 12)
    context.connection.software_name = software
    showing_addresses(ApiHandler(0, 13, metadata), RecordClients(), closes).handle(
        context, MetadataRequest(topics=topics)
    )
    assert context.connection.ends is ends


def test_records_end_the_connection_to_a_listener_and_are_not_passed() -> None:
    clients = RecordClients()
    spoken = [ApiVersion(api_key=key, min_version=0, max_version=12) for key in (*RECORDS, LIST_GROUPS)]
    rows = closing(spoken, clients)
    assert rows.keys() == RECORDS
    context = RequestContext(PRODUCE, 9, client_id="producer")
    assert rows[PRODUCE].handle(context, PassedRequest(frame=b"")) is NO_RESPONSE
    assert context.connection.ends
    assert context in clients


def metadata(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    return MetadataResponse()


def wants_brokers(row: ApiHandler, client_id: str) -> bool:
    context = RequestContext(METADATA, 12, client_id=client_id)
    row.handle(context, MetadataRequest(topics=None))
    return context.connection.wants_brokers


async def test_a_request_at_a_brokers_listener_goes_to_where_that_broker_is_now() -> None:
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


LIBRDKAFKA = "2.16.0-librdkafka-2.16.0"


def looking(software: str, version: int, body: bytes) -> tuple[RequestContext, PassedRequest]:
    """A FindCoordinator of some client."""
    context = RequestContext(FIND_COORDINATOR, version, client_id="me")
    context.connection.software_version = software
    return context, PassedRequest(frame=frame(FIND_COORDINATOR, version, body))


@pytest.mark.parametrize(
    ("software", "version", "key_type", "is_sent_on"),
    [
        (LIBRDKAFKA, 2, b"\x00", True),
        (LIBRDKAFKA, 2, b"\x01", False),  # a transactional producer
        (LIBRDKAFKA, 0, b"p", True),
        ("4.1.0", 2, b"\x00", False),
    ],
)
async def test_a_consumer_of_librdkafka_is_sent_on_to_the_brokers(
    software: str, version: int, key_type: bytes, is_sent_on: bool
) -> None:
    context, request = looking(software, version, b"\x00\x01g" + key_type)
    given = passing(SPOKEN, (), echo, anybody, RecordClients(), SentOn())[FIND_COORDINATOR].handle(context, request)
    assert context.connection.ends is is_sent_on
    assert (given is NO_RESPONSE) is is_sent_on
    if not is_sent_on:
        assert await given == PassedAnswer(frame=ANSWER)  # type: ignore[misc]


async def test_one_that_was_shown_the_brokers_and_looks_here_is_answered() -> None:
    """As librdkafka 2.8 does."""
    context, request = looking(LIBRDKAFKA, 2, b"\x00\x01g\x00")
    context.connection.wants_brokers = True
    given = passing(SPOKEN, (), echo, anybody, RecordClients(), SentOn())[FIND_COORDINATOR].handle(context, request)
    assert await given == PassedAnswer(frame=ANSWER)  # type: ignore[misc]
    assert not context.connection.ends


async def test_one_that_comes_back_is_shown_the_brokers_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(client_id: str, topics: tuple[MetadataRequestTopic, ...] = ()) -> list[int]:
        context = RequestContext(METADATA, 12, client_id=client_id)
        answer = row.handle(context, MetadataRequest(topics=topics))
        assert isinstance(answer, MetadataResponse)
        nodes = [broker.node_id for broker in answer.brokers]
        assert answer.controller_id in nodes
        return nodes

    def shown_nodes(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
        nodes = (100, 1, 2) if request.topics or context.connection.wants_brokers else (100,)
        brokers = tuple(MetadataResponseBroker(node_id=node, host="localhost", port=9092) for node in nodes)
        return MetadataResponse(brokers=brokers, controller_id=100)

    sent_on = SentOn()
    row = sent_on.answering(ApiHandler(0, 13, shown_nodes))
    context, _ = looking(LIBRDKAFKA, 2, b"")
    sent_on.send_on(context)
    assert shown("me", (MetadataRequestTopic(name="orders"),)) == [100, 1, 2], "that is no look for brokers"
    assert shown("another") == [100]
    assert [shown("me"), shown("me")] == [[1, 2], [100]]
    sent_on.send_on(context)
    monkeypatch.setattr(passing_through, "BACK_WITHIN_S", 0.0)
    assert shown("me") == [100], "it was too long ago"
    monkeypatch.undo()
    monkeypatch.setattr(passing_through, "SENT_ON_MAX", 1)
    for client_id in ("first", "last"):
        sent_on.send_on(RequestContext(FIND_COORDINATOR, 2, client_id=client_id))
    assert [shown("first"), shown("last")] == [[100], [1, 2]]


async def test_a_version_that_no_broker_speaks_ends_the_conversation() -> None:
    protocol = ServerProtocol(passing(SPOKEN, (), echo, anybody, RecordClients()), 1000)
    sent = frame(JOIN_GROUP, 6, b"")
    protocol.receive(struct.pack(">i", len(sent)) + sent)
    exchange = protocol.next_exchange()
    assert exchange is not None
    assert exchange.ends == "unsupported version"


async def test_without_a_broker_the_client_is_disconnected() -> None:
    async def nobody(payload: bytes, within_s: float, to: tuple[str, int] | None = None) -> bytes:
        raise ClusterUnreachable("127.0.0.1:1 cannot be reached")

    table = passing(SPOKEN, (), nobody, anybody, RecordClients())
    given = table[LIST_GROUPS].handle(RequestContext(LIST_GROUPS, 4), PassedRequest(frame=frame(LIST_GROUPS, 4, b"")))
    assert isinstance(given, asyncio.Task)
    with pytest.raises(Disconnect, match="nobody to pass it to"):
        await given


async def test_who_may_not_is_disconnected_and_nothing_is_passed() -> None:
    async def never(payload: bytes, within_s: float, to: tuple[str, int] | None = None) -> bytes:
        raise AssertionError("it was passed on")

    table = passing(SPOKEN, (), never, lambda context: context.principal == "User:admin", RecordClients())
    with pytest.raises(Disconnect, match="User:ANONYMOUS may not have requests passed on: ClusterAction is needed"):
        table[LIST_GROUPS].handle(RequestContext(LIST_GROUPS, 0), PassedRequest(frame=b""))
