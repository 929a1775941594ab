"""Reads the `TopicStore`s of all partitions of an events topic as one store, for gateways and their queries.

A topic is in the partition of its shard key; brokers and settings are in each partition. ACLs, quotas and credentials
are only in the first partition, so that their changes have one order. Broker configs are decided there and copied to
the other partitions.
Events of brokers and settings reach one partition after another, so the partitions may differ for a short
time. The least advanced partition then counts: a broker is visible as started or stopped only after every partition
knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from heapq import merge
from itertools import chain, islice

from msgspec.structs import replace

from controller.machine.state import Cluster, Topic
from controller.store.store import PARTITIONS_SHOWN_AT_ONCE, Counts, TopicStore, slice_of
from controller.store.topic_indexes import Tallies
from events.names import ShardKey, TopicName, shard_key

PartitionOf = Callable[[ShardKey], int]


class PartitionedStore:
    """The durable view of `TopicStore`, over the stores of all partitions."""

    def __init__(self, stores: Sequence[TopicStore], partition_of: PartitionOf) -> None:
        self._stores = tuple(stores)
        self._partition_of = partition_of
        self._clusters: tuple[Cluster, ...] = ()
        self._cluster = Cluster()

    def of(self, name: str) -> TopicStore:
        """The store of the partition of this name."""
        return self._stores[self._partition_of(shard_key(name))]

    @property
    def durable_counts(self) -> Counts:
        """The counts over all partitions."""
        counts = [store.durable_counts for store in self._stores]
        return Counts(sum(each.topics for each in counts), sum(each.partitions for each in counts))

    @property
    def durable_cluster(self) -> Cluster:
        """Brokers and settings of the least advanced partition, and everything else of the first partition."""
        clusters = tuple(store.durable_cluster for store in self._stores)
        if len(clusters) != len(self._clusters) or any(
            new is not old for new, old in zip(clusters, self._clusters, strict=True)
        ):
            self._clusters, least, first = clusters, min(clusters, key=_advance), clusters[0]
            least = least.with_all_configs(first.resource_configs)
            self._cluster = replace(
                least,
                acls=first.acls,
                quotas=first.quotas,
                scram=first.scram,
                login_secret=first.login_secret,
                rules=first.rules,
            )
        return self._cluster

    def durable_named(self, name: str) -> Topic | None:
        """The topic of exactly this name."""
        return self.of(name).durable_named(name)

    def durable_name_of(self, topic_id: bytes) -> TopicName | None:
        """The name of the topic with this id (KIP-516), or None."""
        for store in self._stores:
            name = store.durable_name_of(topic_id)
            if name is not None:
                return name
        return None

    @property
    def durable_tallies(self) -> Tallies:
        """The counts of partitions by health and broker."""
        return reduce(Tallies.plus, (store.durable_tallies for store in self._stores), Tallies())

    def durable_waiting(self, limit: int) -> list[Topic]:
        """The first `limit` topics that were never ready, one partition after the other."""
        return list(islice(chain.from_iterable(store.durable_waiting(limit) for store in self._stores), limit))

    def durable_slice(
        self, after: str | None, limit: int, partitions_max: int = PARTITIONS_SHOWN_AT_ONCE
    ) -> list[Topic]:
        """Up to `limit` topics ordered by shard key, after the key `after`; fewer if they have `partitions_max`
        partitions together. The list is empty only at the end."""
        topics = merge(*(store.durable_from(after) for store in self._stores), key=lambda topic: shard_key(topic.name))
        return slice_of(topics, limit, partitions_max)


def _advance(cluster: Cluster) -> tuple[bool, int, int]:
    """Sorts partitions by progress: settings come first, then registrations, then fencing."""
    return bool(cluster.release), cluster.last_broker_epoch, -len(cluster.live)


TopicReader = TopicStore | PartitionedStore
"""The durable view of one log, or of all partitions."""
