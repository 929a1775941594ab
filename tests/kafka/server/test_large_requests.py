"""Large requests are decoded in a thread and handled in order. Unsent responses count towards the limit on bytes."""

import threading

from structlog.testing import capture_logs

from controller.kafka.handling import ApiHandler, RequestContext
from controller.kafka.messages import ApiKey
from controller.kafka.messages.clients import NodeEndpoint
from controller.kafka.messages.topics import MetadataRequest, MetadataRequestTopic, MetadataResponse
from controller.kafka.server.server import Limits
from tests.kafka.server.listener import (
    Gates,
    connected,
    metadata_request,
    on_each_loop,
    request,
    serving,
    settled,
    until,
)
from tests.kafka.server.test_writing import Bench

LARGE = MetadataRequest(topics=tuple(MetadataRequestTopic(name="gate") for _ in range(10_000)))


@on_each_loop
async def test_malformed_large_request_disconnects_after_earlier_responses() -> None:
    outcomes: list[str] = []
    gates = Gates()
    with capture_logs() as logs:
        async with (
            serving({ApiKey.METADATA: gates}, on_request=lambda *report: outcomes.append(report[2])) as server,
            connected(server) as client,
        ):
            whole = request(2, LARGE, version=1)
            size = len(whole) - 4 - 100
            cut = size.to_bytes(4, "big") + whole[4 : 4 + size]
            client.send(metadata_request(1, "gate1"), cut, metadata_request(3))
            await until(lambda: outcomes == ["malformed"])
            gates.open("gate1")
            assert await client.correlation_ids(1) == [1]
            assert await client.closed() == b""
    assert outcomes == ["malformed", "answered"]
    assert gates.begun == ["gate1"]
    [line] = logs
    assert (line["event"], line["api"]) == ("connection_closed", "Metadata")
    assert "topics" in line["reason"]


async def test_a_disconnect_while_decoding_frees_the_connection() -> None:
    bench = Bench()
    go_on = threading.Event()
    bench.server.reader.submit(go_on.wait, 30)
    bench.connection.data_received(request(1, LARGE, version=1))
    assert bench.server.connections == 1
    bench.connection.connection_lost(None)
    await until(lambda: bench.server.connections == 0)
    go_on.set()
    assert bench.futures == [], "a disconnected client's request is handled"
    bench.server.reader.shutdown()


@on_each_loop
async def test_unsent_responses_count_towards_bytes_in_flight() -> None:
    """Responses behind a blocked request wait as bytes, up to the limit."""
    begun: list[str] = []
    gates = Gates()

    def handle(context: RequestContext, request: MetadataRequest) -> object:
        assert request.topics
        begun.append(request.topics[0].name or "")
        if begun[-1] == "gate":
            return gates(context, request)
        return MetadataResponse(brokers=(NodeEndpoint(host="x" * 10_000),))

    limits = Limits(request_bytes_max=100_000)
    async with serving({ApiKey.METADATA: handle}, limits=limits) as server, connected(server) as client:  # type: ignore[dict-item]
        client.send(metadata_request(0, "gate"), *(metadata_request(number, "now") for number in range(1, 100)))
        await until(lambda: len(begun) >= 10)
        await settled()
        assert len(begun) == 11, "the blocked request, and as many responses as fit"
        gates.open("gate")
        assert await client.correlation_ids(100) == list(range(100))


@on_each_loop
async def test_list_requests_run_alone() -> None:
    gates = Gates()
    async with serving({ApiKey.METADATA: gates}) as server, connected(server) as client:
        row = server.handlers[ApiKey.METADATA]
        server.handlers = {ApiKey.METADATA: ApiHandler(row.min_version, row.max_version, row.handle, is_exclusive=True)}
        client.send(*(metadata_request(number, f"gate{number}") for number in range(3)))
        for number in range(3):
            await gates.until(begun=number + 1)
            await settled()
            assert len(gates.begun) == number + 1
            gates.open(f"gate{number}")
        assert await client.correlation_ids(3) == [0, 1, 2]
