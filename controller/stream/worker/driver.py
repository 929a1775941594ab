"""Drivers: the part of a worker that a consumer group assigns partitions to. It feeds their commands to the engine.

`Driver` is the port. `PlainDriver` implements it with an aiokafka consumer group, `driver_faust` with Faust.

The group only says who owns which partition. Nothing is read before a partition is claimed, and then from the offset
that the events prove; the committed offsets are figures for Kafka's own tools. There is no static membership: a worker
that comes back must be assigned again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import msgspec
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from controller.brokers.cluster.security import Security
from controller.stream.log.transport import NO_SECURITY, aiokafka_security, close_client
from controller.stream.worker.engine import Engine, Lost
from controller.stream.worker.partition_decider import Sourced

RETRY_S = 1.0
"""How long to wait before partitions that were lost are claimed anew: for Kafka to come back, or for the group to
assign them to somebody else."""
COMMANDS_PER_BATCH_MAX = 500  # one commit; the loop serves others in between


class Group(msgspec.Struct, frozen=True):
    """The consumer group that shares the partitions of the commands topic out to workers."""

    bootstrap: str
    group_id: str
    topic: str
    partitions: int
    session_timeout_ms: int
    security: Security = NO_SECURITY

    @property
    def heartbeat_ms(self) -> int:
        """How often a worker says that it lives: several times in a session, so that one may be missed."""
        return max(100, self.session_timeout_ms // 6)


class DriverEnded(Exception):
    """What feeds commands has given up; the worker is to be started again."""


class Driver(Protocol):
    """Runs an engine. What `run` raises ends the process: to go on could lose a command."""

    async def run(self, stopping: asyncio.Event, on_claimed: Callable[[], None]) -> None:
        """Join the group, and feed the engine until `stopping` is set; then leave the group in order.

        `on_claimed` is called each time when all assigned partitions are claimed.
        """
        ...

    def claim_anew(self) -> None:
        """The partitions are to be claimed anew: commands that the worker itself put were not taken."""
        ...


FETCH_WAIT_MS = 100  # so long Kafka holds a fetch that finds nothing
POLL_MS = 200
REBALANCE_TIMEOUT_MS = 10_000
POLL_INTERVAL_MS_MAX = 3_600_000
"""A rebuild from nothing, or a slow policy, may hold up polling; that the process lives, its heartbeats show."""
COMMIT_EVERY_S = 1.0  # offsets in Kafka are only for people: the events are the truth


class PlainDriver(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """Drives deciders with a plain Kafka consumer; implements `driver.Driver`."""

    def __init__(self, engine: Engine, group: Group) -> None:
        self._engine = engine
        self._group = group
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._shared_out = asyncio.Event()
        """Whether the group has assigned what is ours, rather than being about to."""
        self._assignment = 0
        """Counts assignments and revocations: a claim is for one of them."""
        self._claimed = -1
        self._committed_at = 0.0
        self._commit: asyncio.Task[None] | None = None

    async def run(self, stopping: asyncio.Event, on_claimed: Callable[[], None]) -> None:
        """Run until `stopping` is set."""
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
                    if not self._shared_out.is_set():
                        await self._wait_for_share()
                    elif self._assignment != self._claimed:
                        await self._claim(on_claimed)
                    else:
                        await self._feed()
                except Lost:
                    self.claim_anew()
                    with suppress(TimeoutError):
                        await asyncio.wait_for(stopping.wait(), RETRY_S)
        finally:
            await self._engine.revoke()
            if self._commit is not None:
                await self._commit
            await close_client(consumer)

    def claim_anew(self) -> None:
        """What was claimed has to be claimed again."""
        self._claimed = -1

    # --- called by the group

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """The group is about to share out anew."""
        self._assigned = frozenset()
        self._assignment += 1
        self._shared_out.clear()
        await self._engine.revoke()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """These are ours from now on; nothing is read before they are claimed."""
        for each in assigned:
            self._consumer.pause(each)
            self._consumer.seek(each, 0)
        self._assigned = frozenset(assigned)
        self._assignment += 1
        self._shared_out.set()

    # --- claiming and feeding

    async def _claim(self, on_claimed: Callable[[], None]) -> None:
        assignment, assigned = self._assignment, self._assigned

        def still() -> bool:
            return self._assignment == assignment

        for each in assigned:
            self._consumer.pause(each)
        if await self._engine.claim({each.partition for each in assigned}, still) and still():
            for each in assigned:
                self._consumer.seek(each, self._engine.next_source(each.partition))
                self._consumer.resume(each)
            self._claimed = assignment
            on_claimed()

    async def _wait_for_share(self) -> None:
        """A moment, or until the group assigns what is ours. Raises what keeps the worker from joining it."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._shared_out.wait(), POLL_MS / 1000)
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
