"""Voters over real sockets, files and time, for tests."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from controller.brokers.kraft.catch_up import EventPages
from controller.kafka.connections import Security
from controller.kafka.handling import Answer, RequestContext
from controller.kafka.messages import ZERO_UUID, ApiKey, Message
from controller.kafka.messages.cluster import Listener
from controller.kafka.server.server import KafkaServer
from controller.quorum.files import QuorumFiles
from controller.quorum.node import QuorumNode
from controller.quorum.raft.effects import Options, Role
from controller.quorum.raft.voters import Voter
from tests.kafka.server.listener import table, until
from tests.quorum.logs import opened

PATIENCE_S = 60.0
FETCH_TIMEOUT_S = 5.0  # a busy machine may delay a leader for seconds
SERVED = (
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.FETCH,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.UPDATE_RAFT_VOTER,
)


class Seat:
    """A voter's folder and listener, which outlive its node."""

    def __init__(self, node_id: int, folder: Path) -> None:
        self.id, self.folder = node_id, folder
        self.node: QuorumNode | None = None
        self.log: QuorumFiles
        self.pages: Callable[[Any], Awaitable[Message]] | None = None
        """The handler of catch-up requests."""
        self.server = KafkaServer("127.0.0.1", 0, table(dict.fromkeys(SERVED, self._handle)))

    async def _handle(self, context: RequestContext, request: Message) -> Answer:
        if self.node is None:
            raise ConnectionResetError("down")
        if self.pages is not None and EventPages.takes(request):
            return await self.pages(request)
        return await self.node.request(request)

    @property
    def running(self) -> QuorumNode:
        assert self.node is not None, "the node is not running"
        return self.node

    @property
    def voter(self) -> Voter:
        return Voter(
            self.id, bytes([self.id]) * 16, (Listener(name="CONTROLLER", host="127.0.0.1", port=self.server.port),)
        )

    def boot(self, seats: list[Seat]) -> None:
        self.log = opened(self.folder)
        static = tuple(Voter(each.id, ZERO_UUID, each.voter.listeners) for each in seats)
        options = Options(
            cluster_id="cluster",
            me=self.voter,
            static=static,
            fetch_timeout_s=FETCH_TIMEOUT_S,
            election_timeout_s=0.5,
            priority=0,
        )
        chance = random.Random(self.id).random
        self.node = QuorumNode(self.log, options, chance, lambda: int(time.time() * 1000), Security())
        self.node.start()

    async def stop(self) -> None:
        node, self.node = self.node, None
        if node is not None:
            await node.stop()
            self.log.close()


@asynccontextmanager
async def quorum(folder: Path, count: int = 3) -> AsyncIterator[list[Seat]]:
    seats = [Seat(node_id, folder / str(node_id)) for node_id in range(1, count + 1)]
    for seat in seats:
        await seat.server.start()
    for seat in seats:
        seat.boot(seats)
    try:
        yield seats
    finally:
        for seat in seats:
            await seat.stop()
            await seat.server.stop(0.1)


def leaders(seats: list[Seat]) -> list[QuorumNode]:
    nodes = [each.node for each in seats if each.node is not None]
    return [node for node in nodes if node.quorum.role is Role.LEADER and node.quorum.high_watermark >= 0]


async def led(seats: list[Seat]) -> QuorumNode:
    await until(lambda: bool(leaders(seats)))
    return max(leaders(seats), key=lambda node: node.quorum.epoch)


def are_alike(seats: list[Seat], end: int) -> bool:
    return all(each.node is not None and each.node.quorum.high_watermark >= end for each in seats)
