"""Who leads a quorum, and for whom a voter votes (KIP-595, KIP-996)."""

from __future__ import annotations

from typing import Any

import pytest

from controller.brokers.kraft.quorum.raft.core import Quorum
from controller.brokers.kraft.quorum.raft.effects import FETCH, NotLeader, Peer, Role
from controller.brokers.kraft.quorum.raft.following import fetch_request
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
    booted,
    leader_of,
    others,
    quorum_of,
    sent,
    settled,
    vote_request,
)
from tests.simulation.quorum.world import CLUSTER, ELECTION_TIMEOUT_S, FETCH_TIMEOUT_S, Replica


def test_one_voter_leads_when_start_returns() -> None:
    world = booted(1)
    replica = world.replicas[1]
    assert quorum_of(replica).role is Role.LEADER
    world.run_until(0.1)
    replica.append(b"x")
    world.run_until(0.2)
    assert (replica.watermark, world.witness.answered) == (replica.disk.end, 1)


@pytest.mark.parametrize("is_dynamic", [True, False])
def test_three_voters_find_a_leader_whom_all_follow(is_dynamic: bool) -> None:
    world = settled(is_dynamic=is_dynamic)
    leader = leader_of(world)
    for replica in others(world):
        assert quorum_of(replica).leader_id == leader.id
        assert (replica.disk.end, replica.watermark) == (leader.disk.end, leader.disk.end)
    assert quorum_of(leader).kraft_version == int(is_dynamic)


def test_a_leader_that_dies_is_followed_by_another_after_the_fetch_timeout() -> None:
    world = settled()
    dead = leader_of(world)
    dead.kill(power=True)
    world.run_until(world.now + FETCH_TIMEOUT_S + 3 * ELECTION_TIMEOUT_S)
    assert leader_of(world) is not dead


def test_a_leader_without_a_majority_resigns_after_one_and_a_half_fetch_timeouts() -> None:
    world = settled()
    leader = leader_of(world)
    for replica in others(world):
        replica.kill(power=True)
    world.run_until(world.now + 1.2 * FETCH_TIMEOUT_S)
    assert quorum_of(leader).role is Role.LEADER
    world.run_until(world.now + 0.4 * FETCH_TIMEOUT_S)
    assert quorum_of(leader).role is not Role.LEADER


def test_who_wants_to_lead_claims_the_lead_after_a_fetch_that_brought_nothing() -> None:
    world = settled(priorities={1: 0, 2: 2, 3: 0})
    assert leader_of(world).id == 2
    world.replicas[2].kill(power=True)
    world.run_until(world.now + 6)
    assert leader_of(world).id != 2
    world.replicas[2].boot()
    world.run_until(world.now + 2)
    assert leader_of(world).id == 2
    assert quorum_of(world.replicas[2]).claims_lost == 0


def test_who_comes_to_want_the_lead_claims_it_while_the_leader_holds_its_fetch() -> None:
    world = settled(priorities={1: 0, 2: 2, 3: 0})
    claimant = world.replicas[2]
    for moment_s in (0.0, 0.1, 0.2, 0.3, 0.4):  # of the half second for which a fetch is held
        claimant.kill(power=True)
        world.run_until(world.now + 6)
        claimant.boot()
        claimant.does(lambda quorum: quorum.wish(claimant.now(), wanted=False))
        world.run_until(world.now + 2 + moment_s)
        assert leader_of(world) is not claimant
        claimant.does(lambda quorum: quorum.wish(claimant.now(), wanted=True))
        world.run_until(world.now + 0.1)
        assert leader_of(world) is claimant


def test_a_claim_waits_for_no_silence_and_is_seldom_lost_to_an_append() -> None:
    """Beside a leader that appends fifty times a second; a claim is made right after a fetch that brought nothing."""
    world = settled(priorities={1: 0, 2: 1, 3: 0})
    claimant, lost = world.replicas[2], 0

    def append(until: float) -> None:
        if world.now < until:
            world.after(0.02, lambda: append(until))
        if world.leader is not None:
            world.leader.append(b"more")

    for _ in range(8):
        claimant.kill(power=True)
        world.run_until(world.now + 6)
        append(world.now + 0.6)
        world.run_until(world.now + 0.1)
        claimant.boot()
        world.run_until(world.now + 0.5)
        lost += quorum_of(claimant).claims_lost
        assert quorum_of(claimant).claims_lost or leader_of(world) is claimant, "it claims at once"
    assert lost <= 2


def test_a_claim_that_is_lost_is_made_again_after_twice_as_long() -> None:
    world = settled()
    core = quorum_of(others(world)[0])
    core.wish(0.0, wanted=True)
    for number in range(9):
        core.claim_ended(100.0, None)
        pause_s = min(2.0**number, 60.0)
        assert not core.may_claim(100.0 + pause_s - 0.01)
        assert core.may_claim(100.0 + pause_s)
    assert core.claims_lost == 9


def test_nobody_claims_without_the_wish() -> None:
    world = settled(priorities={1: 0, 2: 0, 3: 0})
    epoch = quorum_of(leader_of(world)).epoch
    for replica in world.replicas.values():
        quorum_of(replica).wish(replica.now(), wanted=True)
    world.run_until(world.now + 20)
    assert quorum_of(leader_of(world)).epoch == epoch


def test_with_priority_0_everywhere_somebody_leads_nevertheless() -> None:
    world = settled(priorities={1: 0, 2: 0, 3: 0})
    dead = leader_of(world)
    dead.kill(power=True)
    world.run_until(world.now + 8)
    assert leader_of(world) is not dead


@pytest.mark.parametrize("pre_vote", [False, True])
def test_who_is_known_to_have_another_history_gets_no_vote(pre_vote: bool) -> None:
    for distrusted in (frozenset[int](), frozenset({2})):
        world = settled(priorities={1: 1, 2: 0, 3: 0})
        voter, candidate = world.replicas[3], world.replicas[2]
        world.replicas[1].kill(power=True)
        world.run_until(world.now + 0.9 * FETCH_TIMEOUT_S)
        core = quorum_of(voter)
        core.to_unattached(voter.now(), core.epoch, keep_vote=True)
        core.distrusted = distrusted
        epoch = core.epoch + (not pre_vote)
        request = vote_request(candidate, epoch, voter.disk.end, voter.disk.last_epoch, pre_vote)
        granted = answer(voter, request).topics[0].partitions[0].vote_granted
        assert granted == (not distrusted)


def test_who_may_not_lead_votes_and_never_stands() -> None:
    world = booted()
    for node_id in (1, 2):
        world.replicas[node_id].does(lambda quorum: quorum.veto(0.0, can_lead=False))
    world.run_until(10)
    assert leader_of(world).id == 3, "two of three veto, and elect the third"
    leader_of(world).kill(power=True)
    world.run_until(world.now + 20)
    assert world.leader is None


def test_a_veto_makes_a_leader_hand_over() -> None:
    world = settled()
    leader = leader_of(world)
    leader.does(lambda quorum: quorum.veto(leader.now(), can_lead=False))
    world.run_until(world.now + 2)
    assert leader_of(world) is not leader


def test_a_leader_that_hands_over_waits_for_what_it_took_and_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    world = settled()
    leader, began = leader_of(world), world.now
    seen = sent(leader, monkeypatch)
    leader.append(b"taken")
    leader.does(lambda quorum: quorum.hand_over(leader.now(), 1.0))
    with pytest.raises(NotLeader):
        quorum_of(leader).append(leader.now(), 0, [(None, b"refused")])
    while world.leader in (None, leader):
        world.run_until(world.now + 0.01)
    assert world.now - began < 0.3, "in virtual time: no timeout has to pass"
    assert world.witness.answered == 1
    ends = [each.request for each in seen if isinstance(each.request, EndQuorumEpochRequest)]
    assert [len(each.topics[0].partitions[0].preferred_candidates) for each in ends] == [2, 2]


def test_followers_that_have_more_are_to_succeed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    world = settled()
    leader, behind = leader_of(world), others(world)[0]
    behind.paused = []
    leader.append(b"x")
    world.run_until(world.now + 0.1)
    seen = sent(leader, monkeypatch)
    leader.does(lambda quorum: quorum.hand_over(leader.now(), 0.0))
    world.run_until(world.now + 0.01)
    ends = [each.request for each in seen if isinstance(each.request, EndQuorumEpochRequest)]
    assert ends[0].topics[0].partitions[0].preferred_successors[-1] == behind.id


def resigned(leader: Replica, successors: tuple[int, ...]) -> EndQuorumEpochRequest:
    part = EndEpochPartition(leader_id=leader.id, leader_epoch=quorum_of(leader).epoch, preferred_successors=successors)
    topic = EndEpochTopic(topic_name="__cluster_metadata", partitions=(part,))
    return EndQuorumEpochRequest(cluster_id=CLUSTER, topics=(topic,))


def test_what_a_leader_said_before_it_resigned_keeps_no_follower_waiting() -> None:
    world = settled()
    leader, (follower, other) = leader_of(world), others(world)
    core = quorum_of(follower)
    said = answer(leader, fetch_request(core, max_wait_ms=0))
    answer(follower, resigned(leader, (other.id, follower.id)))
    leader.kill(power=True)
    other.kill(power=True)
    follower.does(lambda quorum: quorum.following.replied(follower.now(), FETCH, said))  # type: ignore[union-attr]
    assert core.role is Role.FOLLOWER
    world.run_until(world.now + 0.9 * FETCH_TIMEOUT_S)
    assert core.role is not Role.FOLLOWER, "it stands, though it had heard of the leader since"


def test_who_is_to_succeed_stands_when_all_that_it_has_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    world = settled()
    leader, (follower, other) = leader_of(world), others(world)
    core = quorum_of(follower)
    with monkeypatch.context() as flushing:
        flushing.setattr(Quorum, "is_durable", False)
        answer(follower, resigned(leader, (follower.id, other.id)))
        assert core.role is Role.FOLLOWER
    follower.does(lambda quorum: quorum.flushed(follower.now()))
    assert quorum_of(follower).role is Role.CANDIDATE


def test_where_a_peer_knows_no_pre_vote_none_is_held() -> None:
    world = settled()
    replica = others(world)[0]
    replica.does(lambda quorum: quorum.stand(replica.now()))
    assert quorum_of(replica).role is Role.PROSPECTIVE
    replica.does(lambda quorum: quorum.peer_speaks(replica.now(), ("node", leader_of(world).id), Peer(1, None)))
    assert quorum_of(replica).role is Role.CANDIDATE


def test_a_vote_is_given_once_an_epoch_and_not_to_who_has_less() -> None:
    world = settled()
    a, b = others(world)
    disk = a.disk
    epoch, end, last = quorum_of(a).epoch + 5, disk.end, disk.last_epoch
    assert not answer(a, vote_request(b, epoch, end - 1, last)).topics[0].partitions[0].vote_granted
    assert answer(a, vote_request(b, epoch, end, last)).topics[0].partitions[0].vote_granted
    assert (disk.state.epoch, disk.state.voted_id) == (epoch, b.id), "durable before it is said"
    assert not answer(a, vote_request(leader_of(world), epoch, end + 9, last)).topics[0].partitions[0].vote_granted
    assert answer(a, vote_request(b, epoch, end, last)).topics[0].partitions[0].vote_granted, "it may not have heard"


def test_who_hears_its_leader_grants_no_pre_vote_and_remembers_none() -> None:
    world = settled()
    a, b = others(world)
    state = a.disk.state
    request = vote_request(b, quorum_of(a).epoch, a.disk.end, a.disk.last_epoch, pre_vote=True)
    assert not answer(a, request).topics[0].partitions[0].vote_granted
    following = quorum_of(a).following
    assert following is not None
    following.has_fetched = False
    assert answer(a, request).topics[0].partitions[0].vote_granted
    assert a.disk.state == state


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"replica_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"last_offset": -1}, ErrorCode.INVALID_REQUEST),
        ({"last_offset_epoch": 1000}, ErrorCode.INVALID_REQUEST),
        ({"replica_id": -1}, ErrorCode.INVALID_REQUEST),
        ({"voter_directory_id": OTHER_DISK}, ErrorCode.INVALID_VOTER_KEY),
    ],
)
def test_a_vote_that_cannot_be_is_refused(changes: dict[str, Any], code: ErrorCode) -> None:
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
def test_other_clusters_and_other_partitions_are_refused(kind: type[Any]) -> None:
    leader = leader_of(settled())
    assert answer(leader, kind(cluster_id="another")).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert answer(leader, kind(cluster_id=CLUSTER)).error_code == ErrorCode.INVALID_REQUEST
