"""Requests that are passed to another server: byte for byte, in their turn, and never those between brokers."""

from __future__ import annotations

import asyncio
import struct

import pytest

from controller.apis.passing_through import BETWEEN_BROKERS, BY_IDENTITY, passing
from controller.brokers.cluster.wire import ClusterUnreachable
from controller.kafka.handling import Disconnect, PassedAnswer, PassedRequest, RequestContext
from controller.kafka.messages.api_versions import ApiVersion
from controller.kafka.server.protocol import ServerProtocol

FIND_COORDINATOR, LIST_GROUPS, METADATA, SASL_HANDSHAKE, FETCH_SNAPSHOT = 10, 16, 3, 17, 59
SPOKEN = [
    ApiVersion(api_key=key, min_version=0, max_version=5)
    for key in (FIND_COORDINATOR, LIST_GROUPS, METADATA, SASL_HANDSHAKE, FETCH_SNAPSHOT)
]
ANSWER = b"\x00\x00\x00\x07whatever the broker says"


def anybody(_: RequestContext) -> bool:
    return True


async def echo(payload: bytes, within_s: float) -> bytes:
    """A broker that answers the same to everything."""
    return ANSWER


def frame(api_key: int, version: int, body: bytes) -> bytes:
    """A request frame, without its size."""
    return struct.pack(">hhih", api_key, version, 7, 2) + b"me" + body


def test_only_what_brokers_speak_to_clients_is_passed() -> None:
    assert passing(SPOKEN, {METADATA}, echo, anybody).keys() == {FIND_COORDINATOR, LIST_GROUPS}
    assert not BETWEEN_BROKERS & BY_IDENTITY


async def test_bytes_go_and_come_as_they_are() -> None:
    table = passing(SPOKEN, {METADATA}, echo, anybody)
    protocol = ServerProtocol(table, 1000)
    sent = frame(FIND_COORDINATOR, 5, b"\xff\xfe no message that is known here")
    protocol.receive(struct.pack(">i", len(sent)) + sent)
    exchange = protocol.next_exchange()
    assert exchange is not None
    assert exchange.request == PassedRequest(frame=sent)
    context = RequestContext(FIND_COORDINATOR, 5)
    answer = await table[FIND_COORDINATOR].handle(context, exchange.request)  # type: ignore[misc]
    assert isinstance(answer, PassedAnswer)
    exchange.answer(answer)
    assert exchange.encode() == struct.pack(">i", len(ANSWER)) + ANSWER
    assert context.connection.wants_brokers, "who looks for a coordinator has to know the brokers"


@pytest.mark.parametrize(
    ("software", "version", "key_type", "ends"),
    [
        ("2.16.0-librdkafka-2.16.0", 2, b"\x00", True),
        ("2.16.0-librdkafka-2.16.0", 2, b"\x01", False),  # a transactional producer: it would not come back by itself
        ("2.16.0-librdkafka-2.16.0", 0, b"p", True),
        ("4.1.0", 2, b"\x00", False),
    ],
)
async def test_a_consumer_of_librdkafka_goes_on_at_a_broker(
    software: str, version: int, key_type: bytes, ends: bool
) -> None:
    """It would wait for its request here, and drop this node before that is answered."""
    context = RequestContext(FIND_COORDINATOR, version)
    context.connection.software_version = software
    request = PassedRequest(frame=frame(FIND_COORDINATOR, version, b"\x00\x01g" + key_type))
    await passing(SPOKEN, (), echo, anybody)[FIND_COORDINATOR].handle(context, request)  # type: ignore[misc]
    assert context.connection.ends is ends


async def test_a_version_that_no_broker_speaks_ends_the_conversation() -> None:
    protocol = ServerProtocol(passing(SPOKEN, (), echo, anybody), 1000)
    sent = frame(FIND_COORDINATOR, 6, b"")
    protocol.receive(struct.pack(">i", len(sent)) + sent)
    exchange = protocol.next_exchange()
    assert exchange is not None
    assert exchange.ends == "unsupported version"


async def test_without_a_broker_the_client_is_disconnected() -> None:
    async def nobody(payload: bytes, within_s: float) -> bytes:
        raise ClusterUnreachable("127.0.0.1:1 cannot be reached")

    table = passing(SPOKEN, (), nobody, anybody)
    given = table[LIST_GROUPS].handle(RequestContext(LIST_GROUPS, 4), PassedRequest(frame=frame(LIST_GROUPS, 4, b"")))
    assert isinstance(given, asyncio.Task)
    with pytest.raises(Disconnect, match="nobody to pass it to"):
        await given


async def test_who_may_not_is_disconnected_and_nothing_is_passed() -> None:
    async def never(frame: bytes, within_s: float) -> bytes:
        raise AssertionError("it was passed on")

    table = passing(SPOKEN, (), never, lambda context: context.principal == "User:admin")
    with pytest.raises(Disconnect, match="User:ANONYMOUS may not have requests passed on: ClusterAction is needed"):
        table[LIST_GROUPS].handle(RequestContext(LIST_GROUPS, 0), PassedRequest(frame=b""))
