"""Changes of the voter set (KIP-853) that need more than a trace in `traces`."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from controller.brokers.kraft.quorum.raft.effects import Refused
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
    """The error code of the leader's response."""
    world.counts.clear()
    leader = leader_of(world)
    leader.does(lambda quorum: quorum.request(leader.now(), ("admin", world.steps), request))
    world.run_until(world.now + 3)
    (code,) = [int(each.rpartition(" ")[2]) for each in world.counts if "VoterResponse" in each]
    return code


def test_invalid_voter_changes_are_rejected() -> None:
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


def test_voters_change_one_at_a_time() -> None:
    world = settled(5, is_dynamic=True)
    leader, (a, b, *_) = leader_of(world), others(world)
    leader.does(lambda quorum: quorum.request(leader.now(), ("admin", 1), remove(a)))
    assert answer(leader, remove(b)).error_code == ErrorCode.REQUEST_TIMED_OUT
    world.run_until(world.now + 1)
    assert outcome(world, remove(b)) == ErrorCode.NONE


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
        listeners=(Moved(name="CONTROLLER", host="elsewhere", port=replica.id),),
        k_raft_version_feature=KRaftVersionFeature(max_supported_version=1),
    )
    leader.does(lambda quorum: quorum.request(leader.now(), ("admin", 1), request))
    assert quorum_of(leader).voters.by_id[replica.id].address_on("CONTROLLER") == ("elsewhere", replica.id)
    world.run_until(world.now + 10)
    for each in world.replicas.values():
        assert quorum_of(each).voters.by_id[replica.id].address_on("CONTROLLER") == ("node", replica.id)


def test_describe_quorum_has_voters_observers_and_their_log_ends() -> None:
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
