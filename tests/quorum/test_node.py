"""Voters over real sockets, files and time, and changes of the voter set (KIP-853) that need more than a trace."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller.kafka.messages import ZERO_UUID
from controller.kafka.messages.message import Listener
from controller.kafka.messages.quorum import (
    DescribeQuorumRequest,
    KRaftVersionFeature,
    UpdateRaftVoterRequest,
)
from controller.machine.errors import ErrorCode
from controller.quorum.raft.effects import NotLeader, Refused
from tests.kafka.server.listener import until
from tests.quorum.seats import PATIENCE_S, Seat, are_alike, led, quorum
from tests.quorum.worlds import (
    OTHER_DISK,
    answer,
    leader_of,
    others,
    quorum_of,
    settled,
)
from tests.simulation.quorum.world import CLUSTER, Replica, World


async def commit(seats: list[Seat], value: bytes) -> int:
    """The offset of a record that whoever leads commits: on a busy machine leaders change."""
    while True:
        leader = await led(seats)
        with contextlib.suppress(NotLeader):
            offset = leader.append([(None, value)])
            await asyncio.wait_for(leader.committed(offset), PATIENCE_S)
            return offset


async def test_committed_records_are_on_all_voters_and_survive_the_leader(tmp_path: Path) -> None:
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
        assert len(logs) == 1, "byte for byte"


async def test_a_leader_that_handed_over_rejects_appends(tmp_path: Path) -> None:
    async with quorum(tmp_path) as seats:
        leader = await led(seats)
        offset = leader.append([(None, b"taken")])
        await leader.hand_over(PATIENCE_S)
        assert leader.quorum.leader_id not in (-1, leader.quorum.me.id)
        assert leader.quorum.high_watermark > offset
        with pytest.raises(NotLeader):
            leader.append([(None, b"late")])


async def test_a_leader_without_followers_commits_nothing(tmp_path: Path) -> None:
    async with quorum(tmp_path) as seats:
        leader = await led(seats)
        for seat in seats:
            if seat.node is not leader:
                await seat.stop()
        offset = leader.append([(None, b"alone")])
        with pytest.raises(NotLeader):
            await asyncio.wait_for(leader.committed(offset), PATIENCE_S)
        assert leader.quorum.high_watermark <= offset


async def test_kraft_version_is_raised(tmp_path: Path) -> None:
    async with quorum(tmp_path) as seats:
        leader = await led(seats)
        changes = leader.quorum.leading
        assert changes is not None
        await until(lambda: len(changes.changes._reported) == 2)
        leader.raise_kraft_version()
        await until(lambda: all(each.running.quorum.kraft_version == 1 for each in seats))


async def test_a_disk_that_fails_ends_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with quorum(tmp_path, 1) as (seat,):
        node = seat.running

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


def outcome(world: World, request: Any) -> int:
    """The error code of the leader's response."""
    world.counts.clear()
    leader_of(world).administer(request)
    world.run_until(world.now + 3)
    (code,) = [int(each.rpartition(" ")[2]) for each in world.counts if "VoterResponse" in each]
    return code


def test_invalid_voter_changes_are_rejected() -> None:
    world = settled(is_dynamic=True)
    voter = others(world)[0]
    assert outcome(world, voter.add_request()) == ErrorCode.DUPLICATE_VOTER
    assert outcome(world, voter.add_request(listeners=())) == ErrorCode.INVALID_REQUEST
    assert outcome(world, voter.remove_request(OTHER_DISK)) == ErrorCode.VOTER_NOT_FOUND
    assert answer(voter, voter.remove_request()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert outcome(world, voter.add_request(voter_id=77, voter_directory_id=OTHER_DISK)) == ErrorCode.REQUEST_TIMED_OUT
    static = settled(is_dynamic=False)
    assert outcome(static, others(static)[0].remove_request()) == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("change", [Replica.add_request, Replica.remove_request])
@pytest.mark.parametrize("fields", [{"voter_id": -1}, {"voter_directory_id": ZERO_UUID}], ids=["no id", "no directory"])
def test_a_voter_without_id_or_directory_is_an_invalid_request(change: Any, fields: dict[str, Any]) -> None:
    world = settled(is_dynamic=True)
    request = msgspec.structs.replace(change(others(world)[0]), **fields)
    assert answer(leader_of(world), request).error_code == ErrorCode.INVALID_REQUEST
    assert len(quorum_of(leader_of(world)).voters) == 3


def test_a_voter_needs_an_endpoint_for_the_controllers_listener() -> None:
    world = settled(is_dynamic=True)
    gone = others(world)[0]
    assert outcome(world, gone.remove_request()) == ErrorCode.NONE
    other = Listener(name="OTHER", host="elsewhere", port=1)
    refused = answer(leader_of(world), gone.add_request(listeners=(other,)))
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert refused.error_message == "the endpoints must include one for the controllers' listener CONTROLLER"
    assert outcome(world, gone.add_request(listeners=(other, *gone.add_request().listeners))) == ErrorCode.NONE


def test_voters_change_one_at_a_time() -> None:
    world = settled(5, is_dynamic=True)
    leader, (a, b, *_) = leader_of(world), others(world)
    leader.administer(a.remove_request())
    assert answer(leader, b.remove_request()).error_code == ErrorCode.REQUEST_TIMED_OUT
    world.run_until(world.now + 1)
    assert outcome(world, b.remove_request()) == ErrorCode.NONE


def test_kraft_version_is_raised_when_all_voters_have_sent_their_directory_ids() -> None:
    world = settled(is_dynamic=False)
    leader = leader_of(world)
    leader.does(lambda quorum: quorum.raise_kraft_version(leader.now()))
    world.run_until(world.now + 1)
    for replica in world.replicas.values():
        quorum = quorum_of(replica)
        assert quorum.kraft_version == 1
        assert quorum.voters.has(replica.id, replica.disk.directory)
        assert not quorum.voters.has(replica.id, OTHER_DISK)
    with pytest.raises(Refused, match="newest"):
        quorum_of(leader).raise_kraft_version(leader.now())


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
    assert quorum_of(leader).voters.by_id[replica.id].address_on("CONTROLLER") == ("elsewhere", replica.id)
    world.run_until(world.now + 10)
    for each in world.replicas.values():
        assert quorum_of(each).voters.by_id[replica.id].address_on("CONTROLLER") == ("node", replica.id)


def test_describe_quorum_has_voters_observers_and_their_log_ends() -> None:
    world = settled(is_dynamic=True)
    gone = others(world)[0]
    outcome(world, gone.remove_request())
    leader = leader_of(world)
    part = answer(leader, DescribeQuorumRequest()).topics[0].partitions[0]
    assert {each.replica_id for each in part.current_voters} == set(quorum_of(leader).voters.ids)
    assert [each.replica_id for each in part.observers] == [gone.id]
    assert {each.log_end_offset for each in part.current_voters} == {leader.disk.end}
    assert part.high_watermark == leader.watermark
    refused = answer(gone, DescribeQuorumRequest()).topics[0].partitions[0]
    assert (refused.error_code, refused.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, leader.id)
