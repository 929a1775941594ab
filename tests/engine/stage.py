"""A controller on virtual time, with a simulated disk and syncs that the test controls, and readable log lines."""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import msgspec

from controller.brokers.simulated import SimulatedBrokers
from controller.controller_api import Reply
from controller.engine.group_commit import Controller
from controller.engine.reports import Reports
from controller.machine.commands.commands import (
    ChangeSettings,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    TopicCommand,
)
from controller.machine.decision import Answer
from controller.machine.state import DictTopics, State, Topic
from controller.policy.chain import PolicyJudge
from events.catalog import CreateAnswered, Recorded
from events.codec import decode_event
from events.names import RequestId, TopicId, TopicName
from tests.machine.audit.auditor import audit
from tests.machine.rig import fold, topics_of
from tests.simulation.faulty_log import Disk, FaultyLog
from tests.simulation.virtual_time import on_virtual_time

BORN_MS = 1_700_000_000_000
POLICY = "create.topic.policy.class.name"

E = TypeVar("E")


class Heard:
    """Records the controller's log lines, commits and failed commands."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.commits: list[tuple[int, int]] = []
        self.failed: list[str] = []

    def error(self, event: str, **fields: object) -> None:
        self.lines.append({"event": event, "level": "error", **fields})

    def info(self, event: str, **fields: object) -> None:
        self.lines.append({"event": event, "level": "info", **fields})

    warning = info

    def write(self, lines: bytes) -> None:
        self.lines += map(msgspec.json.decode, lines.splitlines())

    def committed(self, commands: int, events: int, seconds: float) -> None:
        self.commits.append((commands, events))

    def answered(self, api: str, code: int, waited_ms: int) -> None:
        return None

    def command_failed(self, command: str) -> None:
        self.failed.append(command)

    def rules_failed(self, count: int) -> None:
        return None

    def of(self, event: str) -> list[dict[str, Any]]:
        """Returns the log lines with this event."""
        return [line for line in self.lines if line["event"] == event]


class Stage:
    """One controller and its brokers. A stage on the `disk` of another is the next process on the same log."""

    def __init__(
        self,
        *,
        disk: Disk | None = None,
        brokers: int = 3,
        settings: dict[str, str] | None = None,
        policies: PolicyJudge | None = None,
        boot_id: str = "s1",
    ) -> None:
        self.disk = disk or Disk(random.Random(0))
        self.disk.sync_s = (0.0, 0.0)
        self.log = FaultyLog(self.disk)
        self.brokers = SimulatedBrokers(brokers)
        self.heard = Heard()
        self.skew_ms = 0
        self.syncs = 0
        self.held = asyncio.Event()
        self.held.set()
        self.controller = Controller(
            self.log,
            self.brokers,
            boot_id=boot_id,
            clock_ms=self._clock_ms,
            flush=self._flush,
            reports=Reports(self.heard, self.heard.write, self.heard),
            policies=policies,
        )
        self.settings = {POLICY: "some.Policy"} if policies is not None else {}
        self.settings |= settings or {}

    def _clock_ms(self) -> int:
        return BORN_MS + self.skew_ms + int(asyncio.get_running_loop().time() * 1000)

    async def _flush(self) -> None:
        await self.held.wait()
        self.syncs += 1
        await self.log.flushed()

    async def start(self) -> Stage:
        """Start the controller, and wait until brokers are live."""
        await self.controller.start(tuple(sorted(self.settings.items())), "1.0")
        await self.settle()
        return self

    async def settle(self, seconds: float = 0.5) -> None:
        """Wait for all immediate work."""
        await asyncio.sleep(seconds)

    def hold_syncs(self) -> None:
        """Block syncs until `release_syncs`."""
        self.held.clear()

    def release_syncs(self) -> None:
        self.held.set()

    # --- sending requests

    def create(self, *names: str, timeout_ms: int = 60_000, **fields: Any) -> asyncio.Future[Reply]:
        """Request topics of one partition; `fields` override the defaults."""
        request_id, at_ms = self.controller.new_request_id(), self.controller.now_ms()
        fields = {"num_partitions": 1, "replication_factor": 1, **fields}
        commands = [
            CreateTopic(
                request_id=request_id,
                at_ms=at_ms,
                topic=TopicName(name),
                topic_id=topic_id(request_id, name),
                timeout_ms=timeout_ms,
                **fields,
            )
            for name in names
        ]
        return self.controller.submit(commands, 0 if fields.get("validate_only") else timeout_ms)

    def delete(self, name: str) -> asyncio.Future[Reply]:
        request_id = self.controller.new_request_id()
        return self.submit(DeleteTopic(request_id=request_id, at_ms=self._now(), topic=_name(name), api="DeleteTopics"))

    def enlarge(self, name: str, count: int) -> asyncio.Future[Reply]:
        """Request a larger partition count."""
        request_id = self.controller.new_request_id()
        stamps: dict[str, Any] = {"request_id": request_id, "at_ms": self._now(), "api": "CreatePartitions"}
        return self.submit(CreatePartitions(**stamps, topic=_name(name), count=count))

    def submit(self, *commands: TopicCommand) -> asyncio.Future[Reply]:
        return self.controller.submit(commands)

    def change_settings(self, **settings: str) -> None:
        """Submit other settings."""
        self.settings |= {key.replace("_", "."): value for key, value in settings.items()}
        pairs = tuple(sorted(self.settings.items()))
        request_id = RequestId("settings")
        command = ChangeSettings(request_id=request_id, at_ms=self._now(), settings=pairs, release="1.0")
        self.controller.submit_internal(command)

    def _now(self) -> int:
        return self.controller.now_ms()

    # --- reading

    def records(self) -> list[Recorded]:
        """Returns the records on the disk."""
        return [decode_event(offset, value) for offset, value in self.disk.kept.read()]

    def events(self, kind: type[E]) -> list[E]:
        """Returns the events of one type on the disk."""
        return [record.event for record in self.records() if isinstance(record.event, kind)]

    def answers_in_log(self, topic: str) -> list[int]:
        """Returns the error codes of the topic's answers in the log."""
        return [event.error_code for event in self.events(CreateAnswered) if event.topic == topic]

    def topic(self, name: str) -> Topic:
        """Returns a topic as readers see it."""
        topic = self.controller.store.durable_named(name)
        assert topic is not None, f"no topic {name}"
        return topic

    def check(self) -> None:
        """Check that the log passes the audit, and that states and indexes equal its fold."""
        records = self.records()
        assert audit(records) == []
        folded = fold(records, State(DictTopics()))
        store, state = self.controller.store, self.controller.state
        assert [*store.durable_from(None)] == topics_of(folded), "readers see the state of the log"
        assert store.durable_cluster == state.cluster == folded.cluster
        assert list(state.waiting) == list(folded.waiting)
        assert store.durable_counts.topics == len(topics_of(folded))

    def shows(self, name: str) -> bool:
        """True if readers see the topic."""
        store = self.controller.store
        listed = name in [topic.name for topic in store.durable_from(None)]
        assert listed == (store.durable_named(name) is not None), "listing and lookup agree"
        return listed


def on_stage(**options: Any) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Runs an async test on virtual time. Its first argument is a started stage with these options; the decorator stops
    it."""

    def decorated(story: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        async def on_its_stage(**given: Any) -> None:
            stage = await Stage(**options).start()
            await story(stage, **given)
            stage.release_syncs()
            await stage.controller.stop()

        test = on_virtual_time(functools.wraps(story)(on_its_stage))
        signature = inspect.signature(story)
        test.__signature__ = signature.replace(parameters=[*signature.parameters.values()][1:])  # type: ignore[attr-defined]
        return test

    return decorated


def topic_id(request_id: str, name: str) -> TopicId:
    """Returns a different id for each create."""
    return TopicId(f"{request_id}/{name}".encode()[-16:].rjust(16, b"."))


def codes(answers: Iterable[Answer]) -> list[int]:
    return [int(answer.code) for answer in answers]


def _name(name: str) -> TopicName:
    return TopicName(name)
