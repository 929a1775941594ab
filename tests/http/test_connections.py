"""Limits of connections: idle clients, incomplete requests, and clients that do not read their response."""

import asyncio
import re
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

from controller.http import connections, following, query_threads
from controller.http.connections import READ_BLOCK_BYTES
from controller.kafka.server.server import ConnectionCounts
from controller.kafka.server.tls import Tls
from tests.http.service import Service, followers, service
from tests.security.certificates import Authority

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
LIVE = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
TOPICS = b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n"
BROKERS = b"GET /v1/brokers HTTP/1.1\r\nHost: localhost\r\n\r\n"
FOLLOW = b"GET /v1/events/follow?from=0 HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /v1/topics HTTP/1.1\r\nHost: localhost\r\n"
ENDS_WITHIN_S = 60


class Opened:
    """Connections that a test opens to a port."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._streams: list[Streams] = []

    async def send(self, *pieces: bytes, host: str = "127.0.0.1") -> Streams:
        """Open a connection from this address, and send bytes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(host, 0))
        self._streams.append((reader, writer))
        for piece in pieces:
            writer.write(piece)
        await writer.drain()
        return reader, writer

    async def status(self, *pieces: bytes) -> int:
        """Returns the response status for bytes sent on a new connection, or 0 without a response."""
        reader, _ = await self.send(*pieces)
        line = await asyncio.wait_for(reader.readline(), ENDS_WITHIN_S)
        return int(line.split()[1]) if line else 0

    def close(self) -> None:
        for _, writer in self._streams:
            writer.close()


@pytest.fixture
def to(one: Service) -> Iterator[Opened]:
    """Yields an opener of connections to a service."""
    connections_opened = Opened(one.port)
    yield connections_opened
    connections_opened.close()


async def _ended(reader: asyncio.StreamReader) -> bytes:
    """Returns the bytes received before the connection was closed."""
    try:
        return await asyncio.wait_for(reader.read(), ENDS_WITHIN_S)
    except ConnectionError:
        return b""


async def test_idle_connections_are_replaced(to: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 5)
    silent = [await to.send() for _ in range(20)]
    half = [await to.send(b"GET /v1/topics HTTP/1.1\r\nHo") for _ in range(20)]
    assert [await to.status(request) for request in (LIVE, TOPICS)] == [200, 200]
    for reader, _ in (*silent, *half[:10]):
        assert await _ended(reader) == b"", "the oldest connections are closed"


async def test_health_beyond_the_connection_limit(one: Service, to: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 2)
    monkeypatch.setattr(connections, "CONNECTIONS_FOR_HEALTH", 2)
    await one.client.aclose()
    at_work = [await to.send(FOLLOW) for _ in range(2)]
    await one.until(lambda: followers(one) == 2)
    assert await to.status(LIVE) == 200
    assert await to.status(TOPICS) == 503
    for reader, writer in at_work:
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
    await one.until(lambda: followers(one) == 0)
    assert await to.status(TOPICS) == 200


async def test_health_beyond_the_limit_of_open_files() -> None:
    counts = ConnectionCounts(descriptors_max=3)
    async with service() as one, one.another(counts=counts) as (_, port):
        to = Opened(port)
        assert all(counts.admit("kafka") for _ in range(3))
        idle = [await to.send() for _ in range(2 * connections.FILES_FOR_HEALTH)]
        assert [await to.status(request) for request in (LIVE, TOPICS, LIVE)] == [200, 503, 200]
        assert await _ended(idle[0][0]) == b"", "the oldest idle connection is closed"
        counts.release("kafka")
        assert await to.status(TOPICS) == 200
        to.close()


OWED = [
    (b"",),
    (b"GET /v1/topics HTTP/1.1\r\n",),
    (POST + b"Content-Length: 100\r\n\r\n{",),
    (POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",),
    (LIVE, b"GET"),
    (LIVE, POST + b"Content-Length: 100\r\n\r\n{"),
]


@pytest.mark.parametrize("pieces", OWED)
async def test_request_timeout(to: Opened, pieces: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.2)
    reader, writer = await to.send(pieces[0])
    if len(pieces) > 1:
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200"), "the complete request is answered"
        writer.write(pieces[1])
    assert b"HTTP/1.1 2" not in await _ended(reader)


async def test_slow_response_is_no_timeout(one: Service, to: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_S", 0.2)
    await one.request("PUT", "/v1/simulated/brokers/3/delay", json={"delay_ms": 60_000})
    body = b'{"name": "t", "timeout_ms": 600}'
    head = POST + b"Content-Length: %d\r\n\r\n" % len(body)
    assert await to.status(head + body) == 202


async def test_pipelined_requests(to: Opened) -> None:
    missing = b"GET /no HTTP/1.1\r\nHost: localhost\r\n\r\n"
    reader, writer = await to.send(LIVE + missing + LIVE + missing[:10])
    text, statuses = b"", [b""]
    while len(statuses) < 4:
        came = await asyncio.wait_for(reader.read(1000), ENDS_WITHIN_S)
        assert came, text
        text += came
        statuses = re.findall(rb"HTTP/1.1 (\d+)", text)
        if len(statuses) == 3:
            writer.write(missing[10:])
    assert statuses == [b"200", b"404", b"200", b"404"]


async def test_slow_readers_are_disconnected(one: Service, to: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STALL_S", 0.2)
    monkeypatch.setattr(following, "FOLLOWERS_MAX", 3)
    monkeypatch.setattr(
        following.Followers, "_chunk", lambda self, events, place, write: (b"x" * (1 << 20) + b"\n", place)
    )
    for _ in range(3):
        await to.send(FOLLOW)
    await one.until(lambda: followers(one) == 3)
    await one.until(lambda: followers(one) == 0)
    assert await to.status(FOLLOW) == 200, "disconnected followers make room for others"


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Replaces responses by 16 MiB, more than the socket buffers hold. Returns the list of answers that were
    encoded."""
    given: list[object] = []

    def encode(answer: object) -> bytes:
        given.append(answer)
        return b"x" * (16 << 20)

    monkeypatch.setattr(query_threads, "_encode", encode)
    return given


async def test_memory_of_unread_responses(to: Opened, answers: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "RESPONSE_BYTES_MAX", 50 << 20)
    patient, _ = await to.send(BROKERS, host="127.0.0.2")
    assert (await patient.readline()).startswith(b"HTTP/1.1 200")
    greedy = []
    for _ in range(5):
        greedy.append((await to.send(BROKERS))[0])
        assert (await greedy[-1].readline()).startswith(b"HTTP/1.1 200")
    for reader in greedy[:3]:
        assert len(await _ended(reader)) < 16 << 20, "the oldest response of the address with most memory is dropped"
    for reader in (patient, *greedy[3:]):
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), ENDS_WITHIN_S)
        assert await asyncio.wait_for(reader.readexactly(16 << 20), ENDS_WITHIN_S)


async def test_pipelining_waits_for_the_reader(
    one: Service, to: Opened, answers: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "STALL_S", 0.2)
    await one.client.aclose()
    await to.send(BROKERS * 10)
    state = one.http._listener.state
    await one.until(lambda: bool(answers) and not state.connections)
    assert len(answers) == 1


async def test_disconnect_cancels_the_handler(one: Service, to: Opened) -> None:
    await one.request("PUT", "/v1/simulated/brokers/3/delay", json={"delay_ms": 60_000})
    body = b'{"name": "t", "timeout_ms": 2000000000}'
    _, writer = await to.send(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    await one.until(lambda: one.api.store.durable_named("t") is not None)
    state = one.http._listener.state
    assert len(state.tasks) == 1
    writer.close()
    await one.until(lambda: not state.tasks)


async def test_chunked_body_is_processed_in_blocks(to: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    take = H11Protocol.data_received

    def counted(self: H11Protocol, data: bytes) -> None:
        sizes.append(len(data))
        take(self, data)

    monkeypatch.setattr(H11Protocol, "data_received", counted)
    text = b'{"name": "t"' + b" " * 40_000 + b"}"
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in text) + b"0\r\n\r\n"
    reader, writer = await to.send(POST + b"Transfer-Encoding: chunked\r\n\r\n")
    writer.write(chunks)
    assert (await asyncio.wait_for(reader.readline(), ENDS_WITHIN_S)).startswith(b"HTTP/1.1 201")
    writer.write(LIVE)
    assert b'"live"' in await asyncio.wait_for(reader.readuntil(b'"live"'), ENDS_WITHIN_S), "the connection still works"
    assert max(sizes) <= READ_BLOCK_BYTES
    assert sum(sizes) > len(chunks)


async def test_connections_per_ip() -> None:
    counts = ConnectionCounts(per_ip_max=2)
    async with service() as one, one.another(counts=counts) as (_, port):
        to = Opened(port)
        held = [await to.send() for _ in range(2)]
        await one.until(lambda: counts.total == 2)
        reader, _ = await to.send(LIVE)
        assert await _ended(reader) == b"", "the connection over the limit is closed"
        held[0][1].close()
        await one.until(lambda: counts.total == 1)
        assert await to.status(LIVE) == 200
        to.close()
    assert not counts.total, "every counted connection is released"


async def test_tls_handshakes_count_as_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 3)
    authority = Authority(tmp_path)
    tls = Tls(keystore=authority.issue("server").keystore)
    trusting = ssl.create_default_context(cafile=authority.file)
    counts = ConnectionCounts()
    async with service() as one, one.another(tls=tls, counts=counts) as (_, port):
        to = Opened(port)
        silent = [await to.send() for _ in range(10)]
        async with httpx.AsyncClient(base_url=f"https://localhost:{to.port}", verify=trusting, timeout=240) as client:
            for path in ("/health/live", "/v1/topics", "/openapi.json"):
                assert (await client.get(path)).status_code == 200
            body = {"name": "t", "configs": {"retention.ms": "1" * 15}}
            assert (await client.post("/v1/topics", json=body)).is_success
        for reader, _ in silent[:7]:
            assert await _ended(reader) == b""
        await to.send(b"GET / HTTP/1.1\r\n\r\n")  # no TLS
        to.close()
        await one.until(lambda: not counts.total)
