"""How voters come and go (KIP-853)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from controller.brokers.kraft.quorum.raft.effects import Refused, Role
from controller.kafka.messages import ZERO_UUID
from controller.kafka.messages.message import Listener
from controller.kafka.messages.message import Listener as Moved
from controller.kafka.messages.quorum import (
    AddRaftVoterRequest,
    DescribeQuorumRequest,
    KRaftVersionFeature,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
)
from controller.machine.errors import ErrorCode
from tests.brokers.kraft.quorum.worlds import (
    OTHER_DISK,
    answer,
    leader_of,
    others,
    quorum_of,
    settled,
)
from tests.simulation.quorum.world import CLUSTER, Replica, World


def add(replica: Replica, **changes: Any) -> AddRaftVoterRequest:
    fields = {
        "voter_id": replica.id,
        "voter_directory_id": replica.disk.directory,
        "listeners": (Listener(name="CONTROLLER", host="node", port=replica.id),),
        **changes,
    }
    return AddRaftVoterRequest(cluster_id=CLUSTER, timeout_ms=1000, **fields)


def remove(replica: Replica, directory: bytes | None = None) -> RemoveRaftVoterRequest:
    directory = directory or replica.disk.directory
    return RemoveRaftVoterRequest(cluster_id=CLUSTER, voter_id=replica.id, voter_directory_id=directory)


def outcome(world: World, request: Any) -> int:
    """The error code that the leader answers in the end."""
    world.counts.clear()
    leader = leader_of(world)
    leader.does(lambda quorum: quorum.request(leader.now(), ("admin", world.steps), request))
    world.run_until(world.now + 3)
    (code,) = [int(each.rpartition(" ")[2]) for each in world.counts if "VoterResponse" in each]
    return code


def test_voters_go_and_come_while_others_lead() -> None:
    world = settled(is_dynamic=True)
    gone = others(world)[0]
    assert outcome(world, remove(gone)) == ErrorCode.NONE
    assert gone.id not in quorum_of(leader_of(world)).voters.ids
    leader_of(world).append(b"x")
    world.run_until(world.now + 1)
    assert gone.disk.end == leader_of(world).disk.end, "it observes"
    assert outcome(world, add(gone)) == ErrorCode.NONE
    assert quorum_of(gone).is_voter


def test_a_leader_that_takes_itself_out_leads_until_that_is_committed() -> None:
    world = settled(is_dynamic=True)
    leader = leader_of(world)
    assert outcome(world, remove(leader)) == ErrorCode.NONE
    assert leader_of(world) is not leader
    assert quorum_of(leader).role is Role.FOLLOWER


def test_a_change_that_the_leader_has_no_room_for_is_refused_and_can_be_tried_again() -> None:
    world = settled(is_dynamic=True)
    leader, gone = leader_of(world), others(world)[0]
    leader.disk.is_full = True
    assert outcome(world, remove(gone)) == ErrorCode.KAFKA_STORAGE_ERROR
    leader.disk.is_full = False
    world.run_until(world.now + 1)
    assert outcome(world, remove(gone)) == ErrorCode.NONE


def test_who_alone_knows_that_it_is_taken_out_stands_once_more() -> None:
    """Else nobody can be elected: its log is the longest, and it votes for none."""
    world = settled(2, is_dynamic=True)
    leader, other = leader_of(world), others(world)[0]
    world.cut = {(other.id, leader.id), (leader.id, other.id)}
    leader.does(lambda quorum: quorum.request(leader.now(), ("admin", 1), remove(leader)))
    world.run_until(world.now + 5)
    assert (quorum_of(leader).voters.ids, quorum_of(other).voters.ids) == ((other.id,), (1, 2))
    world.cut = set()
    world.run_until(world.now + 10)
    assert leader_of(world) is other
    assert quorum_of(other).voters.ids == (other.id,)


def test_changes_of_voters_that_cannot_be_are_refused() -> None:
    world = settled(is_dynamic=True)
    voter = others(world)[0]
    assert outcome(world, add(voter)) == ErrorCode.DUPLICATE_VOTER
    assert outcome(world, add(voter, listeners=())) == ErrorCode.INVALID_REQUEST
    assert outcome(world, remove(voter, OTHER_DISK)) == ErrorCode.VOTER_NOT_FOUND
    assert answer(voter, remove(voter)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert outcome(world, add(voter, voter_id=77, voter_directory_id=OTHER_DISK)) == ErrorCode.REQUEST_TIMED_OUT
    static = settled(is_dynamic=False)
    assert outcome(static, remove(others(static)[0])) == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("change", [add, remove])
@pytest.mark.parametrize("fields", [{"voter_id": -1}, {"voter_directory_id": ZERO_UUID}], ids=["no id", "no directory"])
def test_a_voter_without_id_or_directory_is_an_invalid_request(change: Any, fields: dict[str, Any]) -> None:
    world = settled(is_dynamic=True)
    request = msgspec.structs.replace(change(others(world)[0]), **fields)
    assert answer(leader_of(world), request).error_code == ErrorCode.INVALID_REQUEST
    assert len(quorum_of(leader_of(world)).voters) == 3


def test_a_voter_needs_an_endpoint_for_the_controllers_listener() -> None:
    world = settled(is_dynamic=True)
    gone = others(world)[0]
    assert outcome(world, remove(gone)) == ErrorCode.NONE
    other = Listener(name="OTHER", host="elsewhere", port=1)
    refused = answer(leader_of(world), add(gone, listeners=(other,)))
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert refused.error_message == "a voter has an endpoint for the controllers' listener CONTROLLER"
    assert outcome(world, add(gone, listeners=(other, *add(gone).listeners))) == ErrorCode.NONE


def test_the_last_voter_stays() -> None:
    world = settled(1, is_dynamic=True)
    assert outcome(world, remove(leader_of(world))) == ErrorCode.INVALID_REQUEST


def test_voters_change_one_at_a_time() -> None:
    world = settled(5, is_dynamic=True)
    leader, (a, b, *_) = leader_of(world), others(world)
    leader.does(lambda quorum: quorum.request(leader.now(), ("admin", 1), remove(a)))
    assert answer(leader, remove(b)).error_code == ErrorCode.REQUEST_TIMED_OUT
    world.run_until(world.now + 1)
    assert outcome(world, remove(b)) == ErrorCode.NONE


def test_kraft_version_is_raised_when_all_have_shown_their_disks() -> None:
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


def test_a_voter_says_where_it_listens_until_the_voters_have_it_so() -> None:
    world = settled(is_dynamic=True)
    replica, leader = others(world)[0], leader_of(world)
    request = UpdateRaftVoterRequest(
        cluster_id=CLUSTER,
        current_leader_epoch=quorum_of(leader).epoch,
        voter_id=replica.id,
        voter_directory_id=replica.disk.directory,
        listeners=(Moved(name="CONTROLLER", host="elsewhere", port=replica.id),),
        k_raft_version_feature=KRaftVersionFeature(max_supported_version=1),
    )
    leader.does(lambda quorum: quorum.request(leader.now(), ("admin", 1), request))
    assert quorum_of(leader).voters.by_id[replica.id].place_on("CONTROLLER") == ("elsewhere", replica.id)
    world.run_until(world.now + 10)
    for each in world.replicas.values():
        assert quorum_of(each).voters.by_id[replica.id].place_on("CONTROLLER") == ("node", replica.id)


def test_the_quorum_is_described_with_voters_observers_and_how_far_they_are() -> None:
    world = settled(is_dynamic=True)
    gone = others(world)[0]
    outcome(world, remove(gone))
    leader = leader_of(world)
    part = answer(leader, DescribeQuorumRequest()).topics[0].partitions[0]
    assert {each.replica_id for each in part.current_voters} == set(quorum_of(leader).voters.ids)
    assert [each.replica_id for each in part.observers] == [gone.id]
    assert {each.log_end_offset for each in part.current_voters} == {leader.disk.end}
    assert part.high_watermark == leader.watermark
    refused = answer(gone, DescribeQuorumRequest()).topics[0].partitions[0]
    assert (refused.error_code, refused.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, leader.id)
