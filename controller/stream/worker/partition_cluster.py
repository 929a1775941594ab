"""A Kafka cluster that carries out what workers decide, as the owner of one partition sees it.

Each owner watches the cluster and carries out for its own partition's topics alone, and reports to its own partition
which brokers live: whoever owns a partition next starts from that partition and the cluster, and no owner needs
another. (The owner of one partition could report brokers to all the others; but that would be several writes, of which
some may be lost with it, and partitions would wait for one that nobody owns.)

The topics that hold the log are not among those that are managed: who deleted them would delete everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import structlog
from structlog.typing import FilteringBoundLogger

from controller.brokers.cluster.clearing import Planned
from controller.brokers.cluster.fleet import RECENT_EVENTS, ClusterFleet, WatchTimes
from controller.brokers.cluster.link import ClusterLink
from controller.machine.commands.commands import Clearance, CreateTopic, TopicCommand
from controller.machine.errors import ErrorCode
from controller.serving.reach_cluster import ReachedCluster, watch_times
from controller.settings.load import ServeSettings
from controller.stream.log.partition import PartitionState
from controller.stream.log.transport import Topics
from events.catalog import Recorded
from events.codec import decode_event
from events.logs.events_topic import partition_of
from events.names import ShardKey, TopicName, shard_key

CLEAR_S_MIN, CLEAR_S_MAX = 5.0, 30.0
"""How long the cluster may take for its word on commands: as long as the most patient client waits, between these. The
partition's other commands wait behind them."""
NO_WORD = "The cluster that carries decisions out has not answered in time: nothing was decided."


class PartitionCluster(ClusterFleet):
    """The cluster for one of `partitions` partitions; topics in `hidden` are not looked at."""

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

        def history(shard: ShardKey) -> Iterator[Recorded]:
            kept = partition.log
            return (decode_event(offset, kept.read_one(offset)) for offset in kept.shard_offsets(shard))

        def recent() -> Iterator[Recorded]:
            kept, end = partition.log, partition.log.durable_offset
            return (decode_event(offset, value) for offset, value in kept.read(max(0, end - RECENT_EVENTS), end))

        super().__init__(link, history, times, log, owns, recent=recent, shared=True)

    async def clear(self, planned: Sequence[Planned]) -> list[Clearance]:
        """What the cluster says of commands that are about to be decided, in order, or that it said nothing in time."""
        try:
            async with asyncio.timeout(clear_within_s([one.command for one in planned])):
                return await super().clear(planned)
        except TimeoutError:
            return [Clearance(int(ErrorCode.REQUEST_TIMED_OUT), NO_WORD)] * len(planned)


def clear_within_s(commands: Iterable[TopicCommand]) -> float:
    """How long the cluster may take for its word on these commands."""
    waits_s = (command.timeout_ms / 1000 for command in commands if isinstance(command, CreateTopic))
    return min(CLEAR_S_MAX, max(CLEAR_S_MIN, *waits_s, 0.0))


def partition_clusters(
    cluster: ReachedCluster, topics: Topics, settings: ServeSettings
) -> Callable[[PartitionState], PartitionCluster]:
    """A cluster as the fleet of each partition. Where it is the one that holds the log, the log's topics are hidden."""
    is_same = cluster.cluster_id == topics.cluster_id
    hidden = {topics.commands, topics.events, settings.stream_gateways_topic} if is_same else set()
    times, log = watch_times(settings), structlog.get_logger("topicwright")
    return lambda partition: PartitionCluster(cluster.link, partition, topics.partitions, times, log, hidden)
