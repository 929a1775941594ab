"""One simulation of a controller from a seed, with checks at the end."""

import asyncio
import random

from tests.simulation import virtual_time
from tests.simulation.checks import check_at_rest, check_with_brokers_down
from tests.simulation.clients import ApprovingClient
from tests.simulation.faults import POLICY_S, Faults
from tests.simulation.lives import Outcome, named
from tests.simulation.plan import Plan
from tests.simulation.witness import Witness
from tests.simulation.world import POLICY, World, chance_from

LIFE_S = 8.0
REST_S = 120.0
"""Longer than the longest timeout in a request plus the slowest policy checks."""


def simulate(seed: int, plan: Plan | None = None) -> Outcome:
    """Run one seed and its checks. Raises AssertionError with the seed in a note."""
    rng = random.Random(seed)
    with named("process", seed), chance_from(rng):
        return virtual_time.run(_live(rng, plan or Plan()))


async def _live(rng: random.Random, plan: Plan) -> Outcome:
    world = World(rng, _settings(rng), brokers=rng.choice((1, 3, 3, 4)), plan=plan)
    world.policy_s = rng.choice(POLICY_S)
    world.partitions_cached = rng.choice((3, 20, 10_000))
    witness = Witness(world.disk.kept)
    await world.boot()
    faults = Faults(world)
    clients = [ApprovingClient(f"c{number}", world, witness) for number in range(rng.randint(1, 5))]
    think_s = rng.choice((0.02, 0.05, 0.3))
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(client.live(LIFE_S, think_s))
        group.create_task(_go_wrong(faults, rng.choice((0.2, 0.5, 1.5))))
    await asyncio.sleep(REST_S)
    check_with_brokers_down(world, witness)
    faults.heal_brokers()
    await asyncio.sleep(REST_S)
    check_at_rest(world, witness)
    world.counts["events"] = len(witness.seen)
    digest = world.digest()
    await world.process.stop()
    return Outcome(world.counts, digest)


async def _go_wrong(faults: Faults, pause_s: float) -> None:
    """Inject faults, then end them: requests that are still pending are answered only after that."""
    await faults.go_on(LIFE_S, pause_s)
    faults.heal_all_but_brokers()


def _settings(rng: random.Random) -> dict[str, str]:
    return {
        "num.partitions": "2",
        "default.replication.factor": "1",
        "auto.create.topics.enable": "true",
        "enable.under.replicated.topic.creation": rng.choice(("true", "false")),
        POLICY: rng.choice(("", "slow.Policy")),
    }
