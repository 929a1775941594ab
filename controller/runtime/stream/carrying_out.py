"""A Kafka cluster that carries out what workers decide, as the owner of one partition sees it.

Each owner watches the cluster and carries out for its own partition's topics alone, and tells its own partition which
brokers live: whoever owns a partition next starts from that partition and the cluster, and no owner needs another.
(The owner of one partition could tell all the others of brokers; but that would be several writes, of which some may be
lost with it, and partitions would wait for one that nobody owns.)

The topics that hold the log are not among those that are managed: who deleted them would delete everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from controller.brokers.cluster import RECENT_EVENTS, ClusterFleet, WatchTimes
from controller.brokers.cluster_clearing import Planned
from controller.brokers.cluster_link import ClusterLink
from controller.machine.commands import Clearance
from controller.machine.errors import ErrorCode
from controller.runtime.stream.commands import partition_of
from controller.runtime.stream.partition import PartitionState
from events.catalog import Recorded
from events.codec import decode_event
from events.names import ShardKey, TopicName, shard_key

CLEAR_WITHIN_S = 5.0
"""How long the cluster may take for its word on asks: the partition's other commands wait behind them."""
NO_WORD = "The cluster that carries decisions out has not answered in time: nothing was decided."


class PartitionCluster(ClusterFleet):
    """The cluster for one of `partitions` partitions; topics in `hidden` are not looked at."""

    def __init__(
        self,
        link: ClusterLink,
        partition: PartitionState,
        partitions: int,
        times: WatchTimes,
        log: Any,
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
        """What the cluster says of asks that are about to be decided, in order, within `CLEAR_WITHIN_S`."""
        try:
            async with asyncio.timeout(CLEAR_WITHIN_S):
                return await super().clear(planned)
        except TimeoutError:
            return [Clearance(int(ErrorCode.REQUEST_TIMED_OUT), NO_WORD)] * len(planned)
