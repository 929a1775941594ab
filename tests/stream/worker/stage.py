"""Real worker engines over topics in memory; the test delivers the commands."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from controller.engine.requests import Stamps
from controller.machine.commands.commands import AnyCommand
from controller.policy.chain import PolicyJudge
from controller.settings.load import ServeSettings, load_settings
from controller.stream.log.codec import partition_of
from controller.stream.log.partition import PartitionState
from controller.stream.worker.engine import Engine
from controller.stream.worker.owner_tasks import PartitionBrokers, PartitionLeader, WorkerContext
from controller.stream.worker.partition_decider import Fault, RequestCommand, Sourced
from events.catalog import Recorded
from events.codec import decode_event
from events.names import shard_key
from tests.stream.checking import Found, check_topics
from tests.stream.log.records import BORN_MS, SETTINGS, joined
from tests.stream.worker.memory_kafka import TOPICS, MemoryKafka, MemoryTransport

UNARCHIVED = load_settings()
ALL = tuple(range(TOPICS.partitions))


class Nothing:
    """Owner tasks that do nothing, and brokers without commands."""

    def __init__(self, cluster: Any, *_: object) -> None:
        self.brokers, self.cluster, self.history = self, cluster, None

    def immediate_commands(self, records: Sequence[Recorded]) -> Sequence[AnyCommand]:
        return ()

    def decided_further(self, records: Sequence[Recorded]) -> None:
        return None

    async def end(self) -> None:
        return None


class Stage:
    """One worker. Workers on the same `kafka` form a group, whose assignments the test makes."""

    def __init__(
        self,
        kafka: MemoryKafka,
        data: Path,
        name: str = "a",
        *,
        release: str = "1.0",
        settings: ServeSettings = UNARCHIVED,
        decision_settings: tuple[tuple[str, str], ...] = SETTINGS,
        judge: PolicyJudge | None = None,
        brokers: int = 0,
        brokers_of: type[PartitionBrokers] = PartitionBrokers,
        cluster: Any = None,
    ) -> None:
        self.kafka = kafka
        self.faults: list[Fault] = []
        self.copies: list[tuple[Sourced, RequestCommand]] = []
        self.losses: list[str] = []
        self.records: list[Recorded] = []
        self.now_ms = BORN_MS
        self.transports: list[MemoryTransport] = []
        self.failures: list[BaseException] = []
        none: Any = partial(Nothing, cluster)
        self.engine = Engine(
            WorkerContext(
                data=data / name,
                topics=TOPICS,
                writer=name,
                release=release,
                where=name,
                settings=settings,
                decision_settings=decision_settings,
                connect=self._connect,
                clock=lambda: 0.0,
                clock_ms=lambda: self.now_ms,
                stamps=Stamps(name, lambda: self.now_ms),
                watcher=self,
                on_failure=self.failures.append,
                make_brokers=partial(brokers_of, brokers),
                judge=judge,
            ),
            PartitionLeader if brokers else none,
        )

    def _connect(self) -> MemoryTransport:
        self.transports.append(MemoryTransport(self.kafka))
        return self.transports[-1]

    # --- called by a driver

    async def claim(self, *partitions: int) -> None:
        """Take over the named partitions, or all."""
        assert await self.engine.claim(partitions or ALL, lambda: True)

    async def work(self, partition: int | None = None, count: int = 1000) -> None:
        """Decide pending commands, up to `count` of each partition."""
        for each in sorted(self.engine.leaders) if partition is None else (partition,):
            await self.engine.handle(self.kafka.fetch(each, self.engine.next_source(each), count))

    async def settle(self) -> None:
        """Decide until no new commands are produced."""
        quiet = 0
        while quiet < 5:
            behind = [p for p in self.engine.leaders if self.engine.next_source(p) < len(self.kafka.commands[p])]
            quiet = 0 if behind else quiet + 1
            await self.work()
            await asyncio.sleep(0.001)
        assert not self.failures, self.failures

    async def decide(self, *commands: AnyCommand) -> None:
        """Produce commands, and decide them."""
        self.kafka.put(*commands)
        await self.work()

    async def close(self) -> None:
        await self.engine.close()

    def state(self, partition: int) -> PartitionState:
        return self.engine._states[partition]

    # --- called by the engine

    def claimed(self, partition: int, epoch: int, read: int, seconds: float) -> None:
        return None

    def committed(self, commands: int, records: Sequence[Recorded], seconds: float) -> None:
        self.records += records

    def skipped(self, fault: Fault) -> None:
        self.faults.append(fault)

    def duplicate(self, sourced: Sourced, command: RequestCommand) -> None:
        self.copies.append((sourced, command))

    def lost(self, why: str) -> None:
        self.losses.append(why)


Claimed = Callable[..., Awaitable[Stage]]
"""The fixture `claimed`."""


def kafka_with_brokers() -> MemoryKafka:
    """Topics whose first commands register two brokers in every partition."""
    made = MemoryKafka()
    made.put(*joined(1), *joined(2))
    return made


def home(name: str) -> int:
    """Returns the partition of a topic."""
    return partition_of(shard_key(name), TOPICS.partitions)


def events_of(worker: Stage, partition: int) -> list[Recorded]:
    """Returns the events of a partition in a worker's log."""
    return [decode_event(offset, value) for offset, value in worker.state(partition).log.read()]


def topic_of(worker: Stage, name: str) -> Any:
    """Returns a topic in a worker's state."""
    return worker.state(home(name)).store.durable_named(name)


def check(kafka: MemoryKafka) -> Found:
    """Check both topics; undecided commands count as lost."""
    found = check_topics(kafka.commands, kafka.events)
    assert found.counts["decided twice"] == found.counts["out of order"] == 0, found.counts
    return found


def check_all_decided(kafka: MemoryKafka) -> Found:
    """Check that every command is decided once and every request answered once, without violations."""
    found = check(kafka)
    assert found.counts["lost"] == 0, found.counts
    assert not found.wrong, found.wrong[:10]
    return found
