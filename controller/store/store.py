"""Stores topics, brokers and settings in the log's own RocksDB, so that events and state commit together.

The state machine uses `get` and `put`; its changes stay in memory until the commit with their events is
durable. Kafka APIs and queries read the durable view: a topic that is written but not yet fsynced could still be lost,
so this view does not have it. `controller.store.keys` lists the state keys.

Memory is bounded: decoded topics are cached in two generations of at most `partitions_cached` partitions each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import chain, groupby
from typing import Protocol

import msgspec

from controller.machine.access.bucket_map import BucketMap
from controller.machine.partitions.blocks import Span
from controller.machine.state import Broker, Cluster, QuorumLeader, State, Topic
from controller.store.keys import Puts, inverted, put_access, put_entries, shard_keys, stored_access
from controller.store.stored_topics import TOPIC, TopicCache, decode_topic, each_stored, put_topic, stored_values
from controller.store.topic_indexes import UNHEALTHY, HealthIndex, of_broker, placeholders, put_replicas
from events.catalog import Configs
from events.logs.log import EventLog, grouped
from events.names import BrokerId, Offset, ShardKey, TopicName, shard_key

TOPIC_ID, WAITING, CREATED, CLUSTER, COUNTS = b"i", b"w", b"z", b"c", b"n"

_encode = msgspec.msgpack.Encoder().encode


PARTITIONS_SHOWN_AT_ONCE = 10_000
"""The most partitions in a slice of `durable_slice`: encoding that many takes about ten milliseconds."""


class Counts(msgspec.Struct, frozen=True, array_like=True):
    """The numbers of topics and partitions in the store."""

    topics: int = 0
    partitions: int = 0


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

    def __init__(self, log: EventLog, partitions_cached: int = 100_000) -> None:
        self._log = log
        self._cache = TopicCache(partitions_cached)
        self._fresh: dict[ShardKey, Topic | None] = {}
        """Uncommitted topics, read or written by the machine."""
        self._before: dict[ShardKey, Topic | None] = {}
        """The durable versions of the same topics."""
        stored_counts = log.get(COUNTS)
        self.durable_counts = msgspec.msgpack.decode(stored_counts, type=Counts) if stored_counts else Counts()
        self._counts = self.durable_counts
        self._health = HealthIndex(log)
        self.durable_tallies = self._health.tallies
        """The counts of partitions by health and broker."""
        self.durable_cluster = self._stored_cluster()
        self._written_cluster = self.durable_cluster

    # --- what the machine uses

    def get(self, key: ShardKey) -> Topic | None:
        """The newest topic under a shard key, durable or not."""
        if key not in self._fresh:
            self._fresh[key] = self._before[key] = self._load(key)
        return self._fresh[key]

    def put(self, key: ShardKey, topic: Topic | None) -> None:
        """Set the newest topic under a shard key; the next commit writes it."""
        if key not in self._before:
            self._before[key] = self._load(key)
        self._fresh[key] = topic

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
        topics, partitions = self.durable_counts.topics, self.durable_counts.partitions
        fresh = ((key, self._before[key], topic) for key, topic in self._fresh.items())
        changed = [(key, before, after) for key, before, after in fresh if after is not before]
        for key, before, after in changed:
            put_topic(puts, key, before, after)
            _put_index_entries(puts, key, before, after)
            put_replicas(puts, key, before, after)
            topics += (after is not None) - (before is not None)
            partitions += (len(after.partitions) if after else 0) - (len(before.partitions) if before else 0)
        self._counts = Counts(topics, partitions)
        if self._counts != self.durable_counts:
            puts[COUNTS] = _encode(self._counts)
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
        if self._fresh:
            self.durable_counts = self._counts
            self.durable_tallies = self._health.tallies
            for key, topic in self._fresh.items():
                if topic is None:
                    self._cache.drop(key)
                elif topic is not self._before[key]:
                    self._cache.put(key, topic)
            self._fresh.clear()
            self._before.clear()
        self.durable_cluster = state.cluster

    # --- what readers use

    def durable(self, key: ShardKey) -> Topic | None:
        """The topic under a shard key as of the last durable commit."""
        return self._before[key] if key in self._before else self._load(key)

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
        for topic in self._before.values():
            if topic is not None and topic.topic_id == topic_id:
                return topic.name
        return None

    def durable_slice(
        self, after: str | None, limit: int, partitions_max: int = PARTITIONS_SHOWN_AT_ONCE
    ) -> list[Topic]:
        """Up to `limit` topics ordered by shard key, after the key `after`.

        Fewer if they have `partitions_max` partitions together. The list is empty only at the end.
        """
        return slice_of(self.durable_from(after), limit, partitions_max)

    def durable_topics(self, *keys: Iterable[ShardKey]) -> Iterator[list[Topic]]:
        """The durable topics under these keys, each iterable of which is ordered, in slices of PARTITIONS_PER_SLICE.
        Keys without a topic are skipped.

        Each slice is read when the iterator gets there, so topics may change in between.
        """
        topics = self._each_durable(key for key, _ in groupby(merge(*keys)))
        return grouped(topics, PARTITIONS_PER_SLICE, lambda topic: len(topic.partitions))

    def durable_keys_of(self, broker_id: BrokerId) -> Iterator[ShardKey]:
        """The keys of topics with a replica on a broker, in order, read in pages as the caller iterates."""
        return shard_keys(self._log, of_broker(broker_id))

    def has_replicas(self, broker_id: BrokerId) -> bool:
        """True if a topic has a replica on a broker, which may be unregistered."""
        return any(True for _ in self.durable_keys_of(broker_id))

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

    def durable_newest(self, before: int) -> Iterator[Topic]:
        """The topics that were created below an offset, the newest first."""
        pairs = self._log.scan(CREATED, CREATED + inverted(before))
        return self._each_durable(ShardKey(key.decode()) for _, key in pairs)

    def leads(self, broker_id: BrokerId, keys: Iterable[ShardKey]) -> bool:
        """True if a broker leads a partition under one of these keys."""
        return any(one.leader == broker_id for topic in self._each_durable(keys) for one in topic.partitions)

    def durable_from(self, after: str | None) -> Iterator[Topic]:
        """The durable topics ordered by shard key. The log already has the changes of a commit that is being flushed;
        for that commit's topics this yields the previous versions."""
        start = None if after is None else TOPIC + after.encode()
        pairs = self._log.scan(TOPIC, start)
        gone = [TOPIC + key.encode() for key, topic in self._fresh.items() if topic is None and self._before[key]]
        if gone:
            pairs = merge(pairs, ((key, b"") for key in sorted(gone) if start is None or key > start))
        for key, values in each_stored(pairs):
            topic = self._before[key] if key in self._before else self._cache.get(key) or decode_topic(values)
            if topic is not None:
                yield topic

    # --- inside

    def _each_durable(self, keys: Iterable[ShardKey]) -> Iterator[Topic]:
        return (topic for topic in map(self.durable, keys) if topic is not None)

    def _load(self, key: ShardKey) -> Topic | None:
        topic = self._cache.get(key)
        if topic is None:
            values = stored_values(self._log, key)
            if not values:
                return None
            topic = decode_topic(values)
            self._cache.put(key, topic)
        return topic

    def _stored_cluster(self) -> Cluster:
        value = self._log.get(CLUSTER)
        if value is None:
            return Cluster()
        stored = msgspec.msgpack.decode(value, type=_StoredCluster)
        same = {name: getattr(stored, name) for name in _SAME}
        cluster = Cluster(**same, resource_configs=BucketMap(dict(stored.resource_configs)))
        cluster = stored_access(self._log, cluster.with_settings(stored.settings))
        return cluster.with_brokers({BrokerId(broker.broker_id): broker for broker in stored.brokers})


def slice_of(topics: Iterable[Topic], limit: int, partitions_max: int) -> list[Topic]:
    """The first `limit` topics; fewer if they have `partitions_max` partitions together."""
    return next(grouped(topics, partitions_max, lambda topic: len(topic.partitions), limit), [])


def _put_index_entries(puts: Puts, key: ShardKey, before: Topic | None, after: Topic | None) -> None:
    """Add the changed entries of a topic in the indexes by id, by age, and of topics that were never ready."""
    if before is None:
        puts |= _index_entries(key, after)
    elif after is None or _indexed(before) != _indexed(after):
        put_entries(puts, _index_entries(key, before), _index_entries(key, after))


def _indexed(topic: Topic) -> tuple[object, ...]:
    return topic.topic_id, topic.created_offset, topic.ready_at_ms is None, topic.name


def _index_entries(key: ShardKey, topic: Topic | None) -> dict[bytes, bytes]:
    if topic is None:
        return {}
    encoded = key.encode()
    entries = {TOPIC_ID + topic.topic_id: topic.name.encode(), CREATED + inverted(topic.created_offset): encoded}
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
    """A slice of topics, or a span of the partitions of a large topic."""

    topics: Sequence[Topic]
    span: Span | None = None


def parts_of(topics: Sequence[Topic]) -> Iterator[Part]:
    """Split a slice: small topics together, each large topic in spans."""
    few = [topic for topic in topics if len(topic.partitions) <= PARTITIONS_PER_SLICE]
    if few:
        yield Part(few)
    for topic in topics:
        if len(topic.partitions) > PARTITIONS_PER_SLICE:
            for first in range(0, len(topic.partitions), PARTITIONS_PER_SLICE):
                yield Part((topic,), (first, first + PARTITIONS_PER_SLICE))


class Sliced(Protocol):
    """A store whose topics can be read in slices: of one log, or of all partitions."""

    def durable_slice(self, after: str | None, limit: int, partitions_max: int) -> list[Topic]: ...


def topic_slices(store: Callable[[], Sliced], partitions_max: int = PARTITIONS_PER_SLICE) -> Iterator[list[Topic]]:
    """All durable topics in slices; `store` returns the current view for each slice."""
    return _slices(lambda after: store().durable_slice(after, TOPICS_PER_SLICE, partitions_max))


def every_topic(store: Sliced) -> Iterator[Topic]:
    """All durable topics, read in slices."""
    return chain.from_iterable(topic_slices(lambda: store))


def unhealthy_slices(store: Callable[[], TopicStore]) -> Iterator[list[Topic]]:
    """The topics of `TopicStore.durable_unhealthy` in slices."""
    return _slices(lambda after: slice_of(store().durable_unhealthy(after), TOPICS_PER_SLICE, PARTITIONS_PER_SLICE))


def broker_slices(store: Callable[[], TopicStore], brokers: Iterable[BrokerId]) -> Iterator[list[Topic]]:
    """The topics with a replica on one of these brokers in slices."""
    return store().durable_topics(*map(store().durable_keys_of, brokers))


def _slices(slice_after: Callable[[str | None], list[Topic]]) -> Iterator[list[Topic]]:
    after: str | None = None
    while topics := slice_after(after):
        yield topics
        after = shard_key(topics[-1].name)
