"""The simulated world of Kafka brokers from one seed: a controller on two disks, machines with brokers, clients."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

from controller.brokers.kraft import readiness
from controller.kafka.messages import Message
from controller.machine.decision import Answer
from controller.settings.load import load_settings
from events.catalog import Recorded
from events.codec import decode_event
from tests.simulation.brokers.answers import Answers
from tests.simulation.brokers.controller import CLUSTER, ControllerProcess, QuorumDisk
from tests.simulation.brokers.door import Door, Line
from tests.simulation.brokers.machine import Machine
from tests.simulation.brokers.probes import Probes
from tests.simulation.brokers.witness import LifeWitness
from tests.simulation.faulty_log import Disk
from tests.simulation.plan import Plan
from tests.simulation.world import BORN_MS, ConnectionLost

ELIGIBLE_SINCE = 27
"""From this metadata.version on, new clusters have eligible leader replicas (KIP-966)."""


class World:
    """The whole world. For clients it is also the `process`; each client has its own connection."""

    def __init__(self, rng: random.Random, plan: Plan) -> None:
        self.rng, self.plan = rng, plan
        self.counts: Counter[str] = Counter()
        self.disk = Disk(rng, CLUSTER)
        self.quorum_disk = QuorumDisk(rng.randbytes(16), lambda *_: None)
        self.partitions_cached = rng.choice((3, 20, 10_000))
        self.skew_ms = 0
        level = rng.choice((None, 19, ELIGIBLE_SINCE, 30, 30))
        self.metadata_version = level
        timeout_ms = rng.choice((3_000, 6_000))
        balancing = rng.choice(("auto.leader.rebalance.enable=false", "leader.imbalance.check.interval.seconds=3"))
        self.serve_settings = load_settings(overrides=[f"broker.session.timeout.ms={timeout_ms}", balancing])
        self.loses = level is not None and level >= ELIGIBLE_SINCE
        """True if brokers may lose records; only with eligible leader replicas does Kafka detect it."""
        self.settings = {
            "num.partitions": "2",
            "default.replication.factor": "2",
            "enable.under.replicated.topic.creation": rng.choice(("true", "false")),
        }
        self._processes = 0
        self._lines: dict[str, Line] = {}
        self.witness = LifeWitness(self)
        self.answers = Answers(self)
        self.replicate_s = rng.choice((0.2, 0.4))
        self.sync_s = 0.001
        """Duration of a flush of the quorum's log."""
        self.produces = True
        """True while leaders append numbers."""
        self._numbers = 0
        self.machines = {each: Machine(self, each) for each in range(1, 1 + rng.choice((1, 3, 3, 3, 4)))}
        self.controller: ControllerProcess | None = None
        self.failures: list[BaseException] = []

    # --- time and processes

    def clock_ms(self) -> int:
        """The wall clock, which the fault `set_clock` changes."""
        return BORN_MS + self.skew_ms + int(asyncio.get_running_loop().time() * 1000)

    def new_process(self) -> int:
        self._processes += 1
        return self._processes

    async def boot(self) -> None:
        process = ControllerProcess(self, self.new_process())
        await process.start()
        self.controller = process

    def failed(self, process: ControllerProcess, why: BaseException | None) -> None:
        """A process has failed; start another one after a second, as a supervisor does."""
        if process is not self.controller or not process.alive:
            return
        self.counts["ended"] += 1
        process.kill(power=False)
        self.controller = None
        asyncio.get_running_loop().call_later(1.0, self._boot_again)

    def _boot_again(self) -> None:
        if self.controller is None:
            self.booting = asyncio.ensure_future(self.boot())

    def door(self) -> Door | None:
        process = self.controller
        return process.door if process is not None and process.alive else None

    # --- clients

    @property
    def process(self) -> World:
        return self

    async def call(self, client: str, api_key: int, version: int, request: Message) -> Any:
        """Send a request over the client's connection. Raises ConnectionLost."""
        line = self._lines.get(client)
        if line is None:
            line = self._lines[client] = Line(self.door, client)
        return await line.call(api_key, version, request)

    async def apply_rules(self, text: str) -> Answer:
        """Apply rules over HTTP. Raises ConnectionLost."""
        if self.controller is None:
            raise ConnectionLost("nobody listens")
        return await self.controller.apply_rules(text)

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def records(self) -> list[Recorded]:
        return [decode_event(offset, value) for offset, value in self.disk.kept.read()]


@contextmanager
def probed(worlds: list[World]) -> Iterator[None]:
    """In the block, the controller probes the model brokers."""
    with mock.patch.object(readiness, "BrokerProbes", partial(Probes, worlds)):
        yield
