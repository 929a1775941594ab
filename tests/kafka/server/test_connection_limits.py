"""Limits on connections, requests and bytes."""

import asyncio
import ssl
import threading
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from controller.kafka.handling import Answer, RequestContext
from controller.kafka.messages import ApiKey
from controller.kafka.messages.clients import NodeEndpoint
from controller.kafka.messages.topics import MetadataRequest, MetadataRequestTopic, MetadataResponse
from controller.kafka.server.eager import Turns
from controller.kafka.server.server import UNLIMITED, ConnectionCounts, Limits
from tests.kafka.server.listener import (
    Gates,
    at_once,
    connected,
    metadata_request,
    on_each_loop,
    serving,
    settled,
    until,
)
from tests.kafka.server.listener import request as request_frame
from tests.kafka.server.test_tls import tls_of
from tests.security.certificates import Authority


@on_each_loop
async def test_requests_in_flight_are_limited() -> None:
    gates = Gates()
    limits = Limits(requests_in_flight_max=2)
    async with serving({ApiKey.METADATA: gates}, limits=limits) as server, connected(server) as client:
        client.send(*(metadata_request(number, f"gate{number}") for number in range(5)))
        await gates.until(begun=2)
        await settled()
        assert gates.begun == ["gate0", "gate1"]
        gates.open("gate1")
        await settled()
        assert gates.begun == ["gate0", "gate1"], "a response that waits for earlier ones is in flight"
        for number in (0, 2, 3, 4):
            await gates.until(begun=number + 1)
            gates.open(f"gate{number}")
        assert await client.correlation_ids(5) == [0, 1, 2, 3, 4]


@on_each_loop
async def test_bytes_in_flight_are_limited() -> None:
    gates = Gates()
    limits = Limits(request_bytes_max=1200)
    async with serving({ApiKey.METADATA: gates}, limits=limits) as server, connected(server) as client:
        client.send(*(metadata_request(number, f"gate{number}" + "x" * 400) for number in range(9)))
        await gates.until(begun=3)
        await settled()
        assert len(gates.begun) == 3
        for number in range(9):
            await gates.until(begun=number + 1)
            gates.open(gates.begun[number])
        assert await client.correlation_ids(9) == list(range(9))


@on_each_loop
async def test_a_large_request_in_many_reads_is_answered() -> None:
    sizes: list[int] = []

    def handle(context: RequestContext, request: MetadataRequest) -> Answer:
        assert threading.current_thread() is threading.main_thread(), "handlers run on the event loop"
        assert request.topics is not None
        sizes.append(sum(len(topic.name or "") for topic in request.topics))
        return MetadataResponse()

    topics = tuple(MetadataRequestTopic(name="x" * 30_000) for _ in range(100))
    async with serving({ApiKey.METADATA: handle}) as server, connected(server) as client:
        for byte in metadata_request(1, "short"):
            client.send(bytes((byte,)))
            await asyncio.sleep(0)
        client.send(request_frame(2, MetadataRequest(topics=topics), version=9), metadata_request(3, "shorter"))
        assert await client.correlation_ids(3) == [1, 2, 3]
        assert sizes == [5, 3_000_000, 7]


@on_each_loop
async def test_a_client_that_does_not_read_stops_request_processing() -> None:
    begun = 0

    def handle(context: RequestContext, request: MetadataRequest) -> Answer:
        nonlocal begun
        begun += 1
        return MetadataResponse(brokers=(NodeEndpoint(host="x" * 30_000),))

    count = 3000
    async with serving({ApiKey.METADATA: handle}) as server, connected(server) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.send(*map(metadata_request, range(count)))
        reached = -1
        while begun != reached:
            reached = begun
            await settled()
        assert 0 < begun < count, "requests are handled though the client reads no responses"
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert await client.correlation_ids(count) == list(range(count))


@pytest.mark.parametrize(
    ("limits", "per_ip", "reason"),
    [
        (Limits(connections_max=1), UNLIMITED, "too many connections: max.connections allows 1"),
        (None, 1, "too many connections from one address: max.connections.per.ip allows 1"),
    ],
    ids=["one listener", "all listeners"],
)
@on_each_loop
async def test_max_connections_is_enforced(limits: Limits | None, per_ip: int, reason: str) -> None:
    counts, handlers = ConnectionCounts(per_ip), {ApiKey.METADATA: at_once}
    with capture_logs() as logs:
        async with (
            serving(handlers, limits=limits, counts=counts) as one,
            serving(handlers, limits=limits, counts=counts) as another,
        ):
            again = another if limits is None else one
            async with connected(one) as first:
                first.send(metadata_request(1))
                assert await first.correlation_ids(1) == [1]
                async with connected(again) as second:
                    assert await second.closed() == b""
                assert one.connections == counts.total == 1
            await until(lambda: counts.total == 0)
            async with connected(again) as third:
                third.send(metadata_request(3))
                assert await third.correlation_ids(1) == [3]
    assert [(log["event"], log["reason"]) for log in logs] == [("connection_rejected", reason)]


@pytest.mark.parametrize(
    ("limits", "per_ip"), [(Limits(connections_max=1), UNLIMITED), (None, 1)], ids=["one listener", "all listeners"]
)
@on_each_loop
async def test_tls_handshake_counts_as_connection(tmp_path: Path, limits: Limits | None, per_ip: int) -> None:
    tls, counts = tls_of(Authority(tmp_path).issue("server")), ConnectionCounts(per_ip)
    async with serving({ApiKey.METADATA: at_once}, tls=tls, limits=limits, counts=counts) as server:
        _, waiting = await asyncio.open_connection("127.0.0.1", server.port)
        await until(lambda: counts.total == 1)
        async with connected(server) as second:
            assert await second.closed() == b""
        waiting.close()
        await until(lambda: counts.total == 0)


def test_a_burst_of_connections_passes_and_later_ones_wait_for_the_creation_rate() -> None:
    counts = ConnectionCounts(per_s_max=2)
    assert ConnectionCounts().delay_s(0.0) == 0.0, "just after the machine's start"
    assert [counts.delay_s(100.0) for _ in range(22)] == [0.0] * 20 + [0.5, 1.0]
    assert counts.delay_s(101.0) == 0.5
    while counts.delay_s(101.0) is not None:
        pass
    assert counts.delay_s(101.5) == 10.0, "one more every 0.5 s"
    assert counts.delay_s(101.5) is None
    assert counts.delay_s(1000.0) == 0.0


@pytest.mark.parametrize("is_secure", [False, True], ids=["PLAINTEXT", "SSL"])
@on_each_loop
async def test_max_connection_creation_rate_delays_connections(tmp_path: Path, is_secure: bool) -> None:
    """The TLS handshake, or the first request, waits."""
    authority = Authority(tmp_path)
    tls = tls_of(authority.issue("server")) if is_secure else None
    context = ssl.create_default_context(cafile=authority.file) if is_secure else None
    counts, now_s = ConnectionCounts(per_s_max=2), asyncio.get_running_loop().time
    async with serving({ApiKey.METADATA: at_once}, tls=tls, counts=counts) as server:
        began_s = now_s()
        while counts.delay_s(began_s) == 0.0:
            pass
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
        writer.write(metadata_request(1))
        assert (await reader.readexactly(8))[4:] == b"\0\0\0\1"
        assert now_s() >= began_s + 1
        writer.close()
        with capture_logs() as logs:
            while counts.delay_s(now_s()) is not None:
                pass
            async with connected(server) as another:
                assert await another.closed() == b""
        assert [log["reason"] for log in logs] == ["too many connections wait for max.connection.creation.rate"]


def _ticking() -> float:
    """A clock by which everything takes 6 ms."""
    _TICKS.append(0.006)
    return sum(_TICKS)


_TICKS: list[float] = []


def _failing() -> None:
    raise ZeroDivisionError


async def test_work_that_arrives_together_leaves_the_event_loop_to_others() -> None:
    done: list[int] = []
    turns = Turns(_ticking)
    for number in range(8):
        turns.add(partial(done.append, number))
    turns.add(_failing)
    turns.add(partial(done.append, 9))
    asyncio.get_running_loop().set_exception_handler(lambda *_: done.append(8))
    await asyncio.sleep(0)
    assert done == [0]
    await until(lambda: len(done) == 10)
    assert done == list(range(10)), "an exception ends no other work"


@on_each_loop
async def test_connections_max_idle_ms_closes_idle_connections() -> None:
    now = 0.0
    gates = Gates()
    service = serving({ApiKey.METADATA: gates}, limits=Limits(idle_ms_max=10_000), clock=lambda: now)
    async with service as server, connected(server) as idle, connected(server) as waiting:
        waiting.send(metadata_request(1, "gate1"))
        await gates.until(begun=1)
        now = 9.0
        idle.send(metadata_request(2))
        assert await idle.correlation_ids(1) == [2]
        now = 18.9
        server.close_idle()
        assert server.connections == 2
        now = 19.0
        with capture_logs() as logs:
            server.close_idle()
            assert await idle.closed() == b""
        assert [log["reason"] for log in logs] == ["idle"]
        gates.open("gate1")
        assert await waiting.correlation_ids(1) == [1]


@on_each_loop
async def test_idle_check_runs_periodically() -> None:
    limits = Limits(idle_ms_max=20)
    async with serving({ApiKey.METADATA: at_once}, limits=limits) as server, connected(server) as client:
        assert await client.closed() == b""


@on_each_loop
async def test_largest_partial_requests_are_shed_first() -> None:
    limits = Limits(held_bytes_max=1_000_000)
    with capture_logs() as logs:
        async with (
            serving({ApiKey.METADATA: at_once}, limits=limits) as server,
            connected(server) as large,
            connected(server) as small,
            connected(server) as last,
        ):
            for client, size in ((large, 600_000), (small, 300_000)):
                client.send((1_000_000).to_bytes(4, "big") + bytes(size))
            await until(lambda: server._held == 900_008)
            last.send((1_000_000).to_bytes(4, "big") + bytes(500_000))
            assert await large.closed() == b""
            await until(lambda: server.connections == 2)
            assert server._held == 800_008
            last.writer.close()
            small.writer.close()
            await until(lambda: server._held == 0)
    assert [log["reason"] for log in logs] == ["the buffers of all connections exceed queued.max.request.bytes=1000000"]


@on_each_loop
async def test_unsent_responses_count_for_queued_max_request_bytes() -> None:
    def handle(context: RequestContext, request: MetadataRequest) -> Answer:
        return MetadataResponse(brokers=(NodeEndpoint(host="x" * 30_000),) * 300)

    limits = Limits(held_bytes_max=20_000_000)
    async with serving({ApiKey.METADATA: handle}, limits=limits) as server, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(server)) for _ in range(6)]
        for client in clients:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            client.send(metadata_request(1))
        await until(lambda: server.connections < 6)
        await settled()
        assert server._held <= limits.held_bytes_max
        assert server.connections >= 2


def test_max_connections_per_ip_overrides_are_applied() -> None:
    counts = ConnectionCounts(2, {"192.0.2.9": 1, "192.0.2.8": 0})
    with capture_logs() as logs:
        assert [counts.admit("192.0.2.1") for _ in range(3)] == [True, True, False]
        assert [counts.admit("192.0.2.9") for _ in range(2)] == [True, False]
        assert not counts.admit("192.0.2.8")
    assert [log["reason"].rpartition(" ")[2] for log in logs] == ["2", "1", "0"]
    counts.release("192.0.2.1")
    assert counts.admit("192.0.2.1")


def test_total_connection_limit_is_enforced() -> None:
    counts = ConnectionCounts(descriptors_max=3)
    assert [counts.admit(f"192.0.2.{number}") for number in range(5)] == [True, True, True, False, False]
    counts.release("192.0.2.0")
    assert counts.total == 2
    assert counts.admit("192.0.2.4")


def test_disconnected_addresses_are_forgotten() -> None:
    counts = ConnectionCounts()
    for number in range(1000):
        counts.admit(str(number))
        counts.release(str(number))
    assert counts.total == 0
    assert not counts._by_host, "disconnected addresses remain"
