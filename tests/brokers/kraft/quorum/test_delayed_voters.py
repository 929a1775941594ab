"""Staggered fetch responses and delayed voters, and the election after the leader dies."""

from __future__ import annotations

import pytest

from controller.brokers.kraft.quorum.raft import follower
from controller.brokers.kraft.quorum.raft.effects import Role
from controller.brokers.kraft.quorum.raft.progress import COMMIT_DELAY_S_MAX, DELAY_MAX
from tests.brokers.kraft.quorum.worlds import leader_of, others, quorum_of, settled
from tests.simulation.quorum.world import ELECTION_TIMEOUT_S, FETCH_TIMEOUT_S, Replica, World

SOON_S = 0.03
DELAY_S = DELAY_MAX * FETCH_TIMEOUT_S


def busy(world: World, seconds: float, every_s: float = 0.02) -> None:
    """So long under a steady load."""
    leader, end = leader_of(world), world.now + seconds
    while world.now + every_s < end:
        leader.append(b"more")
        world.run_until(world.now + every_s)
    world.run_until(end)


def having(world: World, end: int) -> list[Replica]:
    return [each for each in others(world) if each.disk.end >= end]


@pytest.mark.parametrize("every_s", [0.02, 0.15, 9.0], ids=["steady", "seldom", "idle"])
def test_after_a_leader_dies_the_first_election_succeeds(every_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with slow votes. Kafka's voters add no jitter to their fetch timeout."""
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
    assert len(split) <= 2, f"of 20: {split}"


def test_a_voter_that_a_commit_does_not_need_gets_new_records_later() -> None:
    world = settled()
    leader = leader_of(world)
    leader.append(b"first")
    world.run_until(world.now + 1.0)
    for _ in range(5):
        leader.append(b"more")
        end = leader.disk.end
        world.run_until(world.now + SOON_S)
        assert (len(having(world, end)), leader.watermark) == (1, end)
        world.run_until(world.now + DELAY_S)
        assert len(having(world, end)) == 2
        world.run_until(world.now + 0.07)
    busy(world, 3.0)
    shown = quorum_of(leader).leading.describe(leader.now()).topics[0].partitions[0]  # type: ignore[union-attr]
    caught_up = [each.last_caught_up_timestamp for each in shown.current_voters]
    assert max(caught_up) - min(caught_up) <= 2000 * DELAY_S, "under load too, all are caught up"


@pytest.mark.parametrize(("vote_version", "priority"), [(2, 2), (2, 0), (1, None)])
def test_topicwright_voters_and_peers_without_pre_vote_are_not_delayed(vote_version: int, priority: int | None) -> None:
    """`ResponseSchedule.committed` has the reasons."""
    world = settled()
    leader = leader_of(world)
    for each in others(world):
        each.vote_version, each.shown_priority = vote_version, priority
        world.shows(leader, each)
    leader.append(b"first")
    world.run_until(world.now + 1.0)
    for _ in range(5):
        leader.append(b"more")
        world.run_until(world.now + SOON_S)
        assert len(having(world, leader.disk.end)) == 2


def test_delayed_voters_get_new_records_when_a_commit_takes_too_long() -> None:
    world = settled()
    leader = leader_of(world)
    busy(world, 1.0)
    world.run_until(world.now + 1.0)
    leader.append(b"more")
    world.run_until(world.now + SOON_S)
    [needed] = having(world, leader.disk.end)
    world.run_until(world.now + 1.0)
    needed.paused = []
    leader.append(b"without it")
    world.run_until(world.now + COMMIT_DELAY_S_MAX + SOON_S)
    assert leader.watermark == leader.disk.end
    leader.append(b"the other is needed now")
    world.run_until(world.now + SOON_S)
    assert leader.watermark == leader.disk.end
    world.run_until(world.now + 0.3)
    needed.resume()
    world.run_until(world.now + DELAY_S)
    assert (needed.disk.end, quorum_of(leader).role) == (leader.disk.end, Role.LEADER)


def test_a_restarted_voter_catches_up_without_delay() -> None:
    world = settled()
    leader = leader_of(world)
    leader.append(b"first")
    world.run_until(world.now + 1.0)
    behind = others(world)[0]
    behind.kill(power=False)
    for _ in range(40):
        leader.append(b"x" * 100_000)
        world.run_until(world.now + 0.1)
    behind.boot()
    world.run_until(world.now + 0.4)
    assert behind.disk.end == leader.disk.end
