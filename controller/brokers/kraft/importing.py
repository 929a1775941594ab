"""Imports the decisions of other controllers from the metadata log as equivalent events: the records of a batch
(`import_batch`), or the difference to a snapshot (`import_snapshot`), for `applier` and `adopting`.

Invariant: after the events, the machine's state, projected to records, equals the state before with the records
applied. So a voter that followed another leader can become the leader and continue from that state.

Method. The part of the state that a batch touches is projected to records, into an image to which the batch's records
are applied. Changes of brokers and partitions, producer ids and deletions become events one by one. Where several
records belong together (a topic with its configs and partitions, the configs of a resource, the quotas of an entity,
ACLs, features), the image is compared with the state when the batch ends. If the batch deletes a topic, that topic is
compared before its deletion. A snapshot is an image of the whole cluster, so all of the state is compared.

A PartitionChangeRecord becomes one `PartitionChanged`, because both raise the epochs the same way. If records were
missed, one `PartitionChanged` may not explain a difference. Then a `TopicDiscovered` replaces the whole topic.

Unsupported records do not stop the import: everything else is imported, and `unsupported` names the first of them. A
node with an unsupported record may follow and vote, but must not lead.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from controller.brokers.kraft.importing_cluster import ClusterImport, EventCollector, Imported
from controller.brokers.kraft.projection import is_one_record, partition_of, partition_record, partitions_of
from controller.brokers.kraft.projector import ProtocolIds
from controller.kafka.messages import records as kinds
from controller.kafka.messages.records import MetadataRecord, PartitionRecord
from controller.machine.configs.changes import OpType
from controller.machine.configs.topic_configs import with_labels_of, without_labels
from controller.machine.partitions.placement import replica_metadata_of
from controller.machine.state import Cluster, State, Topic
from controller.machine.target_cluster import vanish
from controller.quorum.log.image import MetadataImage, RecordMismatch
from controller.quorum.log.record_kinds import CONFIGS, ELR_SINCE, TOPICS, Author, key_records
from events import catalog
from events.catalog import ConfigOp, Configs, Partition
from events.external_decision import FOLLOW, ExternalDecision, skipped_snapshot
from events.names import ShardKey, TopicId, TopicName, shard_key


def import_batch(
    state: State,
    name_of: Callable[[bytes], TopicName | None],
    ids_before: ProtocolIds,
    records: Iterable[tuple[int, MetadataRecord]],
    at_ms: int,
    decided: ExternalDecision,
    every_topic: Callable[[], Iterable[Topic]],
) -> Iterator[Imported]:
    """The decisions in a batch's records, given with their offsets, as events, in slices of some milliseconds each.

    `ids_before` are the broker epochs and ACL ids before the batch. `name_of` returns the name of a topic by its id.
    `every_topic` is called only if a record concerns all topics. The caller may apply each slice to `state` before it
    takes the next one, or all slices at the end. Nothing else may change `state` meanwhile.
    """
    collector = EventCollector(Author(decided.request_id, decided.leader, decided.summary))
    cluster = ClusterImport(state.cluster, ids_before, collector)
    topics = TopicImport(collector, at_ms, state.topics.get, name_of, every_topic)

    def apply_all() -> Iterator[None]:
        for offset, record in records:
            try:
                if isinstance(record, kinds.ClearElrRecord):
                    yield from topics.clear_elr(record)
                elif not (topics.apply(record) or cluster.apply(record)):
                    collector.add_unsupported_record(record, f"at offset {offset}")
            except RecordMismatch as error:
                collector.add_unsupported_record(record, f"at offset {offset}: {error}")
            yield

    return collector.slices(chain(apply_all(), cluster.finish(), topics.finish()))


def import_snapshot(
    state: State,
    topics: Iterable[Topic],
    ids_before: ProtocolIds,
    image: MetadataImage,
    at_ms: int,
    skipped: catalog.HistorySkipped,
) -> Iterator[Imported]:
    """Import the difference in slices of some milliseconds; the first one has the `skipped` event. `topics` are all
    topics of the state, which must not change until the last slice is taken."""
    decided = skipped_snapshot(skipped)
    collector = EventCollector(Author(decided.request_id, decided.leader, decided.summary), image)
    collector.add(skipped)
    return collector.slices(_compare(state.cluster, topics, ids_before, collector, at_ms))


def import_all(collector: EventCollector) -> Imported:
    """Import the collector's image as the difference from an empty cluster."""
    for _ in _compare(Cluster(), (), ProtocolIds(), collector, 0):
        pass
    return collector.flush()


def _compare(
    before: Cluster, topics: Iterable[Topic], ids_before: ProtocolIds, collector: EventCollector, at_ms: int
) -> Iterator[None]:
    for record in (*collector.image.unknown, *collector.image.all(kinds.ZkMigrationStateRecord)):
        collector.add_unsupported_record(record, "in a snapshot")
    cluster = ClusterImport(before, ids_before, collector)
    yield from cluster.compare_all()
    yield from cluster.finish()
    yield from TopicImport(collector, at_ms).compare_all(topics)


class TopicImport:
    """Imports topics. For a batch call `apply` with each record, then `finish`; for a snapshot call `compare_all`."""

    def __init__(
        self,
        collector: EventCollector,
        at_ms: int,
        topic_under: Callable[[ShardKey], Topic | None] = lambda _: None,
        name_of: Callable[[bytes], TopicName | None] = lambda _: None,
        every_topic: Callable[[], Iterable[Topic]] = tuple,
    ) -> None:
        self._collector, self._image, self._at_ms = collector, collector.image, at_ms
        self._reason = collector.author.reason
        self._topic_under, self._name_of, self._every_topic = topic_under, name_of, every_topic
        self._topic_ids: dict[ShardKey, bytes | None] = {}
        """For each shard key in this batch: the id of its topic after the last record."""
        self._known: dict[bytes, Topic | None] = {}
        """By topic id: the topic before this batch; None if the batch creates it."""
        self._pending: dict[bytes, None] = {}
        """Topics that need events at the end of the batch."""
        self._configured: dict[TopicName, None] = {}
        self._replaced: set[bytes] = set()
        """Topics that need a `TopicDiscovered`, because `PartitionChanged` events do not explain their changes."""
        self._discovered: set[bytes] = set()

    def apply(self, record: MetadataRecord) -> bool:
        """Apply a record if it concerns a topic, and return whether it does. Raises RecordMismatch."""
        match record:
            case kinds.TopicRecord():
                self._create(record)
            case PartitionRecord():
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

    def finish(self) -> Iterator[None]:
        """Add the events for changes that take several records, in steps."""
        for name in self._configured:
            topic_id = self._id_under(shard_key(name))
            if topic_id is not None and self._name(topic_id) == name:
                self._pending[topic_id] = None
            elif self._image.configs_of(TOPICS, name):
                self._collector.add_unsupported(f"configs of the unknown topic {name!r}")
        for topic_id in list(self._pending):
            yield from self._report(topic_id)
            yield

    # --- known topics

    def _id_under(self, key: ShardKey) -> bytes | None:
        if key not in self._topic_ids:
            topic = self._topic_under(key)
            self._topic_ids[key] = None if topic is None else topic.topic_id
            if topic is not None:
                self._known.setdefault(topic.topic_id, topic)
        return self._topic_ids[key]

    def _name(self, topic_id: bytes) -> TopicName:
        known = self._known[topic_id]
        record = self._image.find(kinds.TopicRecord(topic_id=topic_id))
        assert known is not None or record is not None, "loaded or created before"
        return known.name if known is not None else TopicName(record.name if record is not None else "")

    def _load(self, topic_id: bytes) -> bool:
        """Add a topic with its configs, without its partitions, to the image. Returns whether it exists."""
        if topic_id in self._image.partitions:
            return True
        name = self._name_of(topic_id)
        if name is None or self._id_under(shard_key(name)) != topic_id:
            return False
        known = self._known[topic_id]
        assert known is not None, "created topics are in the image"
        self._image.apply(kinds.TopicRecord(name=name, topic_id=topic_id))
        for each in key_records(CONFIGS, (TOPICS, name), (), without_labels(known.configs)):
            self._image.apply(each)
        return True

    def _load_partitions(self, topic_id: bytes) -> Iterator[None]:
        known = self._known[topic_id]
        if known is not None and not self._collector.is_snapshot:
            for index in range(len(known.partitions)):
                self._load_partition(topic_id, index)
                yield

    def _load_partition(self, topic_id: bytes, index: int) -> None:
        known, loaded = self._known[topic_id], self._image.partitions[topic_id]
        if known is not None and index not in loaded and 0 <= index < len(known.partitions):
            loaded[index] = partition_record(TopicId(topic_id), index, known.partitions[index], ELR_SINCE)

    # --- records

    def _create(self, record: kinds.TopicRecord) -> None:
        key = shard_key(record.name)
        existing = self._id_under(key)
        if existing is not None:
            other = self._name(existing)
            self._collector.add_unsupported(f"topic {record.name!r} is created although {other!r} exists")
        elif self._load(record.topic_id):
            self._collector.add_unsupported(f"topic {record.name!r} has the id of {self._name(record.topic_id)!r}")
        else:
            self._topic_ids[key] = record.topic_id
            self._known[record.topic_id] = None
            self._pending[record.topic_id] = None
            self._image.apply(record)

    def _add_partition(self, record: PartitionRecord) -> None:
        if self._load(record.topic_id):
            self._pending[record.topic_id] = None
            known = self._known[record.topic_id]
            if known is not None and record.partition_id < len(known.partitions):
                self._replaced.add(record.topic_id)
        self._image.apply(record)

    def _change(self, record: kinds.PartitionChangeRecord) -> None:
        topic_id, index = record.topic_id, record.partition_id
        before = None
        if self._load(topic_id):
            self._load_partition(topic_id, index)
            before = self._image.partitions[topic_id].get(index)
        self._image.apply(record)
        assert before is not None, "the image holds what it changes"
        known = self._known[topic_id]
        if known is None or topic_id in self._replaced or index >= len(known.partitions):
            return  # imported with the topic or with the added partitions
        after = partition_of(self._image.partitions[topic_id][index])
        self._collector.add(catalog.PartitionChanged(known.name, index, partition_of(before), after, self._reason))

    def _remove(self, record: kinds.RemoveTopicRecord) -> None:
        topic_id = record.topic_id
        if self._load(topic_id):
            name, known = self._name(topic_id), self._known[topic_id]
            if topic_id in self._pending or name in self._configured:
                for _ in self._report(topic_id):
                    pass
            if known is not None:
                self._collector.add(*vanish(known, self._reason, self._at_ms).events)
            elif topic_id in self._discovered:
                self._collector.add(catalog.TopicVanished(name, TopicId(topic_id), self._reason))
            self._topic_ids[shard_key(name)] = None
            self._configured.pop(name, None)
        self._image.apply(record)

    def _configure(self, record: kinds.ConfigRecord) -> None:
        name = TopicName(record.resource_name)
        topic_id = self._id_under(shard_key(name))
        if topic_id is not None and self._name(topic_id) == name:
            self._load(topic_id)
        self._configured[name] = None
        self._image.apply(record)

    def clear_elr(self, record: kinds.ClearElrRecord) -> Iterator[None]:
        """Clear the ELR (KIP-966) of one topic, or of all if the name is empty, in steps. No epoch changes."""
        if record.topic_name:
            keys = [shard_key(record.topic_name)]
        else:
            keys = [*self._topic_ids, *(shard_key(topic.name) for topic in self._every_topic())]
        for key in dict.fromkeys(keys):
            topic_id = self._id_under(key)
            if topic_id is not None and record.topic_name in ("", self._name(topic_id)):
                yield from self._clear_elr(topic_id)
            yield

    def _clear_elr(self, topic_id: bytes) -> Iterator[None]:
        known, loaded = self._known[topic_id], self._image.partitions.get(topic_id, {})
        every = chain(() if known is None else known.partitions, map(partition_of, loaded.values()))
        if any(each.elr or each.last_known_elr for each in map(replica_metadata_of, every)):
            self._load(topic_id)
            yield from self._load_partitions(topic_id)
            self._image.apply(kinds.ClearElrRecord(topic_name=self._name(topic_id)))
            self._pending[topic_id] = None
            self._replaced.add(topic_id)

    # --- events

    def _report(self, topic_id: bytes) -> Iterator[None]:
        """Add the events that a topic still lacks, in steps."""
        self._pending.pop(topic_id, None)
        name, known = self._name(topic_id), self._known[topic_id]
        configs = with_labels_of(() if known is None else known.configs, self._image.configs_of(TOPICS, name))
        add, collector = self._collector.add, self._collector
        if known is None or topic_id in self._replaced:
            yield from self._load_partitions(topic_id)
            every = yield from partitions_of(self._image.partitions[topic_id])
            if every:
                add(catalog.TopicDiscovered(name, TopicId(topic_id), every, configs, self._reason))
                self._discovered.add(topic_id)
            else:
                why = "no partitions" if every == () else "gaps in them"
                self._collector.add_unsupported(f"topic {name!r} has {why}")
            return
        count = len(known.partitions)
        more = yield from partitions_of(self._image.partitions.get(topic_id, {}), count)
        if more is None:
            self._collector.add_unsupported(f"the partitions of topic {name!r} have gaps")
        if more:
            add(_partitions_added(name, count, more, collector.author))
        if configs != known.configs:
            add(_configs_changed(name, known.configs, configs, collector.author))

    # --- snapshots

    def compare_all(self, topics: Iterable[Topic]) -> Iterator[None]:
        """Import how all topics differ from `topics`, in steps. Configs of missing topics are ignored: Kafka's
        snapshots keep those of a topic created and deleted within one delta (`ConfigurationsDelta.replay`)."""
        new: dict[ShardKey, kinds.TopicRecord] = {}
        for record in self._image.all(kinds.TopicRecord):
            other = new.setdefault(shard_key(record.name), record)
            if other is not record:
                self._collector.add_unsupported(f"colliding topic names {other.name!r} and {record.name!r}")
            yield
        for topic in topics:
            key, topic_id = shard_key(topic.name), topic.topic_id
            if key in new and (new[key].topic_id, new[key].name) == (topic_id, topic.name):
                del new[key]
                self._known[topic_id] = topic
                yield from self._compare_partitions(topic)
                yield from self._report(topic_id)
                del self._known[topic_id]
            else:
                self._collector.add(*vanish(topic, self._reason, self._at_ms).events)
            yield
        for record in new.values():
            self._known[record.topic_id] = None
            yield from self._report(record.topic_id)
            yield

    def _compare_partitions(self, topic: Topic) -> Iterator[None]:
        """Import partition changes if single steps explain them all; else the whole topic is replaced."""
        records, changes = self._image.partitions[topic.topic_id], list[catalog.PartitionChanged]()
        for index, partition in enumerate(topic.partitions):
            after = partition_of(records[index]) if index in records else None
            if after != partition:
                before = partition_of(partition_record(topic.topic_id, index, partition, ELR_SINCE))
                if after is None or (before != after and not is_one_record(before, after)):
                    self._replaced.add(topic.topic_id)
                    return
                if before != after:
                    changes.append(catalog.PartitionChanged(topic.name, index, before, after, self._reason))
            yield
        self._collector.add(*changes)


def _partitions_added(
    topic: TopicName, first: int, partitions: tuple[Partition, ...], author: Author
) -> catalog.PartitionsAdded:
    """The event for added partitions. Its `live_brokers` are empty, because the metadata log does not have them."""
    wanted = catalog.RequestedPartitions(first + len(partitions), tuple(each.replicas for each in partitions))
    asked = catalog.RequestedChange(FOLLOW, 0, wanted)
    return catalog.PartitionsAdded(author.request_id, topic, first, partitions, author.principal, None, (), asked)


def _configs_changed(topic: TopicName, before: Configs, after: Configs, author: Author) -> catalog.TopicConfigsChanged:
    old, new = dict(before), dict(after)
    ops = [ConfigOp(name, OpType.DELETE, None) for name in old if name not in new]
    ops += [ConfigOp(name, OpType.SET, value) for name, value in after if old.get(name) != value]
    asked = catalog.RequestedChange(FOLLOW, 0, catalog.RequestedConfigs(tuple(ops), incremental=True))
    return catalog.TopicConfigsChanged(author.request_id, topic, after, author.principal, None, asked)
