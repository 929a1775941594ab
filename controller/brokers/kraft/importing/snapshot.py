"""Imports the difference between the state and a snapshot of the metadata log, as one change of many events.

A voter that was away longer than the log is retained does this, and a controller that adopts a cluster, with an empty
state. The events do not tell how the difference came about, except where a single step explains it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from controller.brokers.kraft.importing.cluster_changes import ClusterChanges, acl_of
from controller.brokers.kraft.importing.collector import EventCollector, Imported, is_ignored, record_summary, source_of
from controller.brokers.kraft.importing.topic_changes import (
    configs_changed,
    contiguous,
    partition_change,
    partition_of,
    partitions_added,
    record_of,
    topic_discovered,
)
from controller.brokers.kraft.log import metadata_records as kinds
from controller.brokers.kraft.log.image import MetadataImage
from controller.brokers.kraft.log.projection import TOPICS
from controller.brokers.kraft.log.projector import ProtocolIds
from controller.machine.state import Cluster, State, Topic
from controller.machine.target_cluster import vanish
from events import catalog
from events.external_decision import skipped_snapshot
from events.names import BrokerId, ShardKey, TopicName, shard_key


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
    collector = EventCollector(source_of(skipped_snapshot(skipped).request_id), image)
    collector.add(skipped)
    return import_difference(state.cluster, topics, ids_before, collector, at_ms)


def ids_in(image: MetadataImage, cluster: Cluster, before: ProtocolIds) -> ProtocolIds:
    """The ids in an image, when all its events are known but the ids only as of `before`. Only ACLs that the cluster
    has are included; the others are still a difference."""
    brokers = image.all(kinds.RegisterBrokerRecord)
    entries = {each.id: acl_of(each) for each in image.all(kinds.AccessControlEntryRecord)}
    older = {acl_id: acl for acl_id, acl in before.acls.items() if acl not in set(entries.values())}
    return ProtocolIds(
        {BrokerId(each.broker_id): each.broker_epoch for each in brokers},
        {acl_id: acl for acl_id, acl in {**older, **entries}.items() if acl in cluster.acls},
    )


def import_difference(
    cluster: Cluster, topics: Iterable[Topic], ids_before: ProtocolIds, collector: EventCollector, at_ms: int
) -> Iterator[Imported]:
    """Import the difference between a cluster with its topics and ids and the collector's image, in slices."""
    of_cluster = ClusterChanges(cluster, ids_before, collector)
    steps = chain(
        _unsupported(collector), of_cluster.compare_all(), of_cluster.finish(), _of_topics(topics, collector, at_ms)
    )
    return collector.slices(steps)


def _unsupported(collector: EventCollector) -> Iterator[None]:
    for record in (*collector.image.unknown, *collector.image.all(kinds.ZkMigrationStateRecord)):
        if not is_ignored(record):
            collector.add_unsupported(f"{record_summary(record)} in a snapshot")
    yield


def _of_topics(topics: Iterable[Topic], collector: EventCollector, at_ms: int) -> Iterator[None]:
    """Configs of missing topics are ignored: Kafka's snapshots keep those of a topic created and deleted within one
    delta (`ConfigurationsDelta.replay`)."""
    new: dict[ShardKey, kinds.TopicRecord] = {}
    for record in collector.image.all(kinds.TopicRecord):
        other = new.setdefault(shard_key(record.name), record)
        if other is not record:
            collector.add_unsupported(f"colliding topic names {other.name!r} and {record.name!r}")
        yield
    for topic in topics:
        known = new.get(shard_key(topic.name))
        if known is not None and (known.topic_id, known.name) == (topic.topic_id, topic.name):
            del new[shard_key(topic.name)]
            yield from _of_topic(topic, collector)
        else:
            collector.add(*vanish(topic, collector.source.reason, at_ms).events)
        yield
    for record in new.values():
        yield from _report_topic(TopicName(record.name), record.topic_id, collector)
        yield


def _of_topic(topic: Topic, collector: EventCollector) -> Iterator[None]:
    """An existing topic: partition changes if single steps explain them all, else the whole topic."""
    image, source = collector.image, collector.source
    partitions = image.partitions[topic.topic_id]
    steps: list[catalog.PartitionChanged] = []
    for index, before in enumerate(topic.partitions):
        after = partitions.get(index)
        if after is not None and partition_of(after) != before:
            known = record_of(topic.topic_id, index, before)
            one = partition_change(topic.name, known, after, source.reason)
            if one is not None:
                steps.append(one)
            elif partition_of(known) != partition_of(after):
                after = None
        if after is None:
            yield from _report_topic(topic.name, topic.topic_id, collector)
            return
        yield
    more = yield from contiguous(partitions, len(topic.partitions))
    if more is None:
        collector.add_unsupported(f"the partitions of topic {topic.name!r} have gaps")
    collector.add(*steps)
    if more:
        collector.add(partitions_added(topic.name, len(topic.partitions), more, source))
    configs = image.configs_of(TOPICS, topic.name)
    if configs != topic.configs:
        collector.add(configs_changed(topic.name, topic.configs, configs, source))


def _report_topic(name: TopicName, topic_id: bytes, collector: EventCollector) -> Iterator[None]:
    partitions = yield from contiguous(collector.image.partitions[topic_id])
    if partitions:
        configs = collector.image.configs_of(TOPICS, name)
        collector.add(topic_discovered(name, topic_id, partitions, configs, collector.source))
    else:
        collector.add_unsupported(f"topic {name!r} has {'no partitions' if partitions == () else 'gaps in them'}")
