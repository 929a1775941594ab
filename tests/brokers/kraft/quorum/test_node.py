"""Voters over real sockets, files and time."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from controller.brokers.cluster.security import Security
from controller.brokers.kraft.quorum.files import QuorumFiles
from controller.brokers.kraft.quorum.node import QuorumNode
from controller.brokers.kraft.quorum.raft.effects import NotLeader, Options, Role
from controller.brokers.kraft.quorum.raft.voters import Listener, Voter
from controller.kafka.handling import Answer, RequestContext
from controller.kafka.messages import ZERO_UUID, ApiKey, Message
from controller.kafka.server.server import KafkaServer
from tests.brokers.kraft.quorum.logs import opened
from tests.kafka.server.listener import table, until

PATIENCE_S = 60.0
FETCH_TIMEOUT_S = 0.6
SERVED = (
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.FETCH,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.UPDATE_RAFT_VOTER,
)


class Seat:
    """One voter's folder and listener; its node may come and go."""

    def __init__(self, node_id: int, folder: Path) -> None:
        self.id, self.folder = node_id, folder
        self.node: QuorumNode | None = None
        self.log: QuorumFiles | None = None
        self.server = KafkaServer("127.0.0.1", 0, table(dict.fromkeys(SERVED, self._handle)))

    async def _handle(self, context: RequestContext, request: Message) -> Answer:
        if self.node is None:
            raise ConnectionResetError("down")
        return await self.node.request(request)

    @property
    def voter(self) -> Voter:
        return Voter(self.id, bytes([self.id]) * 16, (Listener("CONTROLLER", "127.0.0.1", self.server.port),))

    def boot(self, seats: list[Seat]) -> None:
        self.log = opened(self.folder)
        static = tuple(Voter(each.id, ZERO_UUID, each.voter.listeners) for each in seats)
        options = Options(
            cluster_id="cluster",
            me=self.voter,
            static=static,
            fetch_timeout_s=FETCH_TIMEOUT_S,
            election_timeout_s=0.3,
            priority=0,
        )
        chance = random.Random(self.id).random
        self.node = QuorumNode(self.log, options, chance, lambda: int(time.time() * 1000), Security())
        self.node.start()

    async def stop(self) -> None:
        node, self.node = self.node, None
        if node is not None and self.log is not None:
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


async def test_what_is_committed_is_on_all_voters_and_outlives_the_leader(tmp_path: Path) -> None:
    async with quorum(tmp_path) as seats:
        leader = await led(seats)
        for number in range(20):
            offset = leader.append([(None, b"record %d" % number)])
            await asyncio.wait_for(leader.committed(offset), PATIENCE_S)
        await until(lambda: are_alike(seats, offset + 1))
        seat = next(each for each in seats if each.node is leader)
        await seat.stop()
        next_leader = await led(seats)
        last = next_leader.append([(None, b"of the next leader")])
        await asyncio.wait_for(next_leader.committed(last), PATIENCE_S)
        seat.boot(seats)
        await until(lambda: are_alike(seats, last + 1))
        logs = {each.log.read(0, 1 << 20) for each in seats if each.log is not None}
        assert len(logs) == 1, "byte for byte"


async def test_a_leader_hands_over_and_what_comes_late_is_not_led(tmp_path: Path) -> None:
    async with quorum(tmp_path) as seats:
        leader = await led(seats)
        offset = leader.append([(None, b"taken")])
        await leader.hand_over(PATIENCE_S)
        assert leader.quorum.leader_id not in (-1, leader.quorum.me.id)
        assert leader.quorum.high_watermark > offset
        with pytest.raises(NotLeader):
            leader.append([(None, b"late")])


async def test_a_leader_alone_commits_nothing_and_says_so(tmp_path: Path) -> None:
    async with quorum(tmp_path) as seats:
        leader = await led(seats)
        for seat in seats:
            if seat.node is not leader:
                await seat.stop()
        offset = leader.append([(None, b"alone")])
        with pytest.raises(NotLeader):
            await asyncio.wait_for(leader.committed(offset), PATIENCE_S)
        assert leader.quorum.high_watermark <= offset


async def test_one_voter_is_its_own_majority(tmp_path: Path) -> None:
    async with quorum(tmp_path, 1) as (seat,):
        assert seat.node is not None
        offset = seat.node.append([(None, b"x")])
        await asyncio.wait_for(seat.node.committed(offset), PATIENCE_S)


async def test_kraft_version_is_raised(tmp_path: Path) -> None:
    async with quorum(tmp_path) as seats:
        leader = await led(seats)
        changes = leader.quorum.leading
        assert changes is not None
        await until(lambda: len(changes.changes._known) == 2)
        leader.raise_kraft_version()
        await until(lambda: all(each.node is not None and each.node.quorum.kraft_version == 1 for each in seats))


async def test_a_disk_that_fails_ends_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with quorum(tmp_path, 1) as (seat,):
        node = seat.node
        assert node is not None

        def failing() -> int:
            raise OSError("the disk is gone")

        monkeypatch.setattr(seat.log, "flush", failing)
        offset = node.append([(None, b"x")])
        with pytest.raises(NotLeader):
            await asyncio.wait_for(node.committed(offset), PATIENCE_S)
        with pytest.raises(OSError, match="the disk is gone"):
            await node.ended
        with pytest.raises(NotLeader):
            node.append([(None, b"y")])
