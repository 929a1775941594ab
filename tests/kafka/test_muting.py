"""A connection that has used up a quota is answered, and then not read from for a while (KIP-219)."""

from __future__ import annotations

import asyncio

from controller.kafka.handling import Answer, RequestContext
from controller.kafka.messages import ApiKey
from controller.kafka.messages.metadata import MetadataRequest, MetadataResponse
from tests.kafka.gates import settled
from tests.kafka.serving import Run, ask, connected, run, serving

__all__ = ["run"]

SILENCE_S = 0.3


def test_a_muted_connection_is_answered_and_begins_nothing_until_the_time_is_over(run: Run) -> None:
    async def scenario() -> None:
        begun: list[tuple[int, float]] = []

        def handle(context: RequestContext, request: MetadataRequest) -> Answer:
            begun.append((context.correlation_id, asyncio.get_running_loop().time()))
            if context.correlation_id == 1:
                context.connection.mute(SILENCE_S)
            return MetadataResponse()

        async with serving({ApiKey.METADATA: handle}) as server, connected(server) as client:
            client.send(ask(1), ask(2), ask(3))
            assert await client.correlation_ids(1) == [1], "the answer itself does not wait"
            await settled()
            assert [number for number, _ in begun] == [1]
            async with connected(server) as other:
                other.send(ask(9))
                assert await other.correlation_ids(1) == [9], "nobody else is muted"
            assert await client.correlation_ids(2) == [2, 3]
            numbers = [number for number, _ in begun]
            assert sorted(numbers) == [1, 2, 3, 9]

    run(scenario)


def test_a_client_that_leaves_while_muted_leaves_nothing_behind(run: Run) -> None:
    async def scenario() -> None:
        def handle(context: RequestContext, request: MetadataRequest) -> Answer:
            context.connection.mute(0.05)
            context.connection.mute(0.1)
            return MetadataResponse()

        async with serving({ApiKey.METADATA: handle}) as server:
            async with connected(server) as client:
                client.send(ask(1))
                assert await client.correlation_ids(1) == [1]
            await asyncio.sleep(0.15)
            assert server.connections == 0

    run(scenario)
