"""What the log and the cluster say of one topic, compared. Pure.

After a restart it is not known what had been carried out. The log holds what was decided and never reported as done;
the cluster shows how things stand; what both agree on needs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from controller.brokers.cluster.link import SeenTopic
from controller.machine.commands.cluster import SeenPartition
from controller.machine.state import Topic
from events import catalog
from events.names import BrokerId, RequestId, TopicId, TopicName, is_placeholder

Change = catalog.PartitionsAdded | catalog.TopicDeleted | catalog.TopicConfigsChanged


class OpenWork(msgspec.Struct, frozen=True):
    """What the events of a shard leave open: changes that nobody reported as carried out, whether placeholders were
    filled without the broker being in sync yet, and the ids of topics that are meant to be gone."""

    changes: tuple[Change, ...] = ()
    has_unfilled: bool = False
    deleted: frozenset[TopicId] = frozenset()


def open_work_of(records: Iterable[catalog.Recorded]) -> OpenWork:
    """The work of a shard, from its events in their order.

    What is done to a topic is done in order, so what was reported as done closes what came before. A topic that is made
    again, with the cluster's leave, says that the one before is gone.
    """
    changes: dict[RequestId, Change] = {}
    unfilled: set[tuple[int, BrokerId]] = set()
    deleted: set[TopicId] = set()
    for record in records:
        match record.event:
            case catalog.TopicCreated() | catalog.TopicDiscovered():
                changes = {key: one for key, one in changes.items() if not isinstance(one, catalog.TopicDeleted)}
                unfilled.clear()
            case catalog.PartitionsAdded() | catalog.TopicConfigsChanged() as event:
                changes[event.request_id] = event
            case catalog.TopicDeleted() as event:
                changes = {event.request_id: event}  # what was to be done to the topic before is of no use any more
                deleted.add(event.topic_id)
                unfilled.clear()
            case catalog.ChangeCarriedOut() as event:
                done = changes.get(event.request_id)
                changes = _after(changes, event.request_id)
                if event.error_code and isinstance(done, catalog.TopicDeleted):
                    deleted.discard(done.topic_id)
            case catalog.PlaceholderFilled() as event:
                unfilled.add((event.partition, event.broker_id))
            case catalog.IsrChanged() | catalog.LeaderElected() as event:
                unfilled -= {(event.partition, member) for member in event.isr}
    return OpenWork(tuple(changes.values()), bool(unfilled), frozenset(deleted))


def _after(changes: dict[RequestId, Change], done: RequestId) -> dict[RequestId, Change]:
    """The changes that are open still when one is done: those to another topic, and those after it."""
    if done not in changes:
        return changes
    topic, at = changes[done].topic, list(changes).index(done)
    return {key: one for number, (key, one) in enumerate(changes.items()) if number > at or one.topic != topic}


def unfinished_topics(records: Iterable[catalog.Recorded]) -> list[TopicName]:
    """The topics to which something was to be done that nobody has reported as done, by these events alone."""
    names: dict[RequestId, TopicName] = {}
    for record in records:
        match record.event:
            case catalog.PartitionsAdded() | catalog.TopicConfigsChanged() | catalog.TopicDeleted() as change:
                names[change.request_id] = change.topic
            case catalog.ChangeCarriedOut() as done:
                names.pop(done.request_id, None)
    return list(dict.fromkeys(names.values()))


def known(topic: Topic | None) -> tuple[int, catalog.Configs] | None:
    """What a look at the cluster says that it knew of the topic."""
    return None if topic is None else (len(topic.partitions), topic.configs)


def differs(topic: Topic, seen: SeenTopic) -> bool:
    """Whether a topic is not as the cluster has it; configs are not looked at."""
    if topic.topic_id != seen.topic_id or len(topic.partitions) != len(seen.partitions):
        return True
    return any(_differs(mine, theirs) for mine, theirs in zip(topic.partitions, seen.partitions, strict=True))


def _differs(mine: catalog.Partition, theirs: SeenPartition) -> bool:
    """In-sync sets are compared as sets; one that the cluster has empty (KIP-966) keeps its last members here."""
    if (mine.leader, mine.leader_epoch) != (theirs.leader, theirs.leader_epoch):
        return True
    if brokers_of(mine) != theirs.replicas:
        return True
    return bool(theirs.isr) and set(mine.isr) != set(theirs.isr)


def brokers_of(partition: catalog.Partition) -> tuple[BrokerId, ...]:
    """The replicas of a partition that are brokers: all that the cluster gets to know of them (KIP-409)."""
    return tuple(replica for replica in partition.replicas if not is_placeholder(replica))
