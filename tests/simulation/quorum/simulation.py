"""One seed: a life of trouble, then calm, in which a leader is found and all become alike."""

from __future__ import annotations

import msgspec

from controller.brokers.kraft.quorum.raft.effects import Role
from tests.simulation.plan import Plan
from tests.simulation.quorum.faults import Faults
from tests.simulation.quorum.witness import Broken
from tests.simulation.quorum.world import World

LIFE_S = 12.0
CALM_S = 60.0


class Outcome(msgspec.Struct, frozen=True):
    """What came of a seed."""

    seed: int
    steps: int
    epochs: int
    committed: int
    answered: int
    counts: dict[str, int]
    recovered_s: float


def simulate(seed: int, plan: Plan | None = None, *, life_s: float = LIFE_S) -> Outcome:
    """Live through a seed and check. Raises AssertionError, which names the seed and the step."""
    world = World(seed)
    try:
        for replica in world.replicas.values():
            replica.boot()
        faults = Faults(world, plan or Plan())
        faults.begin()
        world.run_until(life_s)
        faults.calm()
        recovered_s = _recover(world, faults)
    except BaseException as error:
        error.add_note(f"step {world.steps}, {world.now:.3f} s; again: python -m tests.simulation quorum {seed}")
        raise
    witness = world.witness
    return Outcome(
        seed,
        world.steps,
        max(witness.leaders, default=0),
        witness.committed_end,
        witness.answered,
        dict(world.counts),
        recovered_s,
    )


def _recover(world: World, faults: Faults) -> float:
    began = world.now
    while world.now < began + CALM_S:
        world.run_until(world.now + 0.5)
        if faults.is_done and _is_alike(world):
            break
    else:
        raise Broken(f"not alike after {CALM_S} s of calm: {_shown(world)}")
    recovered_s = world.now - began
    leader, answered = world.leader, world.witness.answered
    assert leader is not None
    faults.append_to(leader)
    # A fetch that was lost before the calm is missed when its timeout has passed.
    for _ in range(6):
        world.run_until(world.now + 0.5)
        if world.witness.answered > answered or world.leader is not leader:
            break
    else:
        raise Broken(f"a leader does not commit: {_shown(world)}")
    return recovered_s


def _is_alike(world: World) -> bool:
    leader = world.leader
    if leader is None or leader.quorum is None:
        return False
    end = leader.disk.end
    return all(
        each.quorum is not None
        and each.quorum.role in (Role.LEADER, Role.FOLLOWER)
        and each.quorum.epoch == leader.quorum.epoch
        and (each.disk.end, each.watermark) == (end, end)
        for each in world.replicas.values()
    )


def _shown(world: World) -> str:
    shown = []
    for each in world.replicas.values():
        quorum = each.quorum
        assert quorum is not None
        shown.append(
            f"{each.id}: {quorum.role.value}@{quorum.epoch} follows {quorum.leader_id}, log {each.disk.start}-"
            f"{each.disk.end}@{each.disk.last_epoch} watermark {each.watermark} voters {quorum.voters.ids}"
        )
    return "; ".join(shown)
