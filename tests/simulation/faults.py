"""Faults and operator actions: brokers, disk, policies, clock, kills and restarts of the process."""

import asyncio
import random
from typing import Any

from tests.simulation.plan import Deed
from tests.simulation.world import POLICY, World

BROKERS_MAX = 5
DELAYS_MS = (0, 0, 10, 300, 4_000)
POLICY_S = ((0.0, 0.0), (0.0, 0.01), (0.3, 2.0))


class DiskFaults:
    """Faults of the event log's disk, shared by all simulators that use this disk."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self._rng = random.Random(world.rng.getrandbits(64))

    def heal_disk(self) -> None:
        disk = self._world.disk
        disk.full, disk.failing_writes, disk.failing_syncs, disk.sync_s = False, 0.0, 0.0, (0.0, 0.001)

    async def fill_disk(self) -> None:
        disk = self._world.disk
        disk.full, disk.dark = True, self._rng.random() < 0.5
        await asyncio.sleep(self._rng.uniform(0, 1.5))
        disk.full = False

    async def fail_syncs(self) -> None:
        disk = self._world.disk
        disk.failing_syncs, disk.failing_writes = self._rng.choice((0.01, 0.2)), self._rng.choice((0, 0.02))
        await asyncio.sleep(self._rng.uniform(0, 1))
        disk.failing_syncs = disk.failing_writes = 0.0


class Faults(DiskFaults):
    """Injects random faults into a world, one after another."""

    _world: World

    async def go_on(self, until: float, pause_s: float) -> None:
        deeds: tuple[Deed, ...] = (
            self.stop_broker, self.stop_broker, self.start_broker, self.start_broker, self.start_broker,
            self.add_broker, self.delay_broker, self.delay_broker,
            self.fill_disk, self.fail_syncs, self.slow_syncs, self.slow_policies, self.set_clock,
            self.kill, self.cut_power, self.restart,
        )  # fmt: skip
        await self._world.plan.go_on(self._rng, deeds, self._world.counts, until, pause_s)

    def heal_all_but_brokers(self) -> None:
        """End all faults and delays, but do not start stopped brokers."""
        process = self._world.process
        self.heal_disk()
        self._world.policy_s = (0.0, 0.0)
        if process.policies is not None:
            process.policies.seconds = (0.0, 0.0)
        for broker_id in process.brokers.by_id:
            process.run(process.brokers.set_delay, broker_id, 0)

    def heal_brokers(self) -> None:
        process = self._world.process
        for broker_id, broker in process.brokers.by_id.items():
            if not broker.running:
                process.run(process.brokers.start_broker, broker_id)

    def _any_broker(self) -> int:
        return self._rng.choice(sorted(self._world.process.brokers.by_id))

    async def stop_broker(self) -> None:
        self._world.process.run(self._world.process.brokers.stop_broker, self._any_broker())

    async def start_broker(self) -> None:
        self._world.process.run(self._world.process.brokers.start_broker, self._any_broker())

    async def add_broker(self) -> None:
        process = self._world.process
        for _ in range(self._rng.choice((1, 1, 2))):
            if len(process.brokers.by_id) < BROKERS_MAX:
                process.run(process.brokers.add)

    async def delay_broker(self) -> None:
        process = self._world.process
        process.run(process.brokers.set_delay, self._any_broker(), self._rng.choice(DELAYS_MS))

    async def slow_syncs(self) -> None:
        disk = self._world.disk
        disk.sync_s = self._rng.choice(((0.0, 0.0), (0.0, 0.002), (0.01, 0.1), (0.3, 0.6)))

    async def slow_policies(self) -> None:
        self._world.policy_s = self._rng.choice(POLICY_S)
        policies = self._world.process.policies
        if policies is not None:
            policies.seconds = self._world.policy_s

    async def set_clock(self) -> None:
        self._world.skew_ms += self._rng.choice((-3_600_000, -5_000, -3, 3, 5_000))

    async def kill(self) -> None:
        self._world.process.kill(power=False)
        await self._boot()

    async def cut_power(self) -> None:
        self._world.process.kill(power=True)
        await self._boot()

    async def restart(self) -> None:
        await self._world.process.stop()
        await self._boot()

    async def _boot(self) -> None:
        settings = self._world.settings
        if self._rng.random() < 0.3:
            settings[POLICY] = "" if settings.get(POLICY) else "slow.Policy"
        await asyncio.sleep(self._rng.uniform(0, 0.5))
        await self._world.boot()
