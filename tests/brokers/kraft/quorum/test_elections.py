"""Elections, votes and leadership transfers (KIP-595, KIP-996) that need more than a trace in `traces`."""

from __future__ import annotations

from typing import Any

import pytest

from controller.brokers.kraft.quorum.raft.consensus import Consensus
from controller.brokers.kraft.quorum.raft.effects import FETCH, Peer, Role
from controller.brokers.kraft.quorum.raft.follower import fetch_request
from controller.brokers.kraft.quorum.raft.role import ToUnattached, start_election
from controller.kafka.messages import quorum as quorum_messages
from controller.kafka.messages.quorum import (
    BeginQuorumEpochRequest,
    EndEpochPartition,
    EndEpochTopic,
    EndQuorumEpochRequest,
    FetchSnapshotRequest,
)
from controller.machine.errors import ErrorCode
from tests.brokers.kraft.quorum.worlds import (
    OTHER_DISK,
    answer,
    following,
    leader_of,
    others,
    quorum_of,
    settled,
    vote_request,
)
from tests.simulation.quorum.world import CLUSTER, FETCH_TIMEOUT_S, Replica


def test_a_leadership_transfer_begins_while_the_leader_delays_the_fetch() -> None:
    world = settled(priorities={1: 0, 2: 2, 3: 0})
    target = world.replicas[2]
    for delay_s in (0.0, 0.1, 0.2, 0.3, 0.4):  # within the half second for which a fetch is delayed
        target.kill(power=True)
        world.run_until(world.now + 6)
        target.boot()
        target.does(lambda quorum: quorum.want_leadership(target.now(), wanted=False))
        world.run_until(world.now + 2 + delay_s)
        assert leader_of(world) is not target
        target.does(lambda quorum: quorum.want_leadership(target.now(), wanted=True))
        world.run_until(world.now + 0.1)
        assert leader_of(world) is target


def test_a_leadership_transfer_seldom_fails_on_a_busy_leader() -> None:
    """A leader that appends fifty times a second: the transfer begins after a fetch that returned nothing."""
    world = settled(priorities={1: 0, 2: 1, 3: 0})
    target, lost = world.replicas[2], 0

    def append(until: float) -> None:
        if world.now < until:
            world.after(0.02, lambda: append(until))
        if world.leader is not None:
            world.leader.append(b"more")

    for _ in range(8):
        target.kill(power=True)
        world.run_until(world.now + 6)
        append(world.now + 0.6)
        world.run_until(world.now + 0.1)
        target.boot()
        world.run_until(world.now + 0.5)
        lost += quorum_of(target).transfers_failed
        assert quorum_of(target).transfers_failed or leader_of(world) is target, "it takes over immediately"
    assert lost <= 2


def test_the_back_off_doubles_after_each_failed_leadership_transfer() -> None:
    world = settled()
    core = quorum_of(others(world)[0])
    core.want_leadership(0.0, wanted=True)
    for number in range(9):
        core.transfer_ended(100.0, None)
        pause_s = min(2.0**number, 60.0)
        assert not core.may_transfer(100.0 + pause_s - 0.01)
        assert core.may_transfer(100.0 + pause_s)
    assert core.transfers_failed == 9


@pytest.mark.parametrize("pre_vote", [False, True])
def test_a_voter_with_a_different_history_gets_no_vote(pre_vote: bool) -> None:
    for distrusted in (frozenset[int](), frozenset({2})):
        world = settled(priorities={1: 1, 2: 0, 3: 0})
        voter, candidate = world.replicas[3], world.replicas[2]
        world.replicas[1].kill(power=True)
        world.run_until(world.now + 0.9 * FETCH_TIMEOUT_S)
        core = quorum_of(voter)
        core._run(voter.now(), ToUnattached(core.epoch))
        core.distrusted = distrusted
        epoch = core.epoch + (not pre_vote)
        request = vote_request(candidate, epoch, voter.disk.end, voter.disk.last_epoch, pre_vote)
        granted = answer(voter, request).topics[0].partitions[0].vote_granted
        assert granted == (not distrusted)


def resigned(leader: Replica, successors: tuple[int, ...]) -> EndQuorumEpochRequest:
    part = EndEpochPartition(leader_id=leader.id, leader_epoch=quorum_of(leader).epoch, preferred_successors=successors)
    topic = EndEpochTopic(topic_name="__cluster_metadata", partitions=(part,))
    return EndQuorumEpochRequest(cluster_id=CLUSTER, topics=(topic,))


def test_a_late_fetch_response_of_a_resigned_leader_does_not_extend_the_fetch_timeout() -> None:
    world = settled()
    leader, (follower, other) = leader_of(world), others(world)
    core = quorum_of(follower)
    said = answer(leader, fetch_request(core, max_wait_ms=0))
    answer(follower, resigned(leader, (other.id, follower.id)))
    leader.kill(power=True)
    other.kill(power=True)
    following(follower).replied(follower.now(), FETCH, said)
    assert core.role is Role.FOLLOWER
    world.run_until(world.now + 0.9 * FETCH_TIMEOUT_S)
    assert core.role is not Role.FOLLOWER, "it becomes candidate, in spite of a later response"


def test_the_preferred_successor_becomes_candidate_when_its_log_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    world = settled()
    leader, (follower, other) = leader_of(world), others(world)
    core = quorum_of(follower)
    with monkeypatch.context() as flushing:
        flushing.setattr(Consensus, "is_durable", False)
        answer(follower, resigned(leader, (follower.id, other.id)))
        assert core.role is Role.FOLLOWER
    follower.does(lambda quorum: quorum.flushed(follower.now()))
    assert quorum_of(follower).role is Role.CANDIDATE


def test_no_pre_vote_is_held_if_a_peer_does_not_support_it() -> None:
    world = settled()
    replica = others(world)[0]
    replica.does(lambda quorum: quorum._run(replica.now(), start_election(quorum)))
    assert quorum_of(replica).role is Role.PROSPECTIVE
    replica.does(lambda quorum: quorum.peer_reported(replica.now(), ("node", leader_of(world).id), Peer(1, None)))
    assert quorum_of(replica).role is Role.CANDIDATE


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"replica_id": -1}, ErrorCode.INVALID_REQUEST),
        ({"voter_directory_id": OTHER_DISK}, ErrorCode.INVALID_VOTER_KEY),
    ],
)
def test_an_invalid_vote_request_is_rejected(changes: dict[str, Any], code: ErrorCode) -> None:
    world = settled()
    fields = {"replica_epoch": 50, "replica_id": 2, "last_offset": 9, "last_offset_epoch": 1, **changes}
    topic = quorum_messages.VoteTopic(
        topic_name="__cluster_metadata", partitions=(quorum_messages.VotePartition(**fields),)
    )
    response = answer(others(world)[0], quorum_messages.VoteRequest(cluster_id=CLUSTER, topics=(topic,)))
    assert response.topics[0].partitions[0].error_code == code


@pytest.mark.parametrize(
    "kind",
    [
        quorum_messages.VoteRequest,
        BeginQuorumEpochRequest,
        EndQuorumEpochRequest,
        quorum_messages.FetchRequest,
        FetchSnapshotRequest,
    ],
)
def test_requests_of_other_clusters_and_partitions_are_rejected(kind: type[Any]) -> None:
    leader = leader_of(settled())
    assert answer(leader, kind(cluster_id="another")).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert answer(leader, kind(cluster_id=CLUSTER)).error_code == ErrorCode.INVALID_REQUEST
