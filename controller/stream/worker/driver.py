"""Drivers: the part of a worker that joins the consumer group, and feeds assigned partitions' commands to the engine.

`PlainDriver` is an aiokafka consumer group; `driver_faust` does the same with Faust. Both run the loop of `Driver`. An
exception of `run` must end the process: otherwise a command could be lost.

The group only assigns partitions. Commands are read once the engine has claimed their partition, from the offset that
the events prove; no offsets are committed. There is no static membership: a worker that comes back must be assigned
again.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition

from controller.kafka.connections import Security
from controller.stream.log.transport import NO_SECURITY, aiokafka_security, close_client
from controller.stream.worker.engine import Engine, IsCurrent, PartitionsLost
from controller.stream.worker.partition_decider import Sourced

RETRY_S = 1.0
"""Wait before claiming lost partitions again: for Kafka, or until the group assigns the partitions elsewhere."""
COMMANDS_PER_BATCH_MAX = 500  # one commit; the loop serves others in between


class DriverEnded(Exception):
    """The driver has given up; the worker must be restarted."""


FETCH_WAIT_MS = 100  # how long Kafka may hold a fetch without records
POLL_MS = 200
REBALANCE_TIMEOUT_MS = 10_000
POLL_INTERVAL_MS_MAX = 3_600_000
"""A rebuild, or a slow policy, may delay polling; heartbeats show that the process lives."""


class Driver(ABC):
    """Claims the partitions that the group assigns, feeds their commands to the engine, and claims lost ones again."""

    def __init__(self, engine: Engine, bootstrap: str, security: Security = NO_SECURITY) -> None:
        self._engine, self._bootstrap, self._security = engine, bootstrap, security
        engine.claim_again = self._claim_again
        self._topics, settings = engine.context.topics, engine.context.settings
        self._group_id, self._session_ms = settings.stream_group_id, settings.stream_session_timeout_ms
        self._heartbeat_ms = max(100, self._session_ms // 6)
        """Several heartbeats fit into a session timeout, so that one of them may be lost."""
        self._is_assigned = asyncio.Event()
        """Set while the group has assigned partitions, cleared during a rebalance."""
        self._assignment = 0
        """Counts assignments and revocations; a claim is valid until the next one."""
        self._claimed = -1

    @abstractmethod
    async def run(self, stopping: asyncio.Event, on_claimed: Callable[[], None]) -> None:
        """Join the group, and feed the engine until `stopping` is set; then leave the group. `on_claimed` is called
        each time when all assigned partitions are claimed."""

    async def _drive(self, stopping: asyncio.Event, on_claimed: Callable[[], None]) -> None:
        while not stopping.is_set():
            try:
                if not self._is_assigned.is_set():
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._is_assigned.wait(), POLL_MS / 1000)
                    await self._check_member()
                elif self._assignment != self._claimed:
                    await self._claim(on_claimed)
                else:
                    await self._feed()
            except PartitionsLost:
                self._claim_again()
                with suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), RETRY_S)

    def _claim_again(self) -> None:
        self._claimed = -1

    async def _claim(self, on_claimed: Callable[[], None]) -> None:
        assignment = self._assignment

        def is_current() -> bool:
            return self._assignment == assignment

        if await self._engine.claim(self._hold(), is_current) and is_current():
            self._claimed = assignment
            await self._resume(is_current)
            if is_current():
                on_claimed()

    async def _revoke(self) -> None:
        self._assignment += 1
        self._is_assigned.clear()
        await self._engine.revoke()

    def _assign(self) -> None:
        self._assignment += 1
        self._is_assigned.set()

    @abstractmethod
    async def _check_member(self) -> None:
        """Raise the error that prevents joining the group, or that ended the membership."""

    @abstractmethod
    def _hold(self) -> set[int]:
        """Stop fetching commands. Returns the assigned partitions."""

    @abstractmethod
    async def _resume(self, is_current: IsCurrent) -> None:
        """Fetch commands again, from the next one of each claimed partition on, while the assignment is current."""

    @abstractmethod
    async def _feed(self) -> None:
        """Wait a short time for commands, and pass them to the engine."""


class PlainDriver(Driver, ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """Feeds an engine by an aiokafka consumer."""

    def __init__(self, engine: Engine, bootstrap: str, security: Security = NO_SECURITY) -> None:
        super().__init__(engine, bootstrap, security)
        self._assigned: frozenset[TopicPartition] = frozenset()

    async def run(self, stopping: asyncio.Event, on_claimed: Callable[[], None]) -> None:
        consumer = self._consumer = AIOKafkaConsumer(
            group_id=self._group_id,
            bootstrap_servers=self._bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="none",
            fetch_max_wait_ms=FETCH_WAIT_MS,
            session_timeout_ms=self._session_ms,
            heartbeat_interval_ms=self._heartbeat_ms,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            max_poll_interval_ms=POLL_INTERVAL_MS_MAX,
            **aiokafka_security(self._security),
        )
        await consumer.start()
        consumer.subscribe([self._topics.commands], listener=self)
        try:
            await self._drive(stopping, on_claimed)
        finally:
            await self._engine.revoke()
            await close_client(consumer)

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._assigned = frozenset()
        await self._revoke()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        for each in assigned:
            self._consumer.pause(each)
            self._consumer.seek(each, 0)
        self._assigned = frozenset(assigned)
        self._assign()

    async def _check_member(self) -> None:
        await self._consumer.getmany(timeout_ms=0)

    def _hold(self) -> set[int]:
        for each in self._assigned:
            self._consumer.pause(each)
        return {each.partition for each in self._assigned}

    async def _resume(self, is_current: IsCurrent) -> None:
        for each in self._assigned:
            self._consumer.seek(each, self._engine.next_source(each.partition))
            self._consumer.resume(each)

    async def _feed(self) -> None:
        assignment = self._assignment
        fetched: dict[TopicPartition, list[ConsumerRecord]] = await self._consumer.getmany(
            timeout_ms=POLL_MS, max_records=COMMANDS_PER_BATCH_MAX
        )
        if self._claimed != assignment or self._assignment != assignment:
            return
        if fetched:
            await self._engine.handle(
                [
                    Sourced(there.partition, record.offset, record.value)
                    for there, records in fetched.items()
                    for record in records
                ]
            )
