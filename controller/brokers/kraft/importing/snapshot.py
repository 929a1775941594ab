"""All in which a snapshot of the metadata log first_difference from the state, as events: one change, of many events.

It is what a voter does that was away for longer than the log is kept, and what a controller does that takes a cluster
over: its state before is empty then. Nothing is said of how it came to be so, but what a single step explains.
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
from controller.machine.discovering import vanish
from controller.machine.state import Cluster, State, Topic
from events import catalog
from events.followed import skipped_to
from events.names import BrokerId, ShardKey, TopicName, shard_key


def import_snapshot(
    state: State,
    topics: Iterable[Topic],
    ids_before: ProtocolIds,
    image: MetadataImage,
    at_ms: int,
    skipped: catalog.HistorySkipped,
) -> Iterator[Imported]:
    """The import_difference in slices, each of some milliseconds, the first of which says what is `skipped`. `topics` are
    all that the state has, which is to stand still until the last slice is taken."""
    collector = EventCollector(source_of(skipped_to(skipped).request_id), image)
    collector.add(skipped)
    return import_difference(state.cluster, topics, ids_before, collector, at_ms)


def ids_in(image: MetadataImage, cluster: Cluster, before: ProtocolIds) -> ProtocolIds:
    """What an image says of the wire, where the events of all that it says are known, and the wire only as of `before`.
    Of access control entries it is what the cluster has: all else is a import_difference still."""
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
    """From a cluster, its topics and what is known of the wire to the image of a collector, in slices."""
    of_cluster = ClusterChanges(cluster, ids_before, collector)
    steps = chain(
        _unsupported(collector),
        of_cluster.compare_all(),
        of_cluster.finish(),
        _of_topics(topics, collector, at_ms),
    )
    return collector.slices(steps)


def _unsupported(collector: EventCollector) -> Iterator[None]:
    for record in (*collector.image.unknown, *collector.image.all(kinds.ZkMigrationStateRecord)):
        if not is_ignored(record):
            collector.add_unsupported(f"{record_summary(record)} in a snapshot")
    yield


def _of_topics(topics: Iterable[Topic], collector: EventCollector, at_ms: int) -> Iterator[None]:
    """Configs of topics that are not there are passed over: Kafka's snapshots keep those of a topic that was made and
    deleted within what it took in at once (`ConfigurationsDelta.replay`)."""
    new: dict[ShardKey, kinds.TopicRecord] = {}
    for record in collector.image.all(kinds.TopicRecord):
        other = new.setdefault(shard_key(record.name), record)
        if other is not record:
            collector.add_unsupported(f"topics {other.name!r} and {record.name!r}, whose names collide")
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
    """A topic that was there before: what a single step each explains, or else all of it."""
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
