"""One seed: a time of faults, then calm, in which the quorum must elect a leader and all logs must become equal."""

from controller.quorum.raft.effects import Role
from tests.simulation.lives import Outcome, named
from tests.simulation.plan import Plan
from tests.simulation.quorum.faults import Faults
from tests.simulation.quorum.witness import Broken
from tests.simulation.quorum.world import World

LIFE_S = 12.0
CALM_S = 60.0


def simulate(seed: int, plan: Plan | None = None) -> Outcome:
    """Run one seed and its checks. Raises AssertionError with the seed and the step in a note."""
    world = World(seed)
    with named("quorum", seed):
        try:
            for replica in world.replicas.values():
                replica.boot()
            faults = Faults(world, plan or Plan())
            faults.begin()
            world.run_until(LIFE_S)
            faults.calm()
            _recover(world, faults)
            world.witness.check_history()
        except BaseException as error:
            error.add_note(f"step {world.steps}, {world.now:.3f} s")
            raise
    epochs = max(world.witness.leaders, default=0)
    world.counts.update(steps=world.steps, epochs=epochs, requests=world.witness.answered)
    return Outcome(world.counts)


def _recover(world: World, faults: Faults) -> None:
    began = world.now
    while world.now < began + CALM_S:
        world.run_until(world.now + 0.5)
        if faults.is_done and _is_alike(world):
            break
    else:
        raise Broken(f"logs differ after {CALM_S} s of calm: {_shown(world)}")
    leader, answered = world.leader, world.witness.answered
    assert leader is not None
    faults.append_to(leader)
    # The sender notices a fetch that was lost before the calm only after its timeout.
    for _ in range(6):
        world.run_until(world.now + 0.5)
        if world.witness.answered > answered or world.leader is not leader:
            break
    else:
        raise Broken(f"the leader does not commit: {_shown(world)}")


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
