"""Compares one topic in the log with the same topic in the target cluster, and returns the changes to apply. Pure. The
callers are `actions`, `watch` and `target_cluster`.

After a restart it is unknown which decisions the cluster has applied. The log has the decisions without a result, and
the cluster has the current state. Where both agree, nothing needs to be done.
"""

from collections.abc import Iterable
from typing import get_args

import msgspec

from controller.brokers.cluster.link import SeenTopic
from controller.brokers.port import EventTypes
from controller.machine.state import Topic
from events import catalog
from events.names import BrokerId, RequestId, TopicId, TopicName, is_placeholder

Change = catalog.PartitionsAdded | catalog.TopicDeleted | catalog.TopicConfigsChanged
ACTED_ON: EventTypes = frozenset({catalog.TopicCreated, catalog.PartitionChanged, *get_args(Change)})
"""The types of events that lead to an action."""


class Action(msgspec.Struct, frozen=True):
    """A change of a topic to apply: the event that decided it, or the topic itself to create it after a restart.

    Without a `change`, partitions get the decided replicas, in which brokers have replaced placeholders (KIP-409).
    Any of the earlier `attempts` may have applied the change.
    """

    topic: TopicName
    change: Change | catalog.TopicCreated | Topic | None
    attempts: int = 0

    @property
    def name(self) -> str:
        return "placeholders" if self.change is None else type(self.change).__name__


def action_of(event: catalog.Event) -> Action | None:
    """The action that applies a committed event; None if none is needed."""
    if isinstance(event, catalog.PartitionChanged):
        return Action(event.topic, None) if event.filled else None
    return Action(event.topic, event) if isinstance(event, Change | catalog.TopicCreated) else None


class OpenWork(msgspec.Struct, frozen=True):
    """Unfinished work of a shard: changes without a result, True if a filled placeholder is not in sync yet, and the
    ids of deleted topics."""

    changes: tuple[Change, ...] = ()
    has_unfilled: bool = False
    deleted: frozenset[TopicId] = frozenset()


def open_work_of(records: Iterable[catalog.Recorded]) -> OpenWork:
    """The unfinished work of a shard, from its events in order.

    Changes to a topic are applied in order, so a change reported as done implies all earlier ones. A topic is created
    again only after a dry run by the cluster, so then the deletion of the previous topic is done.
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
                changes = {event.request_id: event}  # earlier changes to the deleted topic are obsolete
                deleted.add(event.topic_id)
                unfilled.clear()
            case catalog.ChangeCarriedOut() as event:
                done = changes.get(event.request_id)
                changes = _after(changes, event.request_id)
                if event.error_code and isinstance(done, catalog.TopicDeleted):
                    deleted.discard(done.topic_id)
            case catalog.PartitionChanged() as event:
                unfilled |= {(event.partition, broker_id) for broker_id in event.filled}
                unfilled -= {(event.partition, member) for member in event.after.isr}
    return OpenWork(tuple(changes.values()), bool(unfilled), frozenset(deleted))


def _after(changes: dict[RequestId, Change], done: RequestId) -> dict[RequestId, Change]:
    """The changes that are still open when the change `done` is applied: later changes, and changes of other topics."""
    if done not in changes:
        return changes
    topic, at = changes[done].topic, list(changes).index(done)
    return {key: one for number, (key, one) in enumerate(changes.items()) if number > at or one.topic != topic}


def unfinished_topics(records: Iterable[catalog.Recorded]) -> list[TopicName]:
    """The topics with changes that these events do not report as done."""
    events = [record.event for record in records]
    done = {(event.request_id, event.topic) for event in events if isinstance(event, catalog.ChangeCarriedOut)}
    changes = (event for event in events if isinstance(event, Change))
    return list(dict.fromkeys(each.topic for each in changes if (each.request_id, each.topic) not in done))


def differs(topic: Topic, seen: SeenTopic) -> bool:
    """True if the topic differs in the cluster; configs are not compared."""
    if topic.topic_id != seen.topic_id or len(topic.partitions) != len(seen.partitions):
        return True
    return any(_differs(ours, theirs) for ours, theirs in zip(topic.partitions, seen.partitions, strict=True))


def _differs(ours: catalog.Partition, theirs: catalog.Partition) -> bool:
    """ISRs are compared as sets. An empty ISR in the cluster (KIP-966) is no difference: the log has the last ISR."""
    if (ours.leader, ours.leader_epoch) != (theirs.leader, theirs.leader_epoch):
        return True
    if brokers_of(ours) != theirs.replicas:
        return True
    return bool(theirs.isr) and set(ours.isr) != set(theirs.isr)


def brokers_of(partition: catalog.Partition) -> tuple[BrokerId, ...]:
    """The replicas that are brokers: the cluster never sees placeholders (KIP-409)."""
    return tuple(replica for replica in partition.replicas if not is_placeholder(replica))
