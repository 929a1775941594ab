"""Voters over real sockets, files and time, and changes of the voter set (KIP-853) that traces cannot test."""

import asyncio
import contextlib
from pathlib import Path
from unittest.mock import Mock

import pytest

from controller.kafka.messages.cluster import Listener
from controller.kafka.messages.quorum import KRaftVersionFeature, UpdateRaftVoterRequest
from controller.quorum.raft.effects import NotLeader
from tests.kafka.server.listener import until
from tests.quorum.seats import PATIENCE_S, Seat, are_alike, led, quorum
from tests.quorum.worlds import leader_of, others, quorum_of, settled
from tests.simulation.quorum.world import CLUSTER


async def commit(seats: list[Seat], value: bytes) -> int:
    """Commit a record with the current leader, which may change on a busy machine; returns the offset."""
    while True:
        leader = await led(seats)
        with contextlib.suppress(NotLeader):
            offset = leader.append([(None, value)])
            await asyncio.wait_for(leader.committed(offset), PATIENCE_S)
            return offset


async def test_committed_records_reach_all_voters_and_survive_the_leader(tmp_path: Path) -> None:
    async with quorum(tmp_path) as seats:
        for number in range(5):
            offset = await commit(seats, b"record %d" % number)
        await until(lambda: are_alike(seats, offset + 1))
        leader = await led(seats)
        seat = next(each for each in seats if each.node is leader)
        await seat.stop()
        last = await commit(seats, b"of the next leader")
        seat.boot(seats)
        await until(lambda: are_alike(seats, last + 1))
        logs = {each.log.read(0, 1 << 20) for each in seats}
        assert len(logs) == 1, "the logs must be equal byte for byte"


async def test_a_disk_failure_ends_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with quorum(tmp_path, 1) as (seat,):
        node = seat.running
        monkeypatch.setattr(seat.log, "flush", Mock(side_effect=OSError("the disk is gone")))
        offset = node.append([(None, b"x")])
        with pytest.raises(NotLeader):
            await asyncio.wait_for(node.committed(offset), PATIENCE_S)
        with pytest.raises(OSError, match="the disk is gone"):
            await node.ended
        with pytest.raises(NotLeader):
            node.append([(None, b"y")])


def test_a_voter_sends_update_raft_voter_until_the_voter_set_has_its_listeners() -> None:
    world = settled(is_dynamic=True)
    replica, leader = others(world)[0], leader_of(world)
    request = UpdateRaftVoterRequest(
        cluster_id=CLUSTER,
        current_leader_epoch=quorum_of(leader).epoch,
        voter_id=replica.id,
        voter_directory_id=replica.disk.directory,
        listeners=(Listener(name="CONTROLLER", host="elsewhere", port=replica.id),),
        k_raft_version_feature=KRaftVersionFeature(max_supported_version=1),
    )
    leader.administer(request)
    core = quorum_of(leader)
    assert core.address_of(core.voters.by_id[replica.id]) == ("elsewhere", replica.id)
    world.run_until(world.now + 10)
    for each in map(quorum_of, world.replicas.values()):
        assert each.address_of(each.voters.by_id[replica.id]) == ("node", replica.id)
