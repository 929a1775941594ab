"""When voters get what is new of a leader, and what comes of it when that dies."""

from __future__ import annotations

import pytest

from controller.brokers.kraft.quorum.raft import following
from controller.brokers.kraft.quorum.raft.effects import Role
from controller.brokers.kraft.quorum.raft.turns import PATIENCE_S, SHARE
from tests.brokers.kraft.quorum.worlds import leader_of, others, quorum_of, settled
from tests.simulation.quorum.world import ELECTION_TIMEOUT_S, FETCH_TIMEOUT_S, Replica, World

AT_ONCE_S = 0.03
HELD_S = SHARE * FETCH_TIMEOUT_S


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
def test_when_a_leader_dies_one_wins_in_one_go(every_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the votes are. Kafka's voters do not wait at random before they stand first."""
    monkeypatch.setattr(following, "TOGETHER", 0.0)
    split = []
    for moment in range(20):
        world = settled()
        busy(world, 2.0 + 0.0137 * moment, every_s)
        dead = leader_of(world)
        epoch = quorum_of(dead).epoch
        dead.kill(power=False)
        world.latency_s = 0.02
        died_at = world.now
        while world.leader is None:
            world.run_until(world.now + 0.01)
        took_s = world.now - died_at
        if quorum_of(leader_of(world)).epoch > epoch + 1 or took_s > FETCH_TIMEOUT_S + ELECTION_TIMEOUT_S / 2:
            split.append((moment, took_s))
    assert len(split) <= 2, f"of 20: {split}"


def test_who_is_not_needed_for_a_commit_gets_what_is_new_later_and_all_of_it() -> None:
    world = settled()
    leader = leader_of(world)
    leader.append(b"first")
    world.run_until(world.now + 1.0)
    for _ in range(5):
        leader.append(b"more")
        end = leader.disk.end
        world.run_until(world.now + AT_ONCE_S)
        assert (len(having(world, end)), leader.watermark) == (1, end)
        world.run_until(world.now + HELD_S)
        assert len(having(world, end)) == 2
        world.run_until(world.now + 0.07)
    busy(world, 3.0)
    shown = quorum_of(leader).leading.describe(leader.now()).topics[0].partitions[0]  # type: ignore[union-attr]
    caught_up = [each.last_caught_up_timestamp for each in shown.current_voters]
    assert max(caught_up) - min(caught_up) <= 2000 * HELD_S, "under load too all keep up, as far as anybody shows"


@pytest.mark.parametrize(("vote_version", "priority"), [(2, 2), (2, 0), (1, None)])
def test_who_would_disturb_gets_what_is_new_at_once(vote_version: int, priority: int | None) -> None:
    """Who claims while its fetch is held takes that for a sign that there is nothing new; ours stand at random moments,
    so that with less of the log they would stand too late; who knows no pre-vote begins an epoch in vain."""
    world = settled()
    leader = leader_of(world)
    for each in others(world):
        each.vote_version, each.shown_priority = vote_version, priority
        world.shows(leader, each)
    leader.append(b"first")
    world.run_until(world.now + 1.0)
    for _ in range(5):
        leader.append(b"more")
        world.run_until(world.now + AT_ONCE_S)
        assert len(having(world, leader.disk.end)) == 2


def test_a_commit_waits_for_the_one_that_it_needs_only_so_long() -> None:
    world = settled()
    leader = leader_of(world)
    busy(world, 1.0)
    world.run_until(world.now + 1.0)
    leader.append(b"more")
    world.run_until(world.now + AT_ONCE_S)
    [needed] = having(world, leader.disk.end)
    world.run_until(world.now + 1.0)
    needed.paused = []
    leader.append(b"without it")
    world.run_until(world.now + PATIENCE_S + AT_ONCE_S)
    assert leader.watermark == leader.disk.end
    leader.append(b"the other is needed now")
    world.run_until(world.now + AT_ONCE_S)
    assert leader.watermark == leader.disk.end
    world.run_until(world.now + 0.3)
    needed.resume()
    world.run_until(world.now + HELD_S)
    assert (needed.disk.end, quorum_of(leader).role) == (leader.disk.end, Role.LEADER)


def test_who_was_away_catches_up_without_waiting() -> None:
    world = settled()
    leader = leader_of(world)
    leader.append(b"first")
    world.run_until(world.now + 1.0)
    spare = others(world)[0]
    spare.kill(power=False)
    for _ in range(40):
        leader.append(b"x" * 100_000)
        world.run_until(world.now + 0.1)
    spare.boot()
    world.run_until(world.now + 0.4)
    assert spare.disk.end == leader.disk.end
