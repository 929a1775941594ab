"""All in which a snapshot of the metadata log differs from the state, as events: one change, of many events.

It is what a voter does that was away for longer than the log is kept, and what a controller does that takes a cluster
over: its state before is empty then. Nothing is said of how it came to be so, but what a single step explains.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from controller.brokers.kraft.discovering.access import acl_of
from controller.brokers.kraft.discovering.cluster_changes import ClusterChanges
from controller.brokers.kraft.discovering.reading import Discovered, Reading
from controller.brokers.kraft.discovering.source import source_of
from controller.brokers.kraft.discovering.topics import (
    added,
    configured,
    found,
    in_a_row,
    partition_of,
    record_of,
    step,
)
from controller.brokers.kraft.discovering.unsaid import is_passed_over, record_in_words
from controller.brokers.kraft.discovering.wire import KnownWire
from controller.brokers.kraft.log import metadata_records as kinds
from controller.brokers.kraft.log.image import MetadataImage
from controller.brokers.kraft.log.projection import TOPICS
from controller.machine.discovering import vanish
from controller.machine.state import Cluster, State, Topic
from events import catalog
from events.external_decision import skipped_snapshot
from events.names import BrokerId, ShardKey, TopicName, shard_key


def discovered_snapshot(
    state: State,
    topics: Iterable[Topic],
    wire_before: KnownWire,
    image: MetadataImage,
    at_ms: int,
    skipped: catalog.HistorySkipped,
) -> Iterator[Discovered]:
    """The difference in slices, each of some milliseconds, the first of which says what is `skipped`. `topics` are
    all that the state has, which is to stand still until the last slice is taken."""
    reading = Reading(source_of(skipped_snapshot(skipped).request_id), image)
    reading.say(skipped)
    return difference(state.cluster, topics, wire_before, reading, at_ms)


def wire_in(image: MetadataImage, cluster: Cluster, before: KnownWire) -> KnownWire:
    """What an image says of the wire, where the events of all that it says are known, and the wire only as of `before`.
    Of access control entries it is what the cluster has: all else is a difference still."""
    brokers = image.all(kinds.RegisterBrokerRecord)
    entries = {each.id: acl_of(each) for each in image.all(kinds.AccessControlEntryRecord)}
    older = {acl_id: acl for acl_id, acl in before.acls.items() if acl not in set(entries.values())}
    return KnownWire(
        {BrokerId(each.broker_id): each.broker_epoch for each in brokers},
        {acl_id: acl for acl_id, acl in {**older, **entries}.items() if acl in cluster.acls},
    )


def difference(
    cluster: Cluster, topics: Iterable[Topic], wire_before: KnownWire, reading: Reading, at_ms: int
) -> Iterator[Discovered]:
    """From a cluster, its topics and what is known of the wire to the image of a reading, in slices."""
    of_cluster = ClusterChanges(cluster, wire_before, reading)
    steps = chain(
        _unfoldable(reading),
        of_cluster.compare_all(),
        of_cluster.finish(),
        _of_topics(topics, reading, at_ms),
    )
    return reading.slices(steps)


def _unfoldable(reading: Reading) -> Iterator[None]:
    for record in (*reading.image.unknown, *reading.image.all(kinds.ZkMigrationStateRecord)):
        if not is_passed_over(record):
            reading.cannot(f"{record_in_words(record)} in a snapshot")
    yield


def _of_topics(topics: Iterable[Topic], reading: Reading, at_ms: int) -> Iterator[None]:
    """Configs of topics that are not there are passed over: Kafka's snapshots keep those of a topic that was made and
    deleted within what it took in at once (`ConfigurationsDelta.replay`)."""
    new: dict[ShardKey, kinds.TopicRecord] = {}
    for record in reading.image.all(kinds.TopicRecord):
        other = new.setdefault(shard_key(record.name), record)
        if other is not record:
            reading.cannot(f"topics {other.name!r} and {record.name!r}, whose names collide")
        yield
    for topic in topics:
        known = new.get(shard_key(topic.name))
        if known is not None and (known.topic_id, known.name) == (topic.topic_id, topic.name):
            del new[shard_key(topic.name)]
            yield from _of_topic(topic, reading)
        else:
            reading.say(*vanish(topic, reading.source.reason, at_ms).events)
        yield
    for record in new.values():
        yield from _say_whole(TopicName(record.name), record.topic_id, reading)
        yield


def _of_topic(topic: Topic, reading: Reading) -> Iterator[None]:
    """A topic that was there before: what a single step each explains, or else all of it."""
    image, source = reading.image, reading.source
    partitions = image.partitions[topic.topic_id]
    steps: list[catalog.PartitionChanged] = []
    for index, before in enumerate(topic.partitions):
        after = partitions.get(index)
        if after is not None and partition_of(after) != before:
            known = record_of(topic.topic_id, index, before)
            one = step(topic.name, known, after, source.reason)
            if one is not None:
                steps.append(one)
            elif partition_of(known) != partition_of(after):
                after = None
        if after is None:
            yield from _say_whole(topic.name, topic.topic_id, reading)
            return
        yield
    more = yield from in_a_row(partitions, len(topic.partitions))
    if more is None:
        reading.cannot(f"the partitions of topic {topic.name!r} have gaps")
    reading.say(*steps)
    if more:
        reading.say(added(topic.name, len(topic.partitions), more, source))
    configs = image.configs_of(TOPICS, topic.name)
    if configs != topic.configs:
        reading.say(configured(topic.name, topic.configs, configs, source))


def _say_whole(name: TopicName, topic_id: bytes, reading: Reading) -> Iterator[None]:
    partitions = yield from in_a_row(reading.image.partitions[topic_id])
    if partitions:
        configs = reading.image.configs_of(TOPICS, name)
        reading.say(found(name, topic_id, partitions, configs, reading.source))
    else:
        reading.cannot(f"topic {name!r} has {'no partitions' if partitions == () else 'gaps in them'}")
