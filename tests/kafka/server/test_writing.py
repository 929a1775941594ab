"""A connection writes ready responses together, and stops while the client does not read. After a quota violation it
reads nothing for the throttle time (KIP-219)."""

import asyncio
from typing import Any, cast

from controller.kafka.handling import Answer, RequestContext
from controller.kafka.messages import ApiKey
from controller.kafka.messages.clients import NodeEndpoint
from controller.kafka.messages.topics import MetadataRequest, MetadataResponse
from controller.kafka.server.connection import Connection
from controller.kafka.server.server import KafkaServer
from tests.kafka.server.listener import metadata_request, table
from tests.simulation.virtual_time import on_virtual_time, virtual_loop

MUTED_S = 0.3


class Recorder:
    """A transport that records writes."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.reading = True
        self.closed = False

    def get_extra_info(self, name: str) -> Any:
        return ("192.0.2.1", 5) if name == "peername" else None

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


class Bench:
    """A connection on a recording transport. The test completes the futures of its handler."""

    def __init__(self) -> None:
        self.futures: list[asyncio.Future[Answer]] = []
        self.contexts: list[RequestContext] = []
        self.server = server = KafkaServer("", 0, table({ApiKey.METADATA: self._handle}))
        server.loop = asyncio.get_running_loop()
        server.clock = self._clock
        self.now = 0.0
        self.tick = 0.0
        self.transport = Recorder()
        self.connection = Connection(server)
        self.connection.connection_made(cast(asyncio.Transport, self.transport))

    def _clock(self) -> float:
        self.now += self.tick
        return self.now

    def _handle(self, context: RequestContext, request: MetadataRequest) -> asyncio.Future[Answer]:
        self.contexts.append(context)
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]

    async def answer(self, *numbers: int, size: int = 1) -> None:
        """Complete these requests, and let the connection run."""
        for number in numbers:
            self.futures[number].set_result(MetadataResponse(brokers=(NodeEndpoint(host="x" * size),)))
        for _ in range(3):
            await asyncio.sleep(0)


async def test_ready_responses_are_sent_in_one_write() -> None:
    bench = Bench()
    bench.connection.data_received(
        metadata_request(1) + metadata_request(2) + metadata_request(3) + metadata_request(4)
    )
    await bench.answer(0, 1, 2)
    assert len(bench.transport.writes) == 1
    await bench.answer(3)
    assert len(bench.transport.writes) == 2


async def test_large_responses_are_written_in_parts() -> None:
    bench = Bench()
    bench.connection.data_received(b"".join(map(metadata_request, range(40))))
    await bench.answer(*range(40), size=20_000)
    assert len(bench.transport.writes) > 1
    assert max(map(len, bench.transport.writes)) < 300_000


async def test_pause_writing_stops_reading_and_handlers() -> None:
    bench = Bench()
    bench.connection.data_received(metadata_request(1))
    bench.connection.pause_writing()
    bench.connection.data_received(metadata_request(2))
    await bench.answer(0)
    assert (bench.transport.writes, len(bench.futures), bench.transport.reading) == ([], 1, False)
    bench.connection.resume_writing()
    await asyncio.sleep(0)
    assert (len(bench.transport.writes), len(bench.futures), bench.transport.reading) == (1, 2, True)
    await bench.answer(1)
    assert len(bench.transport.writes) == 2


async def test_resumed_client_is_not_idle() -> None:
    bench = Bench()
    bench.connection.pause_writing()
    bench.now = 50.0
    assert bench.connection.idle_s() == 50.0
    bench.connection.resume_writing()
    assert bench.connection.idle_s() == 0.0


async def test_connection_yields_to_the_loop() -> None:
    bench = Bench()
    bench.tick = 0.002
    bench.connection.data_received(b"".join(map(metadata_request, range(8))))
    assert 1 <= len(bench.futures) < 8, "all requests were started without yielding to the loop"
    assert not bench.transport.reading
    for _ in range(8):
        await asyncio.sleep(0)
    assert len(bench.futures) == 8
    assert bench.transport.reading


async def test_no_write_to_a_closing_transport() -> None:
    bench = Bench()
    bench.connection.data_received(metadata_request(1))
    bench.transport.closed = True
    await bench.answer(0)
    assert bench.transport.writes == []


@on_virtual_time
async def test_muted_connection_starts_no_requests() -> None:
    bench = Bench()
    bench.connection.data_received(metadata_request(1))
    bench.contexts[0].connection.mute(MUTED_S)
    bench.connection.data_received(metadata_request(2) + metadata_request(3))
    await bench.answer(0)
    assert len(bench.transport.writes) == 1, "the response itself is not delayed"
    await asyncio.sleep(MUTED_S * 0.99)
    assert (len(bench.futures), bench.transport.reading) == (1, False)
    other = Connection(bench.server)
    other.connection_made(cast(asyncio.Transport, Recorder()))
    other.data_received(metadata_request(9))
    assert [context.correlation_id for context in bench.contexts] == [1, 9], "other connections are not muted"
    await asyncio.sleep(MUTED_S * 0.02)
    assert [context.correlation_id for context in bench.contexts] == [1, 9, 2, 3]
    assert bench.transport.reading


@on_virtual_time
async def test_longest_throttle_time_wins() -> None:
    bench = Bench()
    bench.connection.data_received(metadata_request(1))
    bench.contexts[0].connection.mute(MUTED_S)
    bench.contexts[0].connection.mute(2 * MUTED_S)
    bench.contexts[0].connection.mute(MUTED_S / 2)
    bench.connection.data_received(metadata_request(2))
    await asyncio.sleep(1.5 * MUTED_S)
    assert len(bench.futures) == 1
    await asyncio.sleep(MUTED_S)
    assert len(bench.futures) == 2


@on_virtual_time
async def test_a_disconnect_while_muted_leaves_no_timers() -> None:
    bench = Bench()
    bench.connection.data_received(metadata_request(1))
    bench.contexts[0].connection.mute(MUTED_S)
    bench.connection.connection_lost(None)
    await asyncio.sleep(2 * MUTED_S)
    assert bench.futures[0].cancelled()
    assert (bench.server.connections, bench.transport.writes, virtual_loop().timers()) == (0, [], [])
