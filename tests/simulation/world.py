"""The simulated world from one seed: a disk, a series of processes that serve from it, clients, and faults.

The processes run product code: Controller, ControllerApi, the handlers of Kafka's requests and SimulatedBrokers over
the in-memory log. Only time, the disk, the policies and the network are simulated.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import structlog

from controller.apis.tables import HandlerTable, controller_listener
from controller.brokers.port import Brokers
from controller.brokers.simulated import SimulatedBrokers
from controller.controller_api import ControllerApi
from controller.engine.group_commit import Controller
from controller.engine.reports import Reports
from controller.kafka.handling import ClientConnection, RequestContext
from controller.kafka.messages import Message
from controller.kafka.server import eager
from controller.machine.commands.access import ApplyRules, EndApprovals
from controller.machine.commands.commands import Approval
from controller.machine.decision import Answer
from controller.machine.recorded_command import approved_command
from events.catalog import ApprovalRequested, Endpoint, Recorded
from events.codec import decode_event
from events.logs.log import LogError
from tests.simulation.faulty_log import Disk, FaultyLog
from tests.simulation.plan import Plan
from tests.simulation.slow_policies import SlowPolicies
from tests.simulation.virtual_time import context_of, virtual_loop

BORN_MS = 1_700_000_000_000
ENDPOINT = Endpoint("PLAINTEXT", "localhost", 9092)
RELEASE = "1.0"
POLICY = "create.topic.policy.class.name"


class ConnectionLost(Exception):
    """The process died, or closed the connection, before it answered."""


class Unheard:
    """A logger and metrics that discard everything."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


class Serving:
    """A process that serves Kafka's requests. Its tasks and timers belong to process `number` and end with it."""

    api: ControllerApi
    handlers: HandlerTable

    def __init__(self, number: int) -> None:
        self.number = number
        self.alive = True

    def run(self, action: Callable[..., Any], *args: Any) -> Any:
        return context_of(self.number).run(action, *args)

    def controller_on(self, log: FaultyLog, brokers: Brokers, world: Any, **more: Any) -> Controller:
        """A controller of this process, with the world's clock."""
        return Controller(
            log,
            brokers,
            boot_id=f"p{self.number}",
            clock_ms=world.clock_ms,
            flush=log.flushed,
            reports=Reports(Unheard(), lambda _: None, Unheard()),
            partitions_cached=world.partitions_cached,
            **more,
        )

    async def call(self, client: str, api_key: int, version: int, request: Message) -> Message:
        """Handle one request as a connection does. Raises ConnectionLost."""
        answer: Message = await self._answer(self._begin, client, api_key, version, request)
        return answer

    async def apply_rules(self, text: str) -> Answer:
        """Apply rules as `POST /v1/rules` does. Raises ConnectionLost."""
        answer: Answer = await self._answer(lambda: asyncio.ensure_future(self._applied(text)))
        return answer

    async def decide_held(self, draw: float, approves: bool) -> tuple[ApprovalRequested, Answer] | None:
        """Approve or deny one of the held requests as HTTP does; `draw` from 0 to 1 selects it. Raises
        ConnectionLost."""
        try:
            held = sorted(self.api.cluster.held.items())
        except LogError as error:
            raise ConnectionLost("the handler could not read") from error
        if not held:
            return None
        one = held[int(draw * len(held))][1]
        answer: Answer = await self._answer(lambda: asyncio.ensure_future(self._decided(one, approves)))
        return one, answer

    async def _decided(self, held: ApprovalRequested, approves: bool) -> Answer:
        controller = self.api.controller
        stamps: dict[str, Any] = {"request_id": controller.new_request_id(), "at_ms": controller.now_ms()}
        if approves:
            command = approved_command(
                held, Approval(held.request_id, "User:approver"), **stamps, topic_id=self.api.new_topic_ids(1)[0]
            )
            return (await self.api.submit_change([command])).answers[0]
        return (
            await self.api.submit([EndApprovals(held=((held.request_id, held.name),), reason="no", **stamps)])
        ).answers[0]

    async def _answer(self, begin: Callable[..., Any], *args: Any) -> Any:
        if not self.alive:
            raise ConnectionLost("nobody listens")
        given = self.run(begin, *args)
        if isinstance(given, Message):
            return given
        try:
            await asyncio.wait({given})
        finally:
            given.cancel()
        if not self.alive or given.cancelled():
            raise ConnectionLost("the process is gone")
        if isinstance(given.exception(), LogError):
            raise ConnectionLost("the handler could not read") from given.exception()
        return given.result()

    async def _applied(self, text: str) -> Answer:
        controller = self.api.controller
        command = ApplyRules(request_id=controller.new_request_id(), at_ms=controller.now_ms(), text=text)
        return (await self.api.submit([command])).answers[0]

    def _begin(self, client: str, api_key: int, version: int, request: Message) -> Any:
        context = RequestContext(api_key, version, 0, client, ClientConnection(peer=client))
        try:
            given = self.handlers[api_key].handle(context, request)
            if asyncio.iscoroutine(given):
                given = eager.start(given, asyncio.get_running_loop())
        except LogError as error:
            raise ConnectionLost("the handler could not read") from error
        assert given is not None, "every request of the simulation must have a response"
        return given


class Process(Serving):
    """One process: a controller on the disk, with its ControllerApi, handlers and brokers."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(number)
        self.world = world
        self.log = FaultyLog(world.disk)
        self.brokers = SimulatedBrokers(world.brokers)
        for broker_id, broker in self.brokers.by_id.items():
            broker.running = broker_id not in world.down
            broker.delay_ms = world.delays_ms.get(broker_id, 0)
        self.policies = SlowPolicies(world.rng, world.policy_s) if world.settings.get(POLICY) else None
        self.controller = self.controller_on(self.log, self.brokers, world, policies=self.policies)
        self.api = ControllerApi(self.controller, node_id=0, advertised=ENDPOINT)
        self.handlers = controller_listener(self.api)

    async def start(self) -> None:
        settings = tuple(sorted(self.world.settings.items()))
        await self.run(asyncio.ensure_future, self.controller.start(settings, RELEASE))

    def kill(self, *, power: bool) -> None:
        """SIGKILL, or a power failure, which may lose unsynced commits."""
        self.alive = False
        virtual_loop().kill(self.number)
        self.world.disk.crash(power=power)

    async def stop(self) -> None:
        """SIGTERM, after all connections are closed."""
        self.alive = False
        await self.run(asyncio.ensure_future, self.controller.stop())
        self.log.close()
        await asyncio.sleep(0)
        left = virtual_loop().left_of(self.number)
        assert not left, f"the stopped controller left tasks or timers: {left}"


class World:
    def __init__(
        self, rng: random.Random, settings: dict[str, str] | None = None, brokers: int = 3, plan: Plan | None = None
    ) -> None:
        self.rng = rng
        self.plan = plan or Plan()
        self.counts: Counter[str] = Counter()
        self.disk = Disk(rng)
        self.settings = settings or {}
        self.brokers = brokers
        self.down: set[int] = set()
        self.delays_ms: dict[int, int] = {}
        self.policy_s = (0.0, 0.0)
        self.partitions_cached = 1000
        self.skew_ms = 0
        self._processes = 0
        self.process: Process

    def clock_ms(self) -> int:
        """The wall clock, which the fault `set_clock` changes."""
        return BORN_MS + self.skew_ms + int(asyncio.get_running_loop().time() * 1000)

    async def boot(self) -> Process:
        """Start a process on the disk. The brokers keep the state that they had in the previous process."""
        self._processes += 1
        if self._processes > 1:
            brokers = self.process.brokers.by_id
            self.brokers = max(self.brokers, len(brokers))
            self.down = {broker_id for broker_id, broker in brokers.items() if not broker.running}
            self.delays_ms = {broker_id: broker.delay_ms for broker_id, broker in brokers.items()}
        self.process = Process(self, self._processes)
        await self.process.start()
        return self.process

    def records(self, start: int = 0, end: int | None = None) -> list[Recorded]:
        return [decode_event(offset, value) for offset, value in self.disk.kept.read(start, end)]

    def digest(self) -> str:
        sha = hashlib.sha256()
        for _, value in self.disk.kept.read():
            sha.update(len(value).to_bytes(4, "big") + value)
        return sha.hexdigest()


@contextmanager
def chance_from(rng: random.Random) -> Iterator[None]:
    """Draw topic ids from the seed, and suppress log lines."""
    said = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        with mock.patch.object(os, "urandom", rng.randbytes):
            yield
    finally:
        structlog.configure(**said)
