"""Imports the topic records of a metadata batch as events.

Partition changes and deletions become events record by record. New topics, added partitions and configs take several
records, so their events follow at the end of the batch, or before the topic is deleted in the same batch.

A PartitionChangeRecord becomes one `PartitionChanged`, because both raise the epochs the same way. If records were
missed, one `PartitionChanged` may not explain a difference. Then a `TopicDiscovered` replaces the whole topic.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Final

from controller.brokers.kraft.importing.collector import EventCollector, Source
from controller.brokers.kraft.log import metadata_records as kinds
from controller.brokers.kraft.log.metadata_records import MetadataRecord, PartitionRecord
from controller.brokers.kraft.log.projection import ELR_SINCE, TOPICS, config_records, partition_record
from controller.machine.state import State, Topic
from controller.machine.target_cluster import vanish
from events import catalog
from events.catalog import ConfigOp, Configs, Partition
from events.external_decision import FOLLOW
from events.names import BrokerId, ShardKey, TopicId, TopicName, shard_key

_SET, _DELETE = 0, 1
STEPS: Final = ((1, 0), (1, 1))
"""The increments of partition epoch and leader epoch that one change may have."""


def partition_of(record: PartitionRecord) -> Partition:
    return Partition(
        _ids(record.replicas),
        _ids(record.isr),
        BrokerId(record.leader),
        record.leader_epoch,
        record.partition_epoch,
        catalog.ReplicaMetadata(
            record.directories,
            _ids(record.adding_replicas),
            _ids(record.removing_replicas),
            _ids(record.eligible_leader_replicas),
            _ids(record.last_known_elr),
            bool(record.leader_recovery_state),
        ),
    )


def record_of(topic_id: bytes, index: int, partition: Partition) -> PartitionRecord:
    return partition_record(TopicId(topic_id), index, partition, ELR_SINCE)


def partition_change(
    topic: TopicName, before: PartitionRecord, after: PartitionRecord, reason: str
) -> catalog.PartitionChanged | None:
    """The event that changes a partition from `before` to `after`; None if one event cannot."""
    raised = after.partition_epoch - before.partition_epoch, after.leader_epoch - before.leader_epoch
    if raised not in STEPS or (not raised[1] and before.leader != after.leader):
        return None
    recovering = bool(after.leader_recovery_state)
    return catalog.PartitionChanged(
        topic,
        after.partition_id,
        BrokerId(after.leader) if raised[1] else None,
        _changed(before.isr, after.isr),
        after.leader_epoch,
        after.partition_epoch,
        reason,
        _changed(before.replicas, after.replicas),
        None if before.directories == after.directories else after.directories,
        _changed(before.adding_replicas, after.adding_replicas),
        _changed(before.removing_replicas, after.removing_replicas),
        _changed(before.eligible_leader_replicas, after.eligible_leader_replicas),
        _changed(before.last_known_elr, after.last_known_elr),
        None if recovering == bool(before.leader_recovery_state) else recovering,
    )


def topic_discovered(
    topic: TopicName, topic_id: bytes, partitions: Sequence[Partition], configs: Configs, source: Source
) -> catalog.TopicDiscovered:
    return catalog.TopicDiscovered(topic, TopicId(topic_id), tuple(partitions), configs, source.reason)


def partitions_added(
    topic: TopicName, first: int, partitions: Sequence[Partition], source: Source
) -> catalog.PartitionsAdded:
    """The event for added partitions. Its `live_brokers` are empty, because the metadata log does not have them."""
    wanted = catalog.PartitionsWanted(first + len(partitions), tuple(each.replicas for each in partitions))
    asked = catalog.ChangeAsked(FOLLOW, 0, wanted)
    return catalog.PartitionsAdded(
        source.request_id, topic, first, tuple(partitions), source.principal, None, (), asked
    )


def configs_changed(topic: TopicName, before: Configs, after: Configs, source: Source) -> catalog.TopicConfigsChanged:
    old, new = dict(before), dict(after)
    removed = [ConfigOp(name, _DELETE, None) for name in old if name not in new]
    ops = [*removed, *(ConfigOp(name, _SET, value) for name, value in after if old.get(name) != value)]
    asked = catalog.ChangeAsked(FOLLOW, 0, catalog.ConfigsWanted(tuple(ops), incremental=True))
    return catalog.TopicConfigsChanged(source.request_id, topic, after, source.principal, None, asked)


def contiguous(
    partitions: Mapping[int, PartitionRecord], first: int = 0
) -> Generator[None, None, tuple[Partition, ...] | None]:
    """Returns the partitions from index `first` on; None if there is a gap. Yields after each, so that callers can
    pause."""
    indexes = sorted(index for index in partitions if index >= first)
    if indexes != list(range(first, first + len(indexes))):
        return None
    found: list[Partition] = []
    for index in indexes:
        found.append(partition_of(partitions[index]))
        yield
    return tuple(found)


def _ids(ids: tuple[int, ...] | None) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, ids or ()))


def _changed(before: tuple[int, ...] | None, after: tuple[int, ...] | None) -> tuple[BrokerId, ...] | None:
    return None if (before or ()) == (after or ()) else _ids(after)


NameOf = Callable[[bytes], TopicName | None]
"""Returns the name of a topic by its id."""


class TopicChanges:
    """Collects the topic changes of a batch: `apply` its records, then `finish`."""

    def __init__(
        self,
        state: State,
        name_of: NameOf,
        every_topic: Callable[[], Iterable[Topic]],
        collector: EventCollector,
        at_ms: int,
    ) -> None:
        self._state, self._name_of, self._every_topic = state, name_of, every_topic
        self._collector, self._image, self._at_ms = collector, collector.image, at_ms
        self._topic_ids: dict[ShardKey, bytes | None] = {}
        """By shard key: the id of its topic after the last record, for shards seen in this batch."""
        self._known: dict[bytes, Topic | None] = {}
        """By topic id: the topic before this batch; None if the batch creates it."""
        self._reported: dict[bytes, tuple[int, Configs]] = {}
        """By topic id: the partition count and configs as of the collected events."""
        self._pending: dict[bytes, None] = {}
        self._configured: dict[TopicName, None] = {}
        self._replaced: set[bytes] = set()
        """Topics with a PartitionRecord for an existing partition. They need a `TopicDiscovered`."""

    def apply(self, record: MetadataRecord) -> bool:
        """Apply a record if it concerns a topic, and return whether it does. Raises RecordMismatch."""
        match record:
            case kinds.TopicRecord():
                self._create(record)
            case kinds.PartitionRecord():
                self._add_partition(record)
            case kinds.PartitionChangeRecord():
                self._change(record)
            case kinds.RemoveTopicRecord():
                self._remove(record)
            case kinds.ConfigRecord() if record.resource_type == TOPICS:
                self._configure(record)
            case _:
                return False
        return True

    def clear_elr(self, record: kinds.ClearElrRecord) -> Iterator[None]:
        """Clear the ELR (KIP-966) of one topic or all, in steps. No epoch changes."""
        for topic_id in self._named(record.topic_name):
            yield from self._clear_elr(topic_id)
            yield

    def finish(self) -> Iterator[None]:
        """Add the events for changes that take several records, in steps."""
        for name in self._configured:
            topic_id = self._topic_id_under(shard_key(name))
            if topic_id is not None and self._name(topic_id) == name:
                self._pending[topic_id] = None
            elif self._image.configs_of(TOPICS, name):
                self._collector.add_unsupported(f"configs of the unknown topic {name!r}")
        for topic_id in list(self._pending):
            yield from self._report(topic_id)
            yield

    # --- known topics

    def _topic_id_under(self, key: ShardKey) -> bytes | None:
        if key not in self._topic_ids:
            topic = self._state.topics.get(key)
            self._topic_ids[key] = None if topic is None else topic.topic_id
            if topic is not None:
                self._known.setdefault(topic.topic_id, topic)
                self._reported.setdefault(topic.topic_id, (len(topic.partitions), topic.configs))
        return self._topic_ids[key]

    def _name(self, topic_id: bytes) -> TopicName:
        known = self._known[topic_id]
        record = self._image.find(kinds.TopicRecord(topic_id=topic_id))
        assert known is not None or record is not None, "loaded or created before"
        return known.name if known is not None else TopicName(record.name if record is not None else "")

    def _load(self, topic_id: bytes) -> bool:
        """Add a topic, without its partitions, to the image. Returns whether it exists."""
        if topic_id in self._image.partitions:
            return True
        name = self._name_of(topic_id)
        if name is None or self._topic_id_under(shard_key(name)) != topic_id:
            return False
        self._image.apply(kinds.TopicRecord(name=name, topic_id=topic_id))
        return True

    def _load_partition(self, topic_id: bytes, index: int) -> None:
        known, loaded = self._known[topic_id], self._image.partitions[topic_id]
        if known is not None and index not in loaded and 0 <= index < len(known.partitions):
            loaded[index] = record_of(topic_id, index, known.partitions[index])

    def _load_partitions(self, topic_id: bytes) -> Iterator[None]:
        known = self._known[topic_id]
        for index in range(len(known.partitions) if known is not None else 0):
            self._load_partition(topic_id, index)
            yield

    def _named(self, name: str) -> Iterator[bytes]:
        """The topic with a name, or all topics if it is empty."""
        if name:
            topic_id = self._topic_id_under(shard_key(name))
            if topic_id is not None and self._name(topic_id) == name:
                yield topic_id
            return
        for topic in self._every_topic():
            self._topic_id_under(shard_key(topic.name))
        yield from [topic_id for topic_id in self._topic_ids.values() if topic_id is not None]

    # --- records

    def _create(self, record: kinds.TopicRecord) -> None:
        key = shard_key(record.name)
        existing = self._topic_id_under(key)
        if existing is not None:
            self._collector.add_unsupported(
                f"topic {record.name!r} is created although {self._name(existing)!r} exists"
            )
        elif self._load(record.topic_id):
            self._collector.add_unsupported(f"topic {record.name!r} has the id of {self._name(record.topic_id)!r}")
        else:
            self._topic_ids[key] = record.topic_id
            self._known[record.topic_id] = None
            self._pending[record.topic_id] = None
            self._image.apply(record)

    def _add_partition(self, record: kinds.PartitionRecord) -> None:
        topic_id = record.topic_id
        if self._load(topic_id):
            self._pending[topic_id] = None
            if topic_id in self._reported and record.partition_id < self._reported[topic_id][0]:
                self._replaced.add(topic_id)
        self._image.apply(record)

    def _change(self, record: kinds.PartitionChangeRecord) -> None:
        topic_id, index = record.topic_id, record.partition_id
        before = None
        if self._load(topic_id):
            self._load_partition(topic_id, index)
            before = self._image.partitions[topic_id].get(index)
        self._image.apply(record)
        assert before is not None, "the image holds what it changes"
        if self._known[topic_id] is None or index >= self._reported[topic_id][0]:
            return  # imported with the topic or with the added partitions
        after = self._image.partitions[topic_id][index]
        changed = partition_change(self._name(topic_id), before, after, self._collector.source.reason)
        assert changed is not None, "one record is one step"
        self._collector.add(changed)

    def _remove(self, record: kinds.RemoveTopicRecord) -> None:
        topic_id, reason = record.topic_id, self._collector.source.reason
        if self._load(topic_id):
            name, known = self._name(topic_id), self._known[topic_id]
            if topic_id in self._pending or name in self._configured:
                for _ in self._report(topic_id):
                    pass
            if known is not None:
                self._collector.add(*vanish(known, reason, self._at_ms).events)
            elif topic_id in self._reported:
                self._collector.add(catalog.TopicVanished(name, TopicId(topic_id), reason))
            self._topic_ids[shard_key(name)] = None
            self._configured.pop(name, None)
        self._image.apply(record)

    def _configure(self, record: kinds.ConfigRecord) -> None:
        name = TopicName(record.resource_name)
        if name not in self._configured:
            self._configured[name] = None
            topic_id = self._topic_id_under(shard_key(name))
            known = None if topic_id is None else self._known[topic_id]
            if known is not None and known.name == name:
                for each in config_records(TOPICS, name, (), known.configs):
                    self._image.apply(each)
        self._image.apply(record)

    def _clear_elr(self, topic_id: bytes) -> Iterator[None]:
        known = self._known[topic_id]
        loaded = self._image.partitions.get(topic_id, {})
        clean = known is None or not any(map(_has_eligible, known.partitions))
        if clean and not any(_has_eligible(partition_of(one)) for one in loaded.values()):
            return
        self._load(topic_id)
        yield from self._load_partitions(topic_id)
        self._image.apply(kinds.ClearElrRecord(topic_name=self._name(topic_id)))
        if known is not None:
            yield from self._report_topic(topic_id)

    # --- events

    def _configs(self, topic_id: bytes) -> Configs:
        name, known = self._name(topic_id), self._known[topic_id]
        if known is None or name in self._configured:
            return self._image.configs_of(TOPICS, name)
        return known.configs

    def _report(self, topic_id: bytes) -> Iterator[None]:
        """Add the events that a topic still lacks, in steps."""
        self._pending.pop(topic_id, None)
        known, configs = self._known[topic_id], self._configs(topic_id)
        if known is None or topic_id in self._replaced:
            yield from self._report_topic(topic_id)
            return
        count, configs_before = self._reported[topic_id]
        source = self._collector.source
        more = yield from contiguous(self._image.partitions.get(topic_id, {}), count)
        if more is None:
            self._collector.add_unsupported(f"the partitions of topic {known.name!r} have gaps")
        if more:
            self._collector.add(partitions_added(known.name, count, more, source))
        if configs != configs_before:
            self._collector.add(configs_changed(known.name, configs_before, configs, source))
        self._reported[topic_id] = (count + len(more or ()), configs)

    def _report_topic(self, topic_id: bytes) -> Iterator[None]:
        name, configs = self._name(topic_id), self._configs(topic_id)
        yield from self._load_partitions(topic_id)
        partitions = yield from contiguous(self._image.partitions[topic_id])
        self._pending.pop(topic_id, None)
        self._replaced.discard(topic_id)
        if not partitions:
            self._collector.add_unsupported(
                f"topic {name!r} has {'no partitions' if partitions == () else 'gaps in them'}"
            )
            return
        self._collector.add(topic_discovered(name, topic_id, partitions, configs, self._collector.source))
        self._reported[topic_id] = (len(partitions), configs)


def _has_eligible(partition: Partition) -> bool:
    replica_metadata = partition.replica_metadata
    return replica_metadata is not None and bool(replica_metadata.elr or replica_metadata.last_known_elr)
