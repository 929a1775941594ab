"""Reads the `TopicStore`s of all partitions of an events topic as one store, for gateways and their queries.

A topic is in the partition of its shard key; brokers and settings are in each partition. ACLs, quotas and credentials
are only in the first partition, so that their changes have one order. Broker configs are decided there and copied to
the other partitions.
Events of brokers and settings reach one partition after another, so the partitions may differ for a short
time. The least advanced partition then counts: a broker is visible as started or stopped only after every partition
knows it.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from heapq import merge
from itertools import chain, islice
from operator import is_

from msgspec.structs import replace

from controller.machine.state import Cluster, Counts, Topic
from controller.store.store import TopicStore
from controller.store.topic_indexes import Tallies
from events.names import ShardKey, TopicName, shard_key

PartitionOf = Callable[[ShardKey], int]
_OF_FIRST = ("acls", "quotas", "scram", "login_secret", "rules")
"""The fields of a cluster that only the first partition has."""


class PartitionedStore:
    """The durable view over the stores of all partitions. `TopicStore` documents the methods without a docstring."""

    def __init__(self, stores: Sequence[TopicStore], partition_of: PartitionOf) -> None:
        self._stores = tuple(stores)
        self._partition_of = partition_of
        self._clusters: tuple[Cluster, ...] = ()
        self._cluster = Cluster()

    @property
    def durable_counts(self) -> Counts:
        return sum((store.durable_counts for store in self._stores), Counts())

    @property
    def durable_cluster(self) -> Cluster:
        """Brokers and settings of the least advanced partition, and everything else of the first partition."""
        clusters = tuple(store.durable_cluster for store in self._stores)
        if not self._clusters or not all(map(is_, clusters, self._clusters)):
            self._clusters, least, first = clusters, min(clusters, key=_advance), clusters[0]
            same = {name: getattr(first, name) for name in _OF_FIRST}
            self._cluster = replace(least.with_configs(first.resource_configs), **same)
        return self._cluster

    def durable_named(self, name: str) -> Topic | None:
        return self._stores[self._partition_of(shard_key(name))].durable_named(name)

    def durable_name_of(self, topic_id: bytes) -> TopicName | None:
        names = (store.durable_name_of(topic_id) for store in self._stores)
        return next((name for name in names if name is not None), None)

    @property
    def durable_tallies(self) -> Tallies:
        return reduce(Tallies.plus, (store.durable_tallies for store in self._stores), Tallies())

    def durable_waiting(self, limit: int) -> list[Topic]:
        """The first `limit` topics that were never ready, one partition after the other."""
        return list(islice(chain.from_iterable(store.durable_waiting(limit) for store in self._stores), limit))

    def durable_from(self, after: str | None) -> Iterator[Topic]:
        return merge(*(store.durable_from(after) for store in self._stores), key=lambda topic: shard_key(topic.name))


def _advance(cluster: Cluster) -> tuple[bool, int, int]:
    """Sorts partitions by progress: settings come first, then registrations, then fencing."""
    return bool(cluster.release), cluster.last_broker_epoch, -len(cluster.live)


TopicReader = TopicStore | PartitionedStore
"""The durable view of one log, or of all partitions."""
