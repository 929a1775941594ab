"""Faults of brokers, of their disks and networks, and of the controller; also actions of operators."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy

from tests.simulation.brokers.broker import Broker
from tests.simulation.brokers.clients import LifeClient
from tests.simulation.brokers.machine import Machine
from tests.simulation.brokers.world import World
from tests.simulation.faults import DiskFaults
from tests.simulation.plan import Deed
from tests.simulation.world import ConnectionLost

GHOST_S = 3.0
"""How long a replaced process continues to run."""


class Faults(DiskFaults):
    """Injects random faults into a world, one after another."""

    _world: World

    def __init__(self, world: World, operator: LifeClient) -> None:
        super().__init__(world)
        self._operator = operator
        self._later: set[asyncio.Task[None]] = set()
        self._replaced: list[Broker] = []

    async def go_on(self, until: float, pause_s: float) -> None:
        deeds: tuple[Deed, ...] = (
            *[self.kill_broker] * 3, *[self.stop_broker] * 2, *[self.pause_broker] * 3, *[self.cut_broker] * 2,
            *[self.start_broker] * 6, self.replace_process, self.slow_broker, self.fail_directory,
            *([self.cut_power_of_broker] * 2 if self._world.loses else []), self.unregister, self.add_machine,
            self.kill, self.cut_power, self.restart, self.fill_disk, self.fill_quorum_disk, self.fail_syncs,
            self.slow_syncs, self.set_clock,
        )  # fmt: skip
        await self._world.plan.go_on(self._rng, deeds, self._world.counts, until, pause_s)

    async def heal(self) -> None:
        """End all faults and start all brokers."""
        world = self._world
        self.heal_disk()
        world.quorum_disk.is_full = world.produces = False
        for each in self._later:
            each.cancel()
        for broker in self._replaced:
            broker.kill()
        if world.controller is None:
            await asyncio.sleep(3.0)
        for machine in world.machines.values():
            machine.is_cut, machine.slow_s = False, 0.001
            last = machine.broker
            if last is not None and (machine.failed or last.leaving_since is not None):
                last.end_in_order() if last.leaving_since is not None else last.kill()
            elif last is not None:
                last.go_on()
            self._start(machine, repaired=True)

    def _after(self, seconds: float, what: Callable[[], None]) -> None:
        async def later() -> None:
            await asyncio.sleep(seconds)
            what()

        task = asyncio.ensure_future(later())
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    # --- brokers

    def _any(self, up: bool) -> Machine | None:
        found = [each for each in self._world.machines.values() if (each.broker is not None) is up]
        return self._rng.choice(found) if found else None

    def _broker(self) -> Broker | None:
        machine = self._any(up=True)
        return machine.broker if machine is not None else None

    async def kill_broker(self) -> None:
        broker = self._broker()
        if broker is not None:
            broker.kill()

    async def cut_power_of_broker(self) -> None:
        broker = self._broker()
        if broker is not None:
            broker.kill(power=True)

    async def stop_broker(self) -> None:
        broker = self._broker()
        if broker is not None:
            broker.go_on()
            broker.leave()

    async def pause_broker(self) -> None:
        broker = self._broker()
        if broker is not None:
            broker.pause()
            self._after(self._rng.choice((0.5, 2.0, 8.0)) * self._rng.random() * 2, broker.go_on)

    async def cut_broker(self) -> None:
        machine = self._any(up=True)
        if machine is not None and machine.broker is not None:
            machine.is_cut = True
            machine.broker.cut()
            self._after(self._rng.choice((1.0, 8.0)) * self._rng.random() * 2, lambda: self._mend(machine))

    def _mend(self, machine: Machine) -> None:
        machine.is_cut = False

    async def slow_broker(self) -> None:
        machine = self._any(up=True)
        if machine is not None:
            machine.slow_s = self._rng.choice((0.001, 0.05, 0.5))

    async def start_broker(self) -> None:
        machine = self._any(up=False)
        if machine is not None:
            if self._world.loses and self._rng.random() < 0.15:
                self._world.counts["replace_disk"] += 1
                machine.replace_disk()
            self._start(machine, repaired=self._rng.random() < 0.5)

    def _start(self, machine: Machine, *, repaired: bool) -> None:
        if machine.broker is None:
            if repaired or not machine.online:
                machine.failed.clear()
            Broker(machine).start()

    async def replace_process(self) -> None:
        """Pause a process and start another one with its broker id; the first one then continues."""
        broker = self._broker()
        if broker is None or broker.epoch is None:
            return
        broker.pause()
        machine = broker.machine
        machine.broker, machine.view = None, deepcopy(machine.view)
        self._start(machine, repaired=False)
        self._after(self._rng.uniform(0, 8), broker.go_on)
        self._after(8 + GHOST_S, broker.kill)
        self._replaced.append(broker)

    async def fail_directory(self) -> None:
        broker = self._broker()
        if broker is not None and not broker.is_paused:
            broker.fail_directory(self._rng.choice(broker.machine.online))

    async def unregister(self) -> None:
        """Unregister the broker of a machine that is down."""
        machine = self._any(up=False)
        if machine is not None:
            with suppress(ConnectionLost):
                await self._operator.unregister(machine.id)

    async def add_machine(self) -> None:
        machines = self._world.machines
        if len(machines) < 4:
            machine = machines[len(machines) + 1] = Machine(self._world, len(machines) + 1)
            self._start(machine, repaired=False)

    # --- the controller

    async def kill(self) -> None:
        await self._end(power=False)

    async def cut_power(self) -> None:
        await self._end(power=True)

    async def _end(self, *, power: bool) -> None:
        controller = self._world.controller
        if controller is not None:
            controller.kill(power=power)
            await self._boot()

    async def restart(self) -> None:
        controller = self._world.controller
        if controller is not None:
            await controller.stop()
            await self._boot()

    async def _boot(self) -> None:
        await asyncio.sleep(self._rng.choice((0.2, 0.2, 4.0)) * self._rng.random())
        await self._world.boot()

    async def fill_quorum_disk(self) -> None:
        self._world.quorum_disk.is_full = True
        await asyncio.sleep(self._rng.uniform(0, 1.5))
        self._world.quorum_disk.is_full = False

    async def slow_syncs(self) -> None:
        self._world.sync_s = self._rng.choice((0.0, 0.001, 0.02, 0.3))

    async def set_clock(self) -> None:
        self._world.skew_ms += self._rng.choice((-3_600_000, -5_000, 5_000))
