"""What a connection may have kept for it before a login."""

from __future__ import annotations

from contextlib import AsyncExitStack

from msgspec.structs import replace

from controller.kafka.messages import ApiKey
from controller.kafka.server.service import Limits
from tests.kafka.sasl.test_gate import Seen, log_in
from tests.kafka.sasl.users import rules
from tests.kafka.server.listener import connected, on_each_loop, serving, until


@on_each_loop
async def test_buffers_of_unauthenticated_clients_are_shed_first() -> None:
    limits = Limits(held_bytes_max=1_000_000)
    async with AsyncExitStack() as stack:
        service = serving({ApiKey.METADATA: Seen()}, sasl=rules(), limits=limits)
        server = await stack.enter_async_context(service)
        known = await stack.enter_async_context(connected(server))
        assert (await log_in(known)).error_code == 0
        known.send((700_000).to_bytes(4, "big") + bytes(600_000))
        await until(lambda: server._held == 600_004)
        for _ in range(20):
            stranger = await stack.enter_async_context(connected(server))
            stranger.send((500_000).to_bytes(4, "big") + bytes(100_000))
        await until(lambda: server.connections == 4)
        assert server._held == 600_004 + 3 * 100_004
        known.send(bytes(100_000))  # is no request, and is read as one: it is still there
        assert await known.closed() == b""


@on_each_loop
async def test_small_buffers_of_unauthenticated_clients_count() -> None:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            serving({ApiKey.METADATA: Seen()}, sasl=rules(), limits=Limits(held_bytes_max=1_000_000))
        )
        for _ in range(20):
            stranger = await stack.enter_async_context(connected(server))
            stranger.send((500_000).to_bytes(4, "big") + bytes(100_000))
        await until(lambda: server.connections == 9)
        assert server._held == 9 * 100_004


@on_each_loop
async def test_sasl_server_max_receive_size() -> None:
    small = replace(rules(), frame_bytes_max=2000)
    async with serving({ApiKey.METADATA: Seen()}, sasl=small) as server, connected(server) as client:
        client.send((2001).to_bytes(4, "big"))
        assert await client.closed() == b""
