"""Drivers: the part of a worker that joins the consumer group, and feeds assigned partitions' commands to the engine.

`PlainDriver` is an aiokafka consumer group; `driver_faust` does the same with Faust. A driver runs an engine, and sets
its `claim_again`. An exception of `run` must end the process: otherwise a command could be lost.

The group only assigns partitions. Commands are read once the engine has claimed their partition, from the offset
that the events prove; the committed offsets are figures for Kafka's own tools. There is no static membership: a worker
that comes back must be assigned again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from controller.kafka.connections import Security
from controller.stream.log.transport import NO_SECURITY, aiokafka_security, close_client
from controller.stream.worker.engine import Engine, PartitionsLost
from controller.stream.worker.partition_decider import Sourced

RETRY_S = 1.0
"""Wait before claiming lost partitions again: for Kafka, or until the group assigns the partitions elsewhere."""
COMMANDS_PER_BATCH_MAX = 500  # one commit; the loop serves others in between


class Group(msgspec.Struct, frozen=True):
    """The consumer group that assigns the partitions of the commands topic to workers."""

    bootstrap: str
    group_id: str
    topic: str
    partitions: int
    session_timeout_ms: int
    security: Security = NO_SECURITY

    @property
    def heartbeat_ms(self) -> int:
        """The heartbeat interval: several fit into a session timeout, so that one heartbeat may be lost."""
        return max(100, self.session_timeout_ms // 6)


class DriverEnded(Exception):
    """The driver has given up; the worker must be restarted."""


FETCH_WAIT_MS = 100  # how long Kafka may hold a fetch without records
POLL_MS = 200
REBALANCE_TIMEOUT_MS = 10_000
POLL_INTERVAL_MS_MAX = 3_600_000
"""A rebuild, or a slow policy, may delay polling; heartbeats show that the process lives."""
COMMIT_EVERY_S = 1.0  # offsets in Kafka are only for people: the events are the truth


class PlainDriver(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """Feeds an engine by an aiokafka consumer."""

    def __init__(self, engine: Engine, group: Group) -> None:
        self._engine = engine
        engine.claim_again = self._claim_again
        self._group = group
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._is_assigned = asyncio.Event()
        """Set while the group has assigned partitions, cleared during a rebalance."""
        self._assignment = 0
        """Counts assignments and revocations; a claim is valid until the next one."""
        self._claimed = -1
        self._committed_at = 0.0
        self._commit: asyncio.Task[None] | None = None

    async def run(self, stopping: asyncio.Event, on_claimed: Callable[[], None]) -> None:
        """Join the group, and feed the engine until `stopping` is set; then leave the group. `on_claimed` is called
        each time when all assigned partitions are claimed."""
        group = self._group
        consumer = self._consumer = AIOKafkaConsumer(
            group_id=group.group_id,
            bootstrap_servers=group.bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="none",
            fetch_max_wait_ms=FETCH_WAIT_MS,
            session_timeout_ms=group.session_timeout_ms,
            heartbeat_interval_ms=group.heartbeat_ms,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            max_poll_interval_ms=POLL_INTERVAL_MS_MAX,
            **aiokafka_security(group.security),
        )
        await consumer.start()
        consumer.subscribe([group.topic], listener=self)
        try:
            while not stopping.is_set():
                try:
                    if not self._is_assigned.is_set():
                        await self._wait_for_assignment()
                    elif self._assignment != self._claimed:
                        await self._claim(on_claimed)
                    else:
                        await self._feed()
                except PartitionsLost:
                    self._claim_again()
                    with suppress(TimeoutError):
                        await asyncio.wait_for(stopping.wait(), RETRY_S)
        finally:
            await self._engine.revoke()
            if self._commit is not None:
                await self._commit
            await close_client(consumer)

    def _claim_again(self) -> None:
        self._claimed = -1

    # --- called by the group

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._assigned = frozenset()
        self._assignment += 1
        self._is_assigned.clear()
        await self._engine.revoke()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        for each in assigned:
            self._consumer.pause(each)
            self._consumer.seek(each, 0)
        self._assigned = frozenset(assigned)
        self._assignment += 1
        self._is_assigned.set()

    # --- claiming and feeding

    async def _claim(self, on_claimed: Callable[[], None]) -> None:
        assignment, assigned = self._assignment, self._assigned

        def is_current() -> bool:
            return self._assignment == assignment

        for each in assigned:
            self._consumer.pause(each)
        if await self._engine.claim({each.partition for each in assigned}, is_current) and is_current():
            for each in assigned:
                self._consumer.seek(each, self._engine.next_source(each.partition))
                self._consumer.resume(each)
            self._claimed = assignment
            on_claimed()

    async def _wait_for_assignment(self) -> None:
        """Wait for an assignment, for a short time. Raises the error that prevents joining the group."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_assigned.wait(), POLL_MS / 1000)
        await self._consumer.getmany(timeout_ms=0)

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
        self._commit_now_and_then()

    def _commit_now_and_then(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._committed_at >= COMMIT_EVERY_S and self._assigned and (not self._commit or self._commit.done()):
            self._committed_at = now
            done = {each: self._engine.next_source(each.partition) for each in self._assigned}
            self._commit = asyncio.create_task(self._commit_figures(done))

    async def _commit_figures(self, done: dict[TopicPartition, int]) -> None:
        with suppress(KafkaError):
            await self._consumer.commit(done)
