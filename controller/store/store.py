"""Stores topics, brokers and settings in the log's own RocksDB, so that events and state commit together.

The state machine uses `get` and `put`; its changes stay in memory until the commit with their events is
durable. Kafka APIs and queries read the durable view: a topic that is written but not yet fsynced could still be lost,
so this view does not have it. `controller.store.keys` lists the state keys.

Memory is bounded: the cached decoded topics have at most `partitions_cached` partitions together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from heapq import merge
from itertools import chain, groupby, islice, repeat
from operator import itemgetter, or_
from typing import Protocol

import msgspec

from controller.machine.access.bucket_map import BucketMap
from controller.machine.partitions.blocks import BLOCK, blocks_of
from controller.machine.state import ALL_TOPICS, Broker, Cluster, Counts, QuorumLeader, State, Topic, count_changes
from controller.store.keys import Puts, put_access, put_entries, shard_keys, stored_access
from controller.store.stored_topics import TOPIC, TopicCache, decode_topic, each_stored, put_topic, stored_values
from controller.store.topic_indexes import UNHEALTHY, HealthIndex, blocks_with, placeholders, put_replicas
from events.catalog import Configs, Partition
from events.logs.log import StateKeys, grouped
from events.names import BrokerId, Offset, ShardKey, TopicName, shard_key

TOPIC_ID, WAITING, CLUSTER, COUNTS = b"i", b"w", b"c", b"n"

_encode = msgspec.msgpack.Encoder().encode
_decode_counts = msgspec.msgpack.Decoder(Counts).decode


GROUPS_CACHED_MAX = 10_000
PARTITIONS_SHOWN_AT_ONCE = 10_000
"""The most partitions in a slice of topics for a response: encoding that many takes about ten milliseconds."""


class _StoredCluster(msgspec.Struct, array_like=True):
    settings: tuple[tuple[str, str], ...]
    release: str
    brokers: tuple[Broker, ...]
    last_broker_epoch: int
    features: tuple[tuple[str, int], ...] = ()
    next_producer_id: int = 0
    quorum: QuorumLeader | None = None
    resource_configs: tuple[tuple[tuple[int, str], Configs], ...] = ()
    login_secret: bytes = b""


_SAME = ("release", "last_broker_epoch", "features", "next_producer_id", "quorum", "login_secret")
"""Fields of `Cluster` that are stored as they are."""


class TopicStore:
    """The state of a log, for the machine (`get`, `put`) and for readers (`durable…`)."""

    def __init__(self, log: StateKeys, partitions_cached: int = 100_000) -> None:
        self._log = log
        self._cache = TopicCache(partitions_cached)
        self._used: dict[ShardKey, tuple[Topic | None, Topic | None]] = {}
        """The durable and the newest version of each topic that the machine has read or written since the commit."""
        self._counts: dict[str, Counts] = {}
        """The newest counts of some groups of topics, durable or not."""
        self._uncounted: dict[ShardKey, Topic | None] = {}
        """The topics that changed since the counts were computed, as they were then: without limits of rules, counts
        are needed once a commit."""
        self._groups_changed: dict[str, None] = {}
        """The groups with uncommitted counts, in order of their change."""
        self.durable_counts = stored_counts(log, ALL_TOPICS)
        self._health = HealthIndex(log)
        self.durable_tallies = self._health.tallies
        """The counts of partitions by health and broker."""
        self.durable_cluster = self._stored_cluster()
        self._written_cluster = self.durable_cluster

    # --- what the machine uses

    def get(self, key: ShardKey) -> Topic | None:
        """The newest topic under a shard key, durable or not."""
        if key not in self._used:
            topic = self._load(key)
            self._used[key] = topic, topic
        return self._used[key][1]

    def put(self, key: ShardKey, topic: Topic | None) -> None:
        """Set the newest topic under a shard key; the next commit writes it."""
        self._uncounted.setdefault(key, self.get(key))
        self._used[key] = self._used[key][0], topic

    def counts(self, group: str) -> Counts:
        """The newest counts of a group of topics, durable or not."""
        self._count_changed()
        return self._counted(group)

    def _count_changed(self) -> None:
        for key, before in self._uncounted.items():
            for group, change in count_changes(before, self._used[key][1]):
                self._counts[group] = self._counted(group) + change
                self._groups_changed[group] = None
        self._uncounted.clear()

    def _counted(self, group: str) -> Counts:
        counts = self._counts.get(group)
        if counts is None:
            counts = self._counts[group] = stored_counts(self._log, group)
        return counts

    def state(self) -> State:
        """The machine's state at the end of the log."""
        waiting = sorted(
            (int.from_bytes(value, "big"), ShardKey(key[1:].decode())) for key, value in self._log.scan(WAITING)
        )
        return State(self, self.durable_cluster, {key: Offset(offset) for offset, key in waiting})

    # --- committing

    def changes(self, state: State) -> Puts:
        """The state keys to write with the next commit."""
        puts: Puts = {}
        changed = [(key, before, after) for key, (before, after) in self._used.items() if after is not before]
        for key, before, after in changed:
            put_topic(puts, key, before, after)
            put_entries(puts, _index_entries(key, before), _index_entries(key, after))
            put_replicas(puts, self._log, key, before, after)
        self._count_changed()
        for group in self._groups_changed:
            counts = self._counts[group]
            puts[COUNTS + group.encode()] = _encode(counts) if counts != Counts() else None
        self._health.changes(puts, changed)
        if state.cluster is not self._written_cluster:
            encoded = _encoded_cluster(state.cluster)
            if encoded != _encoded_cluster(self._written_cluster) or self._log.get(CLUSTER) is None:
                puts[CLUSTER] = encoded
            put_access(puts, self._written_cluster, state.cluster)
            self._written_cluster = state.cluster
        return puts

    def became_durable(self, state: State) -> None:
        """Make the changes of a commit that is now on disk visible to readers."""
        if self._used:
            self.durable_counts = self.counts(ALL_TOPICS)
            self._groups_changed.clear()
            if len(self._counts) > GROUPS_CACHED_MAX:
                self._counts.clear()
            self.durable_tallies = self._health.tallies
            for key, (before, topic) in self._used.items():
                if topic is None:
                    self._cache.drop(key)
                elif topic is not before:
                    self._cache.put(key, topic)
            self._used.clear()
        self.durable_cluster = state.cluster

    # --- what readers use

    def durable(self, key: ShardKey) -> Topic | None:
        """The topic under a shard key as of the last durable commit."""
        return self._used[key][0] if key in self._used else self._load(key)

    def durable_named(self, name: str) -> Topic | None:
        """The topic of exactly this name as of the last durable commit."""
        topic = self.durable(shard_key(name))
        return topic if topic is not None and topic.name == name else None

    def durable_name_of(self, topic_id: bytes) -> TopicName | None:
        """The name of the topic with this id (KIP-516), or None."""
        value = self._log.get(TOPIC_ID + topic_id)
        if value is not None:
            topic = self.durable_named(value.decode())
            if topic is not None and topic.topic_id == topic_id:
                return topic.name
        for topic, _ in self._used.values():
            if topic is not None and topic.topic_id == topic_id:
                return topic.name
        return None

    def durable_parts(self, brokers: Iterable[BrokerId], *whole: Iterable[ShardKey]) -> Iterator[Part]:
        """The durable topics with a replica on one of these brokers, and those under the keys in `whole`, each of which
        is ordered. Of a large topic only the partitions with such a replica, except for those in `whole`.

        Each slice is read when the iterator gets there, so topics may change in between.
        """
        some = frozenset(brokers)
        named = merge(*(blocks_with(self._log, each) for each in some), *(zip(keys, repeat(-1)) for keys in whole))

        def topics() -> Iterator[tuple[Topic, int]]:
            for key, found in groupby(named, itemgetter(0)):
                topic = self.durable(key)
                if topic is not None:
                    yield topic, reduce(or_, [blocks for _, blocks in found])

        return _parts(topics(), some)

    def durable_topics(
        self, brokers: Iterable[BrokerId] | None = None, *keys: Iterable[ShardKey]
    ) -> Iterator[list[Topic]]:
        """Slices of the topics with a replica on one of these brokers (None: all topics), and of those under `keys`,
        each of which is ordered. Each slice is read when the iterator gets there, in any thread. The cache stays as it
        is. Topics may have the changes of a commit in progress."""
        if brokers is None:
            topics: Iterator[Topic] = (decode_topic(values) for _, values in each_stored(self._log.scan(TOPIC)))
        else:
            named = merge(*((key for key, _ in blocks_with(self._log, each)) for each in brokers), *keys)
            read = (self._cache.get(key) or self._stored(key) for key, _ in groupby(named))
            topics = (topic for topic in read if topic is not None)
        return grouped(topics, PARTITIONS_PER_SLICE, lambda topic: len(topic.partitions), TOPICS_PER_SLICE)

    def durable_placeholders(self) -> list[BrokerId]:
        """The ids of placeholders that topics have (KIP-409)."""
        return list(placeholders(self._log))

    def durable_keys_waiting(self, after: str | None = None) -> Iterator[ShardKey]:
        """The shard keys of topics that were never ready, in order; only those after the key `after`, if given."""
        return shard_keys(self._log, WAITING, after)

    def durable_waiting(self, limit: int) -> list[Topic]:
        """The first `limit` topics that were never ready; fewer if they have PARTITIONS_PER_SLICE partitions."""
        return slice_of(self._each_durable(self.durable_keys_waiting()), limit, PARTITIONS_PER_SLICE)

    def durable_keys_unhealthy(self, after: str | None = None) -> Iterator[ShardKey]:
        """The shard keys of the topics of `durable_unhealthy`, in order."""
        keys = merge(shard_keys(self._log, UNHEALTHY, after), self.durable_keys_waiting(after))
        return (key for key, _ in groupby(keys))

    def durable_unhealthy(self, after: str | None) -> Iterator[Topic]:
        """The topics that were never ready, or have under-replicated or offline partitions or placeholders, ordered by
        shard key, after the key `after`."""
        return self._each_durable(self.durable_keys_unhealthy(after))

    def durable_from(self, after: str | None) -> Iterator[Topic]:
        """The durable topics ordered by shard key. The log already has the changes of a commit that is being flushed;
        for that commit's topics this yields the previous versions."""
        start = None if after is None else TOPIC + after.encode()
        pairs = self._log.scan(TOPIC, start)
        gone = [TOPIC + key.encode() for key, (before, topic) in self._used.items() if before and not topic]
        if gone:
            pairs = merge(pairs, ((key, b"") for key in sorted(gone) if start is None or key > start))
        for key, values in each_stored(pairs):
            topic = self._used[key][0] if key in self._used else self._cache.get(key) or decode_topic(values)
            if topic is not None:
                yield topic

    # --- inside

    def _each_durable(self, keys: Iterable[ShardKey]) -> Iterator[Topic]:
        return (topic for topic in map(self.durable, keys) if topic is not None)

    def _load(self, key: ShardKey) -> Topic | None:
        topic = self._cache.get(key) or self._stored(key)
        if topic is not None:
            self._cache.put(key, topic)
        return topic

    def _stored(self, key: ShardKey) -> Topic | None:
        values = stored_values(self._log, key)
        return decode_topic(values) if values else None

    def _stored_cluster(self) -> Cluster:
        value = self._log.get(CLUSTER)
        if value is None:
            return Cluster()
        stored = msgspec.msgpack.decode(value, type=_StoredCluster)
        same = {name: getattr(stored, name) for name in _SAME}
        cluster = Cluster(**same, resource_configs=BucketMap(dict(stored.resource_configs)))
        cluster = stored_access(self._log, cluster.with_settings(stored.settings))
        return cluster.with_brokers({BrokerId(broker.broker_id): broker for broker in stored.brokers})


def stored_counts(log: StateKeys, group: str) -> Counts:
    """The counts of a group of topics (`groups_of`) as of the last commit."""
    stored = log.get(COUNTS + group.encode())
    return Counts() if stored is None else _decode_counts(stored)


def slice_of(topics: Iterable[Topic], limit: int, partitions_max: int) -> list[Topic]:
    """The first `limit` topics; fewer if they have `partitions_max` partitions together."""
    return next(grouped(topics, partitions_max, lambda topic: len(topic.partitions), limit), [])


def _index_entries(key: ShardKey, topic: Topic | None) -> dict[bytes, bytes]:
    """The entries of a topic in the indexes by id, and of topics that were never ready."""
    if topic is None:
        return {}
    encoded = key.encode()
    entries = {TOPIC_ID + topic.topic_id: topic.name.encode()}
    if topic.ready_at_ms is None:
        entries[WAITING + encoded] = topic.created_offset.to_bytes(8, "big")
    return entries


def _encoded_cluster(cluster: Cluster) -> bytes:
    brokers = tuple(cluster.brokers[broker_id] for broker_id in sorted(cluster.brokers))
    same = {name: getattr(cluster, name) for name in _SAME}
    configs = tuple(sorted(cluster.resource_configs.items()))
    return _encode(_StoredCluster(settings=cluster.settings_pairs, brokers=brokers, resource_configs=configs, **same))


TOPICS_PER_SLICE, PARTITIONS_PER_SLICE = 200, 500
"""Reconciling a slice of this size takes some milliseconds (KRaft brokers: about ten); then the event loop is free."""


class Part(msgspec.Struct, frozen=True):
    """Some topics, or some partitions of a large topic by index."""

    topics: Sequence[Topic]
    partitions: tuple[int, ...] | None = None


def parts_of(slices: Iterable[Sequence[Topic]]) -> Iterator[Part]:
    """Small topics together, and all partitions of each large topic in several parts."""
    return _parts(zip(chain.from_iterable(slices), repeat(-1)), frozenset())


def _parts(topics: Iterable[tuple[Topic, int]], brokers: frozenset[BrokerId]) -> Iterator[Part]:
    """Parts of topics, each with the bitmap of its blocks that have a replica on one of the brokers; -1 for all."""
    for some in grouped(topics, PARTITIONS_PER_SLICE, lambda one: len(one[0].partitions), TOPICS_PER_SLICE):
        if few := [topic for topic, _ in some if len(topic.partitions) <= PARTITIONS_PER_SLICE]:
            yield Part(few)
        for topic, blocks in some:
            if len(topic.partitions) > PARTITIONS_PER_SLICE:
                left = iter(_indexes(topic.partitions, blocks, brokers))
                while next_ := tuple(islice(left, PARTITIONS_PER_SLICE)):
                    yield Part((topic,), next_)


def _indexes(partitions: Sequence[Partition], blocks: int, brokers: frozenset[BrokerId]) -> Iterable[int]:
    if blocks < 0:
        return range(len(partitions))
    return (
        number * BLOCK + place
        for number, block in enumerate(blocks_of(partitions))
        if blocks >> number & 1
        for place, one in enumerate(block)
        if not brokers.isdisjoint(one.replicas)
    )


class Ordered(Protocol):
    """A store of durable topics: of one log, or of all partitions."""

    def durable_from(self, after: str | None) -> Iterator[Topic]: ...


def topic_slices(
    store: Callable[[], Ordered], partitions_max: int = PARTITIONS_PER_SLICE, after: str | None = None
) -> Iterator[list[Topic]]:
    """All durable topics in slices ordered by shard key, after the key `after`; `store` returns the current view for
    each slice. A slice has TOPICS_PER_SLICE topics; fewer if they have `partitions_max` partitions together."""
    while topics := slice_of(store().durable_from(after), TOPICS_PER_SLICE, partitions_max):
        yield topics
        after = shard_key(topics[-1].name)


def every_topic(store: Ordered) -> Iterator[Topic]:
    return chain.from_iterable(topic_slices(lambda: store))
