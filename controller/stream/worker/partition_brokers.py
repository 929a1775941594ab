"""The brokers of one partition, as its owner sees them: simulated ones, or the target cluster.

Simulated brokers live in no process. The partition's own events say which brokers exist and which of them run, so they
are the same whoever owns it, and a stopped broker stays stopped when the owner changes. The owner registers missing
brokers, confirms what the live ones have applied, and reports in-sync sets.

Each owner watches the target cluster, applies decisions for its own partition's topics alone, and reports live brokers
to its own partition: the next owner starts from that partition and the cluster, and no owner needs another. (If one
owner reported brokers to all partitions, some of those writes could be lost with it, and partitions would wait for one
that nobody owns.) The topics that hold the log are not managed: deleting them would delete everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence

import structlog
from structlog.typing import FilteringBoundLogger

from controller.brokers.cluster.actions import PlannedCommand
from controller.brokers.cluster.link import ClusterLink
from controller.brokers.cluster.target_cluster import TargetCluster, WatchTimes
from controller.brokers.port import CommandSink, stamp
from controller.brokers.simulated import SimulatedBroker, SimulatedBrokers, rack_of
from controller.machine.commands.commands import AnyCommand, ConfirmMetadata, CreateTopic, DryRunResult, TopicCommand
from controller.machine.errors import ErrorCode
from controller.serving.reach_cluster import ReachedCluster, log_readers, watch_times
from controller.settings.load import ServeSettings
from controller.stream.log.partition import PartitionState
from controller.stream.log.transport import Topics
from events.catalog import BrokerFenced, BrokerRegistered, BrokerUnfenced, BrokerUnregistered, Recorded, TopicCreated
from events.codec import decode_event
from events.logs.events_topic import partition_of
from events.names import CLUSTER_SHARD, BrokerId, Offset, TopicName, shard_key


class PartitionBrokers(SimulatedBrokers):
    """Brokers 1 to `count`, and all others in the partition, without a delay."""

    def __init__(self, count: int, partition: PartitionState) -> None:
        super().__init__(count)
        self.default_endpoints = ()
        self._partition = partition

    def start(self, controller: CommandSink) -> None:
        """Register the missing brokers, and report for the others again."""
        self._controller = controller
        self._loop = asyncio.get_running_loop()
        self.resume()

    def resume(self) -> None:
        """Report everything again."""
        known = self._controller.store.durable_cluster.brokers
        halfway = self._registered_last()
        for broker_id, registered in known.items():
            self._played(broker_id, registered.rack).running = not registered.fenced
        for broker_id, broker in self.by_id.items():
            broker.confirmed = Offset(-1)
            if broker_id not in known or broker_id in halfway:
                broker.running = False
                self._join(broker, "started")
        self._applied_by_all(self._controller.last_offset)
        self._sweep()

    def immediate_commands(self, records: Sequence[Recorded]) -> Sequence[AnyCommand]:
        """The live brokers, as of these events, have applied a created topic."""
        if not any(type(record.event) is TopicCreated for record in records):
            return ()
        stamped, live = stamp(self._controller, "applied"), self._partition.state.cluster.live
        first, last = records[0].offset, records[-1].offset
        return (ConfirmMetadata(**stamped, brokers=live, offset=last, after=Offset(first - 1)),) if live else ()

    def on_events(self, records: Sequence[Recorded]) -> None:
        """Update which brokers run, then apply and report."""
        for record in records:
            match record.event:
                case BrokerRegistered(broker_id=broker_id, rack=rack):
                    self._played(broker_id, rack).running = False
                case BrokerUnfenced(broker_id=broker_id) if broker_id in self.by_id:
                    self.by_id[broker_id].running = True
                    self.by_id[broker_id].confirmed = Offset(-1)
                case BrokerFenced(broker_id=broker_id) | BrokerUnregistered(broker_id=broker_id):
                    if broker_id in self.by_id:
                        self.by_id[broker_id].running = False
                case _:
                    continue
        super().on_events(records)

    def _played(self, broker_id: BrokerId, rack: str | None) -> SimulatedBroker:
        return self.by_id.setdefault(broker_id, SimulatedBroker(broker_id, rack or rack_of(broker_id)))

    def _registered_last(self) -> set[BrokerId]:
        """The brokers that registered and were never unfenced: their owner died in between.

        The archive is not read, because it may be unavailable; its events are tens of thousands of events old.
        """
        halfway, log = set[BrokerId](), self._partition.log
        for offset in log.shard_offsets(CLUSTER_SHARD, log.start_offset):
            event = decode_event(offset, log.read_one(offset)).event
            if isinstance(event, BrokerRegistered):
                halfway.add(event.broker_id)
            elif isinstance(event, BrokerFenced | BrokerUnfenced | BrokerUnregistered):
                halfway.discard(event.broker_id)
        return halfway


DRY_RUN_S_MIN, DRY_RUN_S_MAX = 5.0, 30.0
"""Limits of the time for a cluster's dry run: the longest client timeout, within these. The partition's other commands
wait behind it."""
NO_DRY_RUN = "The target cluster did not answer in time: nothing was decided."


class PartitionCluster(TargetCluster):
    """The target cluster for one of `partitions` partitions; it ignores the topics in `hidden`."""

    def __init__(
        self,
        link: ClusterLink,
        partition: PartitionState,
        partitions: int,
        times: WatchTimes,
        log: FilteringBoundLogger,
        hidden: Collection[str] = (),
    ) -> None:
        def owns(topic: TopicName) -> bool:
            return topic not in hidden and partition_of(shard_key(topic), partitions) == partition.partition

        history, recent = log_readers(partition.log)
        super().__init__(link, history, times, log, owns, recent=recent, shared=True)

    async def dry_run(self, planned: Sequence[PlannedCommand]) -> list[DryRunResult]:
        """The cluster's dry-run results for commands, in order, or REQUEST_TIMED_OUT."""
        try:
            async with asyncio.timeout(dry_run_within_s([one.command for one in planned])):
                return await super().dry_run(planned)
        except TimeoutError:
            return [DryRunResult(int(ErrorCode.REQUEST_TIMED_OUT), NO_DRY_RUN)] * len(planned)


def dry_run_within_s(commands: Iterable[TopicCommand]) -> float:
    """The time limit for these commands."""
    waits_s = (command.timeout_ms / 1000 for command in commands if isinstance(command, CreateTopic))
    return min(DRY_RUN_S_MAX, max(DRY_RUN_S_MIN, *waits_s, 0.0))


def partition_clusters(
    cluster: ReachedCluster, topics: Topics, settings: ServeSettings
) -> Callable[[PartitionState], PartitionCluster]:
    """The target cluster as the broker set of each partition. If it also holds the log, the log's topics are hidden."""
    is_same = cluster.cluster_id == topics.cluster_id
    hidden = {topics.commands, topics.events, settings.stream_gateways_topic} if is_same else set()
    times, log = watch_times(settings), structlog.get_logger("topicwright")
    return lambda partition: PartitionCluster(cluster.link, partition, topics.partitions, times, log, hidden)
