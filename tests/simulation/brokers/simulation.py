"""One simulation of Kafka brokers and their controller from a seed, with checks at the end."""

import asyncio
import random

from tests.simulation import virtual_time
from tests.simulation.brokers.broker import Broker
from tests.simulation.brokers.checks import check_at_rest
from tests.simulation.brokers.clients import LifeClient, RulesClient
from tests.simulation.brokers.faults import Faults
from tests.simulation.brokers.world import World, probed
from tests.simulation.lives import Outcome, named
from tests.simulation.plan import Plan
from tests.simulation.world import chance_from

LIFE_S = 30.0
REST_S = 25.0
"""Longer than a session, than replicas need to rejoin the ISR, and than any timeout of a client."""
WATCH_S = 0.1
RULES_EVERY = 4
"""In each series of this many seeds, clients apply rules in the last. Rules refuse topics, so other faults are found
more easily without them."""


def simulate(seed: int, plan: Plan | None = None) -> Outcome:
    """Run one seed and its checks. Raises AssertionError with the seed in a note."""
    rng = random.Random(seed)
    worlds: list[World] = []
    kind = RulesClient if seed % RULES_EVERY == RULES_EVERY - 1 else LifeClient
    with named("brokers", seed), chance_from(rng), probed(worlds):
        return virtual_time.run(_live(rng, plan or Plan(), worlds, kind))


async def _live(rng: random.Random, plan: Plan, worlds: list[World], kind: type[LifeClient]) -> Outcome:
    world = World(rng, plan)
    worlds.append(world)
    virtual_time.virtual_loop().thread_s = lambda: world.sync_s * (0.5 + rng.random())
    await world.boot()
    for machine in world.machines.values():
        Broker(machine).start()
    clients = [kind(f"c{number}", world, world.witness) for number in range(rng.randint(1, 4))]
    faults = Faults(world, LifeClient("operator", world, world.witness))
    watching = asyncio.ensure_future(_watch(world))
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(client.live(LIFE_S, rng.choice((0.1, 0.3, 1.0))))
        group.create_task(_go_wrong(faults, rng.choice((0.5, 1.0, 3.0))))
    await asyncio.sleep(REST_S)
    watching.cancel()
    _raise_failures(world)
    await check_at_rest(world)
    world.counts["events"] = world.witness.end
    return Outcome(world.counts)


async def _go_wrong(faults: Faults, pause_s: float) -> None:
    await faults.go_on(LIFE_S, pause_s)
    await faults.heal()


async def _watch(world: World) -> None:
    """Check all topics periodically, whenever they are reconciled."""
    while True:
        await asyncio.sleep(WATCH_S)
        _raise_failures(world)
        controller = world.controller
        if controller is not None and controller.leads and controller.controller.is_reconciled():
            world.witness.look()
            world.witness.check_settled()


def _raise_failures(world: World) -> None:
    if world.failures:
        raise world.failures[0]
