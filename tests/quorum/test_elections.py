"""Elections, votes and leadership transfers (KIP-595, KIP-996) that traces cannot test."""

from typing import Any

import pytest

from controller.kafka.messages import quorum as quorum_messages
from controller.machine.errors import ErrorCode
from controller.quorum.raft import follower
from controller.quorum.raft.consensus import Consensus
from controller.quorum.raft.effects import Role
from controller.quorum.raft.follower import fetch_request
from controller.quorum.raft.leader import DELAY_MAX
from controller.quorum.raft.replica import LeaderAndEpoch
from controller.quorum.raft.role import ToFollower, ToProspective, ToResigned, ToUnattached, discovered, topics_of
from tests.quorum.worlds import (
    OTHER_DISK,
    answer,
    end_request,
    following,
    leader_of,
    others,
    quorum_of,
    settled,
    vote_request,
)
from tests.simulation.quorum.world import CLUSTER, ELECTION_TIMEOUT_S, FETCH_TIMEOUT_S, World


def test_a_leadership_transfer_starts_after_a_delayed_fetch() -> None:
    world = settled(priorities={1: 0, 2: 2, 3: 0})
    target = world.replicas[2]
    for delay_s in (0.0, 0.1, 0.2, 0.3, 0.4):  # within the half second of a delayed fetch
        target.kill(power=True)
        world.run_until(world.now + 6)
        target.boot()
        quorum_of(target).wants_leadership = False
        world.run_until(world.now + 2 + delay_s)
        assert leader_of(world) is not target
        quorum_of(target).wants_leadership = True
        world.run_until(world.now + DELAY_MAX * FETCH_TIMEOUT_S + 0.1)
        assert leader_of(world) is target


def test_a_leadership_transfer_seldom_fails_on_a_busy_leader() -> None:
    """The leader appends fifty times a second. A transfer begins after an empty fetch response."""
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
        lost += world.leader is not target
    assert lost <= 2


@pytest.mark.parametrize("priorities", [{1: 2, 2: 1, 3: 0}, {1: 1, 2: 0, 3: 0}])
def test_a_voter_with_priority_0_does_not_delay_the_election_after_a_leader_death(priorities: dict[int, int]) -> None:
    """The other voter needs its vote, which it refuses until its own fetch timeout."""
    for step in range(5):
        world = settled(priorities=priorities)
        world.run_until(world.now + 0.13 * step)
        leader_of(world).kill(power=False)
        world.run_until(world.now + FETCH_TIMEOUT_S + ELECTION_TIMEOUT_S)
        assert world.leader is not None


def test_the_back_off_doubles_with_each_leadership_transfer() -> None:
    world = settled()
    core = quorum_of(others(world)[0])
    core.wants_leadership = True
    for number in range(9):
        core.delay_transfers(100.0)
        pause_s = min(2.0 * 2**number, 60.0)
        assert not core.may_transfer(100.0 + pause_s - 0.01)
        assert core.may_transfer(100.0 + pause_s)


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


def test_a_pre_vote_ends_when_a_voter_does_not_support_it() -> None:
    world = settled()
    candidate, old = others(world)
    old.vote_version = 1
    candidate.does(lambda quorum: quorum._run(candidate.now(), ToProspective()))
    assert quorum_of(candidate).role is Role.PROSPECTIVE
    world.run_until(world.now + 0.2)
    assert quorum_of(candidate).epoch == 2


def test_a_late_fetch_response_of_a_resigned_leader_does_not_extend_the_fetch_timeout() -> None:
    world = settled()
    leader, (follower, other) = leader_of(world), others(world)
    core = quorum_of(follower)
    said = answer(leader, fetch_request(core, max_wait_ms=0))
    answer(follower, end_request(leader.id, core.epoch, other.id, follower.id))
    leader.kill(power=True)
    other.kill(power=True)
    following(follower).replied(follower.now(), "fetch", said)
    assert core.role is Role.FOLLOWER
    world.run_until(world.now + 0.9 * FETCH_TIMEOUT_S)
    assert core.role is not Role.FOLLOWER, "the late response extended the fetch timeout"


def test_the_preferred_successor_becomes_candidate_when_its_log_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    world = settled()
    leader, (follower, other) = leader_of(world), others(world)
    core = quorum_of(follower)
    with monkeypatch.context() as flushing:
        flushing.setattr(Consensus, "is_durable", False)
        answer(follower, end_request(leader.id, core.epoch, follower.id, other.id))
        assert core.role is Role.FOLLOWER
    follower.does(lambda quorum: quorum.flushed(follower.now()))
    assert quorum_of(follower).role is Role.CANDIDATE


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
    request = quorum_messages.VoteRequest(topics=topics_of(quorum_messages.VotePartition(**fields)))
    response = answer(others(world)[0], request)
    assert response.topics[0].partitions[0].error_code == code


@pytest.mark.parametrize(
    "kind",
    [
        quorum_messages.VoteRequest,
        quorum_messages.BeginQuorumEpochRequest,
        quorum_messages.EndQuorumEpochRequest,
        quorum_messages.FetchRequest,
        quorum_messages.FetchSnapshotRequest,
    ],
)
def test_requests_of_other_clusters_and_partitions_are_rejected(kind: type[Any]) -> None:
    leader = leader_of(settled())
    assert answer(leader, kind(cluster_id="another")).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert answer(leader, kind(cluster_id=CLUSTER)).error_code == ErrorCode.INVALID_REQUEST


def test_a_replica_follows_one_leader_an_epoch() -> None:
    world = settled()
    core = quorum_of(others(world)[0])
    second = LeaderAndEpoch(77, core.epoch, ("node", 77))
    assert discovered(core, second) is None
    with pytest.raises(AssertionError, match="a second leader of epoch 1"):
        core._run(0.0, ToFollower(second))
    leader = leader_of(world)
    quorum_of(leader)._run(leader.now(), ToResigned(()))
    assert discovered(quorum_of(leader), second) is None, "a resigned leader must not follow in its epoch"


def busy(world: World, seconds: float, every_s: float = 0.02) -> None:
    """Run for `seconds` with an append every `every_s`."""
    leader, end = leader_of(world), world.now + seconds
    while world.now + every_s < end:
        leader.append(b"more")
        world.run_until(world.now + every_s)
    world.run_until(end)


@pytest.mark.parametrize("every_s", [0.02, 0.15, 9.0], ids=["steady", "seldom", "idle"])
def test_the_first_election_after_a_leader_death_succeeds(every_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Votes are slow, and the fetch timeout has no jitter, as for Kafka's voters."""
    monkeypatch.setattr(follower, "JITTER", 0.0)
    split = []
    for step in range(20):
        world = settled()
        busy(world, 2.0 + 0.0137 * step, every_s)
        dead = leader_of(world)
        epoch = quorum_of(dead).epoch
        dead.kill(power=False)
        world.latency_s = 0.02
        died_at = world.now
        while world.leader is None:
            world.run_until(world.now + 0.01)
        took_s = world.now - died_at
        if quorum_of(leader_of(world)).epoch > epoch + 1 or took_s > FETCH_TIMEOUT_S + ELECTION_TIMEOUT_S / 2:
            split.append((step, took_s))
    assert len(split) <= 2, f"split votes in 20 elections: {split}"


def test_all_voters_are_caught_up_under_load() -> None:
    world = settled()
    busy(world, 3.0)
    leader = leader_of(world)
    shown = quorum_of(leader).leading.describe(leader.now()).topics[0].partitions[0]  # type: ignore[union-attr]
    caught_up = [each.last_caught_up_timestamp for each in shown.current_voters]
    assert max(caught_up) - min(caught_up) <= 2000 * DELAY_MAX * FETCH_TIMEOUT_S
