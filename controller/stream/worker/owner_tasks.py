"""The tasks of the worker that owns a partition, apart from deciding: deadlines, brokers, reconciling, and history.

Except for archiving, these tasks submit commands to the commands topic. Only the reports that brokers give at once
about a command's events are decided together with it. After a failover the new owner resends these commands from the
partition's state alone. Broker commands concern every topic, so each owner submits them to its own partition.

History. The owner archives its partition in a separate folder under `log.archive.url`. The next owner continues where
the archive ends, and a replaced owner finds out at its next check (`controller.serving.archiver`). Archived events
behind a snapshot are dropped from the worker's folder at once. Only the newest stay, to detect duplicate commands:
deciding needs no older ones. After each such drop the next base is written to the archive, so a base holds the
state and some hundred thousand events at most. Snapshots are copied there too, for gateways.

Brokers. Simulated brokers belong to no process: each owner has the same ones, without addresses, in its partition.

Each owner watches the target cluster, applies decisions for its own partition's topics alone, and reports live brokers
to its own partition: the next owner starts from that partition and the cluster, and no owner depends on another. (If
one owner reported brokers to all partitions, some reports could be lost with it, and all would wait for a partition
that no worker owns.) The topics that hold the log are not managed: to delete one of these would delete everything.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec.structs import replace

from controller.brokers.cluster.actions import PlannedCommand
from controller.brokers.cluster.link import ClusterLink
from controller.brokers.cluster.target_cluster import TargetCluster
from controller.brokers.port import Brokers, publish, stamp
from controller.brokers.simulated import SimulatedBroker, SimulatedBrokers
from controller.engine.requests import Stamps
from controller.engine.tasks import Background, Deadlines, Reconciler
from controller.machine.commands.access import ApplyRules
from controller.machine.commands.commands import AnyCommand, ConfirmMetadata, CreateTopic, DryRunResult, TopicCommand
from controller.machine.configs.changes import BY_CONTROLLER
from controller.machine.errors import ErrorCode
from controller.policy.chain import PolicyJudge
from controller.serving.archiving import Archiving, archive_store, sign_heads
from controller.settings.load import ServeSettings
from controller.store.snapshotting import too_many, with_pauses
from controller.store.store import TopicStore
from controller.stream.log.codec import CLUSTER_PARTITION, RECENT_EVENTS, encode_command, key_of, partition_of
from controller.stream.log.partition import PartitionState
from controller.stream.log.topics import KafkaUnavailable, Topics
from controller.stream.log.transport import Transport
from controller.stream.worker.partition_decider import Fault, RequestCommand, Sourced
from events.catalog import Configs, Recorded, TopicCreated
from events.logs.archive.manifest import Base, ManifestWriter, Writer
from events.logs.archive.store import ArchiveStore
from events.logs.tree_heads import HeadSigner
from events.names import Offset, TopicName, shard_key

MakeBrokers = Callable[[PartitionState], Brokers]
"""The brokers of one partition, as its owner sees them."""


class Watcher(Protocol):
    """Receives the engine's reports, for log lines and metrics."""

    def claimed(self, partition: int, epoch: int, read: int, seconds: float) -> None: ...
    def committed(self, commands: int, records: Sequence[Recorded], seconds: float) -> None: ...
    def skipped(self, fault: Fault) -> None: ...
    def duplicate(self, sourced: Sourced, command: RequestCommand) -> None: ...
    def lost(self, why: str) -> None: ...


class WorkerContext(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies of a worker's engine, and of the leaders of its partitions."""

    data: Path
    topics: Topics
    writer: str
    """Unique to the process."""
    release: str
    where: str
    """The name of the process in messages for people."""
    settings: ServeSettings
    decision_settings: Configs
    """The settings that decisions depend on."""
    connect: Callable[[], Transport]
    clock: Callable[[], float]
    clock_ms: Callable[[], int]
    stamps: Stamps
    """The source of request ids."""
    watcher: Watcher
    on_failure: Callable[[BaseException], None]
    """Called with the exception after a bug: the process must end."""
    make_brokers: MakeBrokers
    judge: PolicyJudge | None = None
    signer: HeadSigner | None = None
    """Signs tree heads and archives; None without a key."""
    rules: str | None = None
    """The text of the rules file; None without one."""


class PartitionHistory(Archiving):
    """Archives one partition in `store` while this worker owns the partition."""

    def __init__(self, context: WorkerContext, partition: PartitionState, store: ArchiveStore) -> None:
        settings, clock_ms = context.settings, context.clock_ms
        own = Writer(boot=context.writer, where=context.where, since_ms=clock_ms())
        archive = ManifestWriter(store, own, context.signer)
        drop_all = replace(settings, log_events_retention_ms=0, log_events_retention_bytes=-1)
        super().__init__(partition.log, drop_all, clock_ms, store, archive, RECENT_EVENTS)
        self._partition, self._archive = partition, archive
        self._base_start: int | None = None
        """The first event in the newest base; None until it is known."""
        self._interval = settings.log_snapshot_interval_events
        self._snapshots = partition.snapshots(self._interval)
        self.decided_further, self.end = self._snapshots.take_if_due, self._snapshots.close

    def _next_base(self) -> Callable[[], None] | None:
        log = self._partition.log
        if not log.start_offset or log.start_offset == self._base_start:
            return None
        base = Base(
            topic_id=self._partition.topic_id,
            start=log.start_offset,
            offset=log.next_offset,
            kafka_offset=self._partition.committed_position.kafka_offset,
        )
        pairs = log.frozen_pairs()
        return lambda: self._store_base(base, pairs)

    def _store_base(self, base: Base, pairs: Iterator[tuple[bytes, bytes]]) -> None:
        """Store a base, unless the previous owner stored one with as few events."""
        from events.logs.archive.base import bases, upload_snapshots, write_base  # imports pyarrow

        archive, log = self._archive, self._partition.log
        with closing(pairs):  # type: ignore[type-var]
            newest = next(bases(archive.store, log.cluster_id, base.topic_id), None)
            if newest is None or newest.start < base.start:
                size = write_base(archive, base, with_pauses(pairs, self._pause)).size
                upload_snapshots(archive, log, lambda offsets: too_many(offsets, self._interval))
                self._lines.info("base stored", partition=self._partition.partition, events=base.offset, bytes=size)
        self._base_start = base.start


class PartitionLeader:
    """The tasks of one owned partition: a `CommandSink` whose commands go to its commands topic."""

    def __init__(
        self,
        context: WorkerContext,
        partition: PartitionState,
        transport: Callable[[], Transport],
        rejected: Callable[[str], None],
    ) -> None:
        """`transport` returns the present connection to Kafka. `rejected` is called when Kafka rejects commands."""
        self.store: TopicStore = partition.store
        self.new_request_id = context.stamps.new_request_id
        self._transport, self._rejected, self._partition = transport, rejected, partition
        self._decided = partition.reader.next_source
        self._outbox: asyncio.Queue[AnyCommand] = asyncio.Queue()
        """The commands that Kafka has not acknowledged yet."""
        self._last_offset = -1
        self.now_ms = Stamps("", context.clock_ms, lambda: partition.last_ms).now_ms
        self._progress = asyncio.Event()
        """Set and replaced whenever commands are decided."""
        background = Background(context.on_failure)
        self.background, self._end_background = background.begin, background.stop
        self.brokers = context.make_brokers(partition)
        self._deadlines, self._reconciler = Deadlines(self), Reconciler(self, self.brokers)
        self.cluster = self.brokers if isinstance(self.brokers, PartitionCluster) else None
        """The target cluster; None without one."""
        self.background(self._submit_all())
        store = archive_store(context.settings, partition.partition)
        self.history = None if store is None else PartitionHistory(context, partition, store)
        if self.history is not None:
            self.history.decided_further()
            self.background(self.history.run())
        if context.signer is not None:
            every_s = context.settings.log_signing_interval_ms / 1000
            self.background(sign_heads(self, partition.query(), context.signer, every_s))
        self._deadlines.begin(partition.state.waiting)
        self.brokers.start(self)
        if context.rules is not None and partition.partition == CLUSTER_PARTITION:  # gateways copy them to the others
            rules = {"text": context.rules, "is_file": True, "principal": BY_CONTROLLER}
            self.submit_internal(ApplyRules(**stamp(self, "rules"), **rules))  # type: ignore[arg-type]
        self._reconciler.sweep()

    def decided_further(self, records: Sequence[Recorded]) -> None:
        """Called after commands of the partition were decided, with their events, if any."""
        self._decided = self.next_source
        progress, self._progress = self._progress, asyncio.Event()
        progress.set()
        if self.history is not None:
            self.history.decided_further()
        if records:
            publish(records, self._deadlines, self.brokers, self._reconciler)

    async def end(self) -> None:
        if self.history is not None:
            self.history.end()
        self._deadlines.stop()
        self._reconciler.stop()
        await self.brokers.stop()
        await self._end_background()

    @property
    def next_source(self) -> int:
        return self._partition.reader.next_source

    # --- the port of brokers

    @property
    def last_offset(self) -> Offset:
        """The number of the partition's newest event, -1 without one."""
        return Offset(self._partition.log.durable_offset - 1)

    def has_pending_creates(self) -> bool:
        """True if a topic of the partition is incomplete."""
        return bool(self._partition.state.waiting)

    def is_reconciled(self) -> bool:
        """True if every topic was reconciled since the last broker change."""
        return self._reconciler.idle

    def submit_internal(self, command: AnyCommand) -> None:
        self._outbox.put_nowait(command)

    async def decided(self) -> None:
        """Wait until all commands submitted so far are decided."""
        await self._outbox.join()
        offset = self._last_offset
        while self._decided <= offset:
            await self._progress.wait()

    async def _submit_all(self) -> None:
        while True:
            outbox = [await self._outbox.get()]
            while not self._outbox.empty():
                outbox.append(self._outbox.get_nowait())
            try:
                transport, partition = self._transport(), self._partition.partition
                sent = [await transport.put(partition, key_of(each).encode(), encode_command(each)) for each in outbox]
                self._last_offset = max([self._last_offset, *await asyncio.gather(*sent)])
            except KafkaUnavailable as error:
                self._rejected(f"Kafka rejected commands: {error}")
                return
            for _ in outbox:
                self._outbox.task_done()


class PartitionBrokers(SimulatedBrokers):
    """Simulated brokers 1 to `count`, without addresses, which report on one partition."""

    def __init__(self, count: int, partition: PartitionState) -> None:
        super().__init__(count)
        self.default_endpoints = ()
        self._partition = partition

    def _join(self, broker: SimulatedBroker, reason: str) -> None:
        if not self._partition.state.cluster.is_live(broker.broker_id):  # an earlier owner may have registered it
            super()._join(broker, reason)

    def immediate_commands(self, records: Sequence[Recorded]) -> Sequence[AnyCommand]:
        """The command that reports a created topic as applied by the live brokers; none if no topic was created."""
        if not any(type(record.event) is TopicCreated for record in records):
            return ()
        stamped, live = stamp(self._controller, "applied"), self._partition.state.cluster.live
        first, last = records[0].offset, records[-1].offset
        return (ConfirmMetadata(**stamped, brokers=live, offset=last, after=Offset(first - 1)),) if live else ()


DRY_RUN_S_MIN, DRY_RUN_S_MAX = 5.0, 30.0
"""Limits of the time for a cluster's dry run: the longest client timeout, within these. The partition's other commands
wait until the dry run ends."""
NO_DRY_RUN = "The target cluster did not answer in time: nothing was decided."


class PartitionCluster(TargetCluster):
    """The target cluster for one partition. If it also holds the log, the topics of the log are hidden."""

    def __init__(self, link: ClusterLink, topics: Topics, settings: ServeSettings, partition: PartitionState) -> None:
        is_same = link.cluster_id == topics.cluster_id
        hidden = {topics.commands, topics.events, settings.stream_gateways_topic} if is_same else set()

        def owns(topic: TopicName) -> bool:
            return topic not in hidden and partition_of(shard_key(topic), topics.partitions) == partition.partition

        super().__init__(link, partition.log, settings, owns)

    async def dry_run(self, planned: Sequence[PlannedCommand]) -> list[DryRunResult]:
        """The cluster's dry-run results for commands, in order, or REQUEST_TIMED_OUT."""
        try:
            async with asyncio.timeout(dry_run_within_s([one.command for one in planned])):
                return await super().dry_run(planned)
        except TimeoutError:
            return [DryRunResult(int(ErrorCode.REQUEST_TIMED_OUT), NO_DRY_RUN)] * len(planned)


def dry_run_within_s(commands: Iterable[TopicCommand]) -> float:
    """The time limit, in seconds, for the target cluster's dry run of commands."""
    waits_s = (command.timeout_ms / 1000 for command in commands if isinstance(command, CreateTopic))
    return min(DRY_RUN_S_MAX, max(DRY_RUN_S_MIN, *waits_s, 0.0))
