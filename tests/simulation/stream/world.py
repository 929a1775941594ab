"""The simulated world of the distributed engine: a Kafka, workers, gateways, and their supervisor."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from controller.kafka.messages import Message
from controller.machine.decision import Answer
from controller.stream.worker.driver_faust import FaustDriver
from controller.stream.worker.owner_tasks import PartitionBrokers
from events.catalog import Configs
from events.codec import decode_event
from events.logs.events_topic import PartitionReader
from tests.simulation.plan import Plan
from tests.simulation.stream.caches import Kept
from tests.simulation.stream.clients_of_kafka import SimulatedConsumer
from tests.simulation.stream.faust_app import SimulatedFaust
from tests.simulation.stream.kafka import NO_RECORD, Link, SimulatedKafka
from tests.simulation.stream.processes import GatewayProcess, WorkerProcess
from tests.simulation.virtual_time import context_of
from tests.simulation.witness import Witness
from tests.simulation.world import BORN_MS, POLICY, ConnectionLost
from tests.support.memory_log import InMemoryLog

ON_DISK = 0.05
"""Probability that a simulation uses RocksDB."""
STARTS_S = 0.5
"""Time to restart a process."""


class StreamWitness(Witness):
    """Reads the valid events of the events topic."""

    def __init__(self, kafka: SimulatedKafka) -> None:
        super().__init__(InMemoryLog("none"))  # `look` reads the topic
        self._kafka = kafka
        self._folds = [PartitionReader(number) for number in range(len(kafka.events))]
        self.events = 0

    def look(self) -> None:
        """Read the events since the last call."""
        for reader, log in zip(self._folds, self._kafka.events, strict=True):
            for offset in range(reader.kafka_offset, len(log)):
                taken = reader.read(offset, log[offset]) if log[offset] != NO_RECORD else None
                for number, event in enumerate(taken.events if taken is not None else ()):
                    self.events += 1
                    self.take(decode_event(number, event).event)


class StreamWorld:
    """The whole world from a seed. For clients it is also the `process`, which passes each request to some gateway."""

    def __init__(
        self, rng: random.Random, folder: Path, plan: Plan, *, is_faust: bool, brokers_of: type[PartitionBrokers]
    ) -> None:
        self.rng = rng
        self.is_faust = is_faust
        self.brokers_of = brokers_of
        self.plan = plan
        self.folder = folder
        self.is_on_disk = rng.random() < ON_DISK
        self.kept: Kept = {}
        self.partitions = rng.choice((1, 2, 4))
        self.kafka = SimulatedKafka(rng, self.partitions)
        self.brokers = rng.choice((1, 3))
        self.policy_s = rng.choice(((0.0, 0.0), (0.0, 0.01), (0.0, 0.1)))
        self.partitions_cached = rng.choice((3, 10_000))
        self.witness = StreamWitness(self.kafka)
        self.failures: list[BaseException] = []
        self.counts: Counter[str] = Counter()
        self.workers: dict[str, WorkerProcess] = {}
        self.gateways: dict[str, GatewayProcess] = {}
        self.signs = True
        """True while workers sign tree heads."""
        self._processes = 0

    @property
    def process(self) -> StreamWorld:
        """The object that answers clients."""
        return self

    def settings(self) -> Configs:
        """Random settings of a new worker, so that workers decide differently, as during a settings change."""
        partitions, policy = self.rng.choice(("2", "3")), self.rng.choice(("", "slow.Policy"))
        return ((POLICY, policy), ("default.replication.factor", "1"), ("num.partitions", partitions))

    def clock_ms(self) -> int:
        return BORN_MS + int(asyncio.get_running_loop().time() * 1000)

    async def call(self, client: str, api_key: int, version: int, request: Message) -> Message:
        """Send a request to a random gateway. Raises ConnectionLost."""
        return await (await self._gateway()).call(client, api_key, version, request)

    async def apply_rules(self, text: str) -> Answer:
        """Apply rules at a random gateway. Raises ConnectionLost."""
        return await (await self._gateway()).apply_rules(text)

    async def _gateway(self) -> GatewayProcess:
        gateways = [gateway for _, gateway in sorted(self.gateways.items()) if gateway.alive and gateway.node.caught_up]
        if not gateways:
            await asyncio.sleep(0.1)
            raise ConnectionLost("no gateway listens")
        return self.rng.choice(gateways)

    def start_worker(self, name: str) -> None:
        """Start the worker of a folder, unless it is running."""
        if name in self.workers:
            return
        worker = self.workers[name] = WorkerProcess(self, self._next(), self.folder / name)
        running: asyncio.Task[None] = context_of(worker.number).run(asyncio.ensure_future, worker.run())
        running.add_done_callback(lambda _: self._ended(name, worker, running))

    def _ended(self, name: str, worker: WorkerProcess, running: asyncio.Task[None]) -> None:
        error = None if running.cancelled() else running.exception()
        if error is not None:
            self.failures.append(error)
        worker.ended.set()
        if worker.alive:
            worker.alive = False
            del self.workers[name]

    def start_gateway(self, name: str) -> None:
        """Start the gateway of a folder."""
        self.gateways[name] = GatewayProcess(self, self._next(), self.folder / name)

    def _next(self) -> int:
        self._processes += 1
        return self._processes

    async def kill(self, name: str) -> None:
        """Kill a process, and start it again after a while."""
        processes: dict[str, Any] = self.workers if name in self.workers else self.gateways
        start = self.start_worker if processes is self.workers else self.start_gateway
        processes.pop(name).kill()
        await asyncio.sleep(STARTS_S * self.rng.uniform(0.5, 4))
        start(name)


@contextmanager
def kafka_of(worlds: list[StreamWorld]) -> Iterator[None]:
    """In the block, drivers use simulated consumers; a group's bootstrap address is the number of its process."""

    def links(bootstrap: str) -> tuple[Link, Link]:
        workers = [worker for world in worlds for worker in world.workers.values()]
        (worker,) = [each for each in workers if each.number == int(bootstrap)]
        return worker.link, worker.group_link

    def consumer(*, bootstrap_servers: str, **options: Any) -> SimulatedConsumer:
        return SimulatedConsumer(*links(bootstrap_servers), **options)

    def app(driver: FaustDriver) -> SimulatedFaust:
        return SimulatedFaust(driver, *links(driver._bootstrap))

    with (
        mock.patch("controller.stream.worker.driver.AIOKafkaConsumer", consumer),
        mock.patch.object(FaustDriver, "_make_app", app),
    ):
        yield
