"""The tasks of a partition's owner besides deciding: deadlines, brokers, reconciling, and its history.

All of it becomes commands, which go through the commands topic like a client's; only what brokers report synchronously
about a command's events is decided together with it. After a failover the new owner resends these commands from the
partition's state alone. Broker commands concern every topic, so each owner submits them to its own partition.

History. The owner archives its partition in a place of its own under `log.archive.url`. The next owner continues where
the archive ends, and a replaced owner finds out at its next check (`events.logs.archive.writing`). Archived events
behind a snapshot leave the worker's folder at once, except the newest ones, by which duplicate commands are detected:
deciding needs no older ones. After each such drop the next base is written to the archive, so a base holds the
state and some hundred thousand events at most. Snapshots are copied there too, for gateways.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

import msgspec
import structlog

from controller.brokers.port import Brokers
from controller.engine.background import Background
from controller.engine.deadlines import Deadlines
from controller.engine.decider import DryRunner
from controller.engine.reconciler import Reconciler
from controller.engine.stamps import Stamps
from controller.machine.commands.commands import AnyCommand, ReconcileTopics
from controller.machine.partitions.blocks import Span
from controller.serving.archiving import Archiving, Retention, sign_heads
from controller.settings.load import ServeSettings
from controller.stream.log.codec import encode_command, key_of
from controller.stream.log.partition import PartitionState
from controller.stream.log.recent_requests import RECENT_EVENTS
from controller.stream.log.transport import KafkaUnavailable, Transport
from controller.stream.worker.partition_brokers import PartitionCluster
from events.catalog import Recorded
from events.logs.archive.base import Base, Pair, base_of, bases, upload_snapshots, write_base
from events.logs.archive.manifest import Writer
from events.logs.archive.store import ArchiveStore
from events.logs.events_topic import partition_of
from events.logs.tree_heads import HeadSigner
from events.names import Offset, RequestId, TopicName, shard_key
from projections.queries.query import Query
from projections.store.snapshotting import resting, too_many
from projections.store.store import TopicStore


class PartitionHistory:
    """Archives one partition while it is owned."""

    def __init__(
        self,
        partition: PartitionState,
        store: ArchiveStore,
        settings: ServeSettings,
        writer: Writer,
        clock_ms: Callable[[], int],
        fail: Callable[[BaseException], None],
        retained_events: int = RECENT_EVENTS,
    ) -> None:
        self._partition, self._store = partition, store
        self._lines = structlog.get_logger("topicwright")
        self._base_start: int | None = None
        """The first event in the newest base; None until it is known."""
        self._interval = settings.log_snapshot_interval_events
        self._snapshots = partition.snapshots(self._interval)
        retention = Retention(ms=0, events=retained_events)
        self._archiving = Archiving(partition.log, settings, clock_ms, store, retention, writer, self._next_base)
        self._background = Background(fail)

    def begin(self) -> None:
        self._snapshots.reached()
        self._background.begin(self._archiving.run())

    def on_events(self) -> None:
        """The partition was decided further."""
        self._snapshots.reached()

    async def end(self) -> None:
        self._snapshots.close()
        await self._background.stop()

    @property
    def error(self) -> str | None:
        """Why nothing can be archived; None if all is well."""
        return self._archiving.error

    def _next_base(self, rest: Callable[[], None]) -> Callable[[], None] | None:
        log = self._partition.log
        if not log.start_offset or log.start_offset == self._base_start:
            return None
        base = base_of(log, self._partition.topic_id, self._partition.committed_position.kafka_offset)
        pairs = log.frozen_pairs()
        return lambda: self._store_base(base, pairs, rest)

    def _store_base(self, base: Base, pairs: Iterator[Pair], rest: Callable[[], None]) -> None:
        """Store a base, unless the previous owner stored one with as few events."""
        with closing(pairs):  # type: ignore[type-var]
            newest = next(bases(self._store, base.cluster_id, base.topic_id), None)
            if newest is None or newest.start < base.start:
                size = write_base(self._store, base, resting(pairs, rest)).size
                upload_snapshots(self._store, self._partition.log, lambda offsets: too_many(offsets, self._interval))
                self._lines.info("base stored", partition=self._partition.partition, events=base.offset, bytes=size)
        self._base_start = base.start


MakeBrokers = Callable[[PartitionState], Brokers]
"""The brokers of one partition, as its owner sees them."""


class WorkerContext(msgspec.Struct, frozen=True, kw_only=True):
    """What all partitions of a worker share."""

    partitions: int
    transport: Callable[[], Transport]
    clock_ms: Callable[[], int]
    new_request_id: Callable[[str], RequestId]
    """A unique request id; the text names its origin."""
    make_brokers: MakeBrokers
    on_rejected: Callable[[str], None]
    """Kafka rejected commands: the partitions must be claimed again."""
    on_failure: Callable[[BaseException], None]
    """A bug: the process must end."""
    history: Callable[[PartitionState], PartitionHistory | None] = lambda _: None
    """Archives a partition; None without an archive."""
    signer: HeadSigner | None = None
    """Signs tree heads; None without a key."""
    signing_interval_s: float = 600.0


class PartitionSink:
    """A `CommandSink` over one partition: observations become commands of its topic."""

    def __init__(self, context: WorkerContext, partition: PartitionState) -> None:
        self.partition = partition.partition
        self.store: TopicStore = partition.store
        self._context = context
        self._state = partition
        self._decided = partition.reader.next_source
        self._outbox: list[AnyCommand] = []
        self._submitted = self._acknowledged = 0
        self._last_offset = -1
        self._stamps = Stamps("", context.clock_ms, partition.last_ms)
        self._wake = asyncio.Event()
        self._progress = asyncio.Event()
        """Set and replaced whenever commands are submitted or decided."""
        background = Background(context.on_failure)
        self.background, self.stop = background.begin, background.stop
        self.reconciler = Reconciler(lambda: self.store, self._reconcile, self.decided, self.background)
        self.background(self._submit_all())

    @property
    def last_offset(self) -> Offset:
        """The number of the partition's newest event, -1 without one."""
        return Offset(self._state.log.durable_offset - 1)

    def has_pending_creates(self) -> bool:
        """True if a topic of the partition is incomplete."""
        return bool(self._state.state.waiting)

    def is_reconciled(self) -> bool:
        """True if every topic was reconciled since the last broker change."""
        return self.reconciler.idle

    def now_ms(self, at_least_ms: int = 0) -> int:
        """The time for a command: not earlier than the partition's newest event."""
        return self._stamps.now_ms(max(self._state.last_ms, at_least_ms))

    def new_request_id(self, origin: str = "") -> RequestId:
        return self._context.new_request_id(origin)

    def owns(self, topic: str) -> bool:
        """True if the partition decides a topic of this name."""
        return partition_of(shard_key(topic), self._context.partitions) == self.partition

    def submit_internal(self, command: AnyCommand) -> None:
        """Submit a command to the partition."""
        self._outbox.append(command)
        self._submitted += 1
        self._wake.set()

    async def decided(self) -> None:
        """Wait until all commands submitted so far are decided."""
        submitted = self._submitted
        while self._acknowledged < submitted:
            await self._progress.wait()
        offset = self._last_offset
        while self._decided <= offset:
            await self._progress.wait()

    def on_events(self) -> None:
        """The partition was decided further."""
        self._decided = self._state.reader.next_source
        self._poke()

    def _reconcile(self, topics: tuple[TopicName, ...], span: Span | None) -> None:
        request_id = self.new_request_id("reconcile")
        self.submit_internal(ReconcileTopics(request_id=request_id, at_ms=self.now_ms(), topics=topics, span=span))

    async def _submit_all(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            outbox, self._outbox = self._outbox, []
            try:
                await self._submit(outbox)
            except KafkaUnavailable as error:
                self._context.on_rejected(f"Kafka rejected commands: {error}")
                return
            self._acknowledged += len(outbox)
            self._poke()

    async def _submit(self, outbox: Sequence[AnyCommand]) -> None:
        transport = self._context.transport()
        appending = [
            await transport.put(self.partition, key_of(command).encode(), encode_command(command)) for command in outbox
        ]
        self._last_offset = max([self._last_offset, *await asyncio.gather(*appending)])

    def _poke(self) -> None:
        progress, self._progress = self._progress, asyncio.Event()
        progress.set()


class _PartitionTasks:
    """The tasks of one owned partition."""

    def __init__(self, context: WorkerContext, partition: PartitionState) -> None:
        self.sink = PartitionSink(context, partition)
        self.deadlines = Deadlines(partition.store.durable, self.sink.now_ms, self.sink.submit_internal)
        self.reconciler = self.sink.reconciler
        self.brokers = context.make_brokers(partition)
        self.history = context.history(partition)
        if self.history is not None:
            self.history.begin()
        if context.signer is not None:
            part = Query(partition.log, lambda: partition.store, partition.partition)
            self.sink.background(sign_heads(self.sink, part, context.signer, context.signing_interval_s))
        self.deadlines.begin(partition.state.waiting)
        self.brokers.start(self.sink)
        self.reconciler.sweep()

    def on_events(self, records: Sequence[Recorded]) -> None:
        self.sink.on_events()
        if self.history is not None:
            self.history.on_events()
        if records:
            self.deadlines.on_events(records)
            self.brokers.on_events(records)
            self.reconciler.on_events(records)

    async def end(self) -> None:
        if self.history is not None:
            await self.history.end()
        self.deadlines.stop()
        self.reconciler.stop()
        await self.brokers.stop()
        await self.sink.stop()


class OwnerTasks:
    """Implements `engine.Owner` for all partitions of a worker."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._tasks: dict[int, _PartitionTasks] = {}

    def begin(self, partition: PartitionState) -> None:
        self._tasks[partition.partition] = _PartitionTasks(self._context, partition)

    def immediate_commands(self, partition: PartitionState, records: Sequence[Recorded]) -> Sequence[AnyCommand]:
        return self._tasks[partition.partition].brokers.immediate_commands(records)

    def on_events(self, partition: PartitionState, records: Sequence[Recorded]) -> None:
        self._tasks[partition.partition].on_events(records)

    async def end(self, partition: int) -> None:
        tasks = self._tasks.pop(partition, None)
        if tasks is not None:
            await tasks.end()

    def cluster_of(self, partition: int) -> DryRunner | None:
        """The target cluster of a partition, None without one."""
        tasks = self._tasks.get(partition)
        brokers = tasks.brokers if tasks is not None else None
        return brokers if isinstance(brokers, PartitionCluster) else None

    @property
    def error(self) -> str | None:
        """Why decisions cannot be applied to the target cluster; None if they can, or without one."""
        brokers = [tasks.brokers for tasks in self._tasks.values()]
        return next((each.error for each in brokers if isinstance(each, PartitionCluster) and each.error), None)

    @property
    def not_archived(self) -> int:
        """The number of partitions that cannot be archived."""
        histories = [tasks.history for tasks in self._tasks.values()]
        return sum(1 for history in histories if history is not None and history.error)

    @property
    def deadlines(self) -> int:
        """The number of pending deadlines."""
        return sum(len(tasks.deadlines) for tasks in self._tasks.values())
