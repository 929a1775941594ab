"""Connections on asyncio's loop and on uvloop: order of responses, errors, stop."""

import asyncio
import contextlib
import socket
from typing import Any

import pytest
from structlog.testing import capture_logs

from controller.kafka.handling import Answer, RequestContext
from controller.kafka.messages import ApiKey
from controller.kafka.messages.topics import MetadataRequest, MetadataResponse
from controller.kafka.server.server import KafkaServer
from tests.kafka.server.listener import (
    Gates,
    at_once,
    connected,
    frame,
    header,
    metadata_request,
    on_each_loop,
    serving,
    settled,
    table,
    until,
)


@on_each_loop
async def test_pipelined_requests_are_answered_in_order() -> None:
    gates = Gates()
    async with serving({ApiKey.METADATA: gates}) as server, connected(server) as client:
        client.send(
            metadata_request(1, "gate1"),
            metadata_request(2, "free"),
            metadata_request(3, "gate3"),
            metadata_request(4, "free"),
        )
        await gates.until(begun=4)
        assert gates.begun == ["gate1", "free", "gate3", "free"]
        gates.open("gate3")
        await settled()
        assert not client.reader._buffer, "a response overtook the first"  # type: ignore[attr-defined]
        gates.open("gate1")
        assert await client.correlation_ids(4) == [1, 2, 3, 4]


@on_each_loop
async def test_handlers_may_return_messages_or_futures() -> None:
    waiting: list[asyncio.Future[Answer]] = []

    def handle(context: RequestContext, request: MetadataRequest) -> Any:
        if context.correlation_id == 2:
            waiting.append(asyncio.get_running_loop().create_future())
            return waiting[0]
        return MetadataResponse(controller_id=context.correlation_id)

    async with serving({ApiKey.METADATA: handle}) as server, connected(server) as client:
        client.send(metadata_request(1), metadata_request(2), metadata_request(3))
        assert await client.correlation_ids(1) == [1]
        waiting[0].set_result(MetadataResponse())
        assert await client.correlation_ids(2) == [2, 3]


@on_each_loop
async def test_handlers_receive_the_request_context() -> None:
    seen: list[RequestContext] = []

    def handle(context: RequestContext, request: MetadataRequest) -> Answer:
        seen.append(context)
        return MetadataResponse()

    async with serving({ApiKey.METADATA: handle}) as server, connected(server) as client:
        introduction = b"\x00" + b"\x05me.1" + b"\x041.0" + b"\0"
        client.send(frame(header(18, 3) + introduction), metadata_request(2))
        await client.correlation_ids(2)
        (context,) = seen
        host, port = client.writer.get_extra_info("sockname")
        assert context.peer == f"{host}:{port}"
        assert (context.connection.session.listener, context.principal) == ("PLAINTEXT", "User:ANONYMOUS")
        assert (context.api_key, context.api_version, context.client_id) == (3, 1, "test")
        assert context.connection.software == "me.1 1.0"


@pytest.mark.parametrize(
    ("sent", "log"),
    [
        (frame(header(3, 99)), {"reason": "unsupported version", "api": "Metadata", "version": 99, "client_id": "x"}),
        (frame(header(999, 1)), {"reason": "unsupported API", "api": 999, "version": 1, "client_id": "x"}),
        (b"GET / HTTP/1.1\r\n", {"reason": "frame: 1195725856 bytes announced, 0 to 4194304 allowed"}),
        (
            frame(header(3, 1) + b"\x7f\xff\xff\xff"),
            {
                "reason": "Metadata v1 request: topics: 2147483647 elements announced, 0 bytes left",
                "api": "Metadata",
                "version": 1,
                "client_id": "x",
            },
        ),
        (
            metadata_request(2, "disconnect"),
            {"reason": "because I say so", "api": "Metadata", "version": 1, "client_id": "test"},
        ),
    ],
    ids=["version", "key", "size", "array", "disconnect"],
)
@pytest.mark.parametrize("handler", [at_once, Gates], ids=["plain", "async"])
@on_each_loop
async def test_disconnect_follows_earlier_responses(handler: Any, sent: bytes, log: dict[str, Any]) -> None:
    handle = handler() if handler is Gates else handler
    with capture_logs() as logs:
        async with serving({ApiKey.METADATA: handle}) as server, connected(server) as client:
            client.send(metadata_request(1), sent, metadata_request(3))
            assert await client.correlation_ids(1) == [1]
            assert await client.closed() == b""
            host, port = client.writer.get_extra_info("sockname")
    common = {"event": "connection_closed", "log_level": "warning", "listener": "PLAINTEXT"}
    assert logs == [common | {"peer": f"{host}:{port}"} | log]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("raise", "the handler failed"),
        ("nonsense", "the handler failed"),
        ("unencodable", "the response cannot be encoded"),
    ],
)
@on_each_loop
async def test_handler_exception_closes_only_its_connection(name: str, reason: str) -> None:
    with capture_logs() as logs:
        async with serving({ApiKey.METADATA: at_once}) as server, connected(server) as other:
            async with connected(server) as client:
                client.send(metadata_request(1), metadata_request(2, name), metadata_request(3))
                assert await client.correlation_ids(1) == [1]
                assert await client.closed() == b""
            other.send(metadata_request(4))
            assert await other.correlation_ids(1) == [4]
    (log,) = logs
    assert (log["event"], log["log_level"], log["reason"]) == ("connection_closed", "error", reason)
    assert isinstance(log["exc_info"], Exception)


@on_each_loop
async def test_cancelled_handler_closes_the_connection() -> None:
    def handle(context: RequestContext, request: MetadataRequest) -> Any:
        given: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        given.cancel()
        if context.correlation_id == 1:
            return given
        return wait_for(given)

    async def wait_for(given: asyncio.Future[Answer]) -> Answer:
        return await given

    for number in (1, 2):
        with capture_logs() as logs:
            async with serving({ApiKey.METADATA: handle}) as server, connected(server) as client:
                client.send(metadata_request(number))
                assert await client.closed() == b""
        assert [log["reason"] for log in logs] == ["the handler failed"]


@on_each_loop
async def test_disconnect_cancels_handlers() -> None:
    gates = Gates()
    outcomes: list[str] = []
    with capture_logs() as logs:
        async with serving({ApiKey.METADATA: gates}, on_request=lambda *report: outcomes.append(report[2])) as server:
            async with connected(server) as client:
                client.send(metadata_request(1, "gate1"), metadata_request(2, "gate2"))
                await gates.until(begun=2)
            await gates.until(cancelled=2)
            await until(lambda: server.connections == 0)
    assert sorted(gates.cancelled) == ["gate1", "gate2"]
    assert outcomes == ["cancelled", "cancelled"]
    assert logs == []


@on_each_loop
async def test_on_request_reports_every_outcome() -> None:
    reports: list[tuple[Any, ...]] = []
    ticks = iter(range(1000))
    async with serving(
        {ApiKey.METADATA: at_once},
        on_request=lambda *one: reports.append(one[:3]) if one[3] >= 0 else None,
        clock=lambda: float(next(ticks)) / 1000,
    ) as server:
        for last in (
            frame(header(999, 1)),
            frame(header(3, 1)),
            metadata_request(3, "raise"),
            metadata_request(3, "disconnect"),
        ):
            async with connected(server) as client:
                client.send(metadata_request(1), metadata_request(2, "nothing"), frame(header(18, 9)), last)
                await client.closed()
    common = [(3, 1, "answered"), (3, 1, "unanswered"), (18, -1, "unsupported")]
    lasts = [(-1, -1, "unsupported"), (3, 1, "malformed"), (3, 1, "failed"), (3, 1, "disconnected")]
    assert reports == [one for last in lasts for one in (*common, last)]


@on_each_loop
async def test_stop_drains_connections() -> None:
    gates = Gates()
    service = serving({ApiKey.METADATA: gates})
    async with service as server, connected(server) as client, connected(server) as resting:
        client.send(metadata_request(1, "gate1"), metadata_request(2, "free"))
        await gates.until(begun=2)
        stopping = asyncio.create_task(server.stop(5))
        assert await resting.closed() == b""
        client.send(metadata_request(3, "free"))
        await settled()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", server.port)
        assert not stopping.done()
        gates.open("gate1")
        assert await client.correlation_ids(2) == [1, 2]
        assert await client.closed() == b""
        await stopping
        assert gates.begun == ["gate1", "free"]


@on_each_loop
@pytest.mark.parametrize("turns", range(4))
async def test_stop_closes_connections_just_accepted(turns: int) -> None:
    server = KafkaServer("127.0.0.1", 0, table({}))
    await server.start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.stop()
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""


async def test_stop_aborts_after_the_deadline() -> None:
    gates = Gates()
    async with serving({ApiKey.METADATA: gates}) as server, connected(server) as client:
        client.send(metadata_request(1, "gate1"))
        await gates.until(begun=1)
        with capture_logs() as logs:
            await server.stop(0.01)
        assert await client.closed() == b""
        assert gates.cancelled == ["gate1"]
        assert [log["event"] for log in logs] == ["connections_aborted"]


@on_each_loop
async def test_stop_does_not_wait_for_stuck_handlers() -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def stubborn(context: RequestContext, request: MetadataRequest) -> Answer:
        begun.set()
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()
        return MetadataResponse()

    async with serving({ApiKey.METADATA: stubborn}) as server, connected(server) as client:
        client.send(metadata_request(1))
        await begun.wait()
        with capture_logs() as logs:
            await server.stop(0.01)
        assert [log["event"] for log in logs] == ["connections_aborted", "handlers_not_cancelled"]
        release.set()


@on_each_loop
async def test_listeners_have_their_own_tables() -> None:
    async def advertised(server: KafkaServer) -> list[int]:
        async with connected(server) as client:
            client.send(frame(header(18, 0)))
            _, response = await client.answer_to(18, 0)
            return [api.api_key for api in response.api_keys]

    async with serving({ApiKey.METADATA: at_once}) as full, serving({}) as bare:
        assert await advertised(full) == [3, 18]
        assert await advertised(bare) == [18]
