"""Faults of processes and of their connections to Kafka."""

import asyncio
import random
from collections.abc import Awaitable, Callable

from tests.simulation.plan import FAULTS
from tests.simulation.stream.kafka import HEARTBEAT_S, SESSION_S, TIMEOUT_S
from tests.simulation.stream.world import STARTS_S, StreamWorld

WORKERS_MIN = 2
"""With fewer workers, none could take over."""


class Faults:
    """Injects faults into a world."""

    def __init__(self, world: StreamWorld) -> None:
        self._world = world
        self._rng = random.Random(world.rng.getrandbits(64))
        self._going: set[asyncio.Task[None]] = set()
        self._joined = 0

    async def go_on(self, until: float, pause_s: float) -> None:
        """Inject random faults until a time, then end all of them."""
        kinds: list[Callable[[], Awaitable[None]]] = [
            self.kill,
            self.kill,
            *[self.cut] * 3,
            *[self.outlive] * 4,
            self.stop_worker,
            self.join,
            self.lose_kafka,
            self.lose_answers,
            self.slow_down,
            *[self.abort_transaction] * (not self._world.is_faust),  # fewer seeds would find the planted bugs
        ]
        loop = asyncio.get_running_loop()
        while loop.time() < until:
            await asyncio.sleep(self._rng.expovariate(1 / pause_s))
            kind = self._rng.choice(kinds)
            if self._world.plan.happens(FAULTS):
                self._world.counts.update([kind.__name__, FAULTS])
                self._going.add(asyncio.ensure_future(kind()))
        await asyncio.gather(*self._going)
        self._world.kafka.mend()

    async def kill(self) -> None:
        """Kill a process and start it again."""
        name = self._rng.choice(sorted([*self._world.workers, *self._world.gateways]) or [""])
        if name:
            await self._world.kill(name)

    async def cut(self) -> None:
        """Cut a process from Kafka, or a worker from its group, without an error: its requests arrive late. Another
        worker may take over meanwhile, and the first continues as a zombie."""
        workers, gateways = self._world.workers.values(), self._world.gateways.values()
        ways = [[each.group_link] for each in workers for _ in range(3)]
        ways += [[each.link, each.group_link, each.events_link] for each in workers]
        ways += [*([each.link, each.events_link] for each in workers), *([each.link] for each in gateways)]
        cut = self._rng.choice(ways) if ways else []
        for link in cut:
            link.is_cut = True
        await asyncio.sleep(self._rng.choice((0.1, 2.0, 2.5, 3.0, 5.0)))
        for link in cut:
            link.mend()

    async def outlive(self) -> None:
        """Cut a worker from its group while it continues. Its last writes are delayed until another worker has taken
        over, and arrive while that one decides."""
        owners = [each for _, each in sorted(self._world.workers.items()) if each.engine.leaders]
        if not owners or len(self._world.workers) < WORKERS_MIN:
            await self.join()
            return
        worker = self._rng.choice(owners)
        partition = self._rng.choice(sorted(worker.engine.leaders))
        worker.group_link.is_cut = True
        await asyncio.sleep(SESSION_S - self._rng.uniform(0, HEARTBEAT_S))
        worker.events_link.is_cut = True
        await self._world.kafka.fenced(partition, TIMEOUT_S - 1)
        await asyncio.sleep(self._rng.expovariate(1 / self._rng.choice((0.002, 0.05))))
        worker.events_link.mend()
        await asyncio.sleep(self._rng.choice((0.0, 0.1, 1.0)))
        worker.group_link.mend()

    async def stop_worker(self) -> None:
        """Stop a worker with SIGTERM and start it again."""
        name = self._rng.choice(sorted(self._world.workers) or [""])
        if name:
            worker = self._world.workers[name]
            worker.stopping.set()
            await worker.ended.wait()
            await asyncio.sleep(STARTS_S)
            self._world.start_worker(name)

    async def join(self) -> None:
        """Run one more worker for a while."""
        self._joined += 1
        name = f"worker-more-{self._joined}"
        self._world.start_worker(name)
        await asyncio.sleep(self._rng.uniform(0.5, 5))
        worker = self._world.workers.get(name)
        if worker is not None:
            worker.stopping.set()

    async def lose_kafka(self) -> None:
        """Cut all processes from Kafka."""
        for link in self._world.kafka.links:
            link.is_cut = True
        await asyncio.sleep(self._rng.choice((0.2, 1.5, 4.0)))
        for link in self._world.kafka.links:
            link.mend()

    async def lose_answers(self) -> None:
        """Lose responses of Kafka to requests that it has handled."""
        self._world.kafka.lost = self._rng.choice((0.02, 0.1, 0.4))
        await asyncio.sleep(self._rng.uniform(0.2, 2))
        self._world.kafka.lost = 0.0

    async def slow_down(self) -> None:
        """Increase the latency of Kafka."""
        self._world.kafka.latency_s = self._rng.choice((0.02, 0.2))
        await asyncio.sleep(self._rng.uniform(0.2, 2))
        self._world.kafka.latency_s = 0.002

    async def abort_transaction(self) -> None:
        """An external producer writes to the events topic in a transaction and aborts it."""
        kafka = self._world.kafka
        kafka.abort(self._rng.randrange(len(kafka.events)), self._rng.randrange(4))
