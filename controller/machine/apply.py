"""Events to state.

`apply` is total over what `decide` emits: it validates nothing, rejects nothing and reads no clock. An event that does
not fit the state is a bug, so it raises and the process stops; it is never skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from controller.machine.credentials import apply_credential
from controller.machine.partitions import after_change, after_fill, after_step, with_partition
from controller.machine.quotas import after_quotas
from controller.machine.state import Broker, Cluster, Quorum, State, Topic, Waiter, settings_from_pairs
from events.access import (
    AclsCreated,
    AclsDeleted,
    AsksRefused,
    QuotasChanged,
    ScramCredentialRemoved,
    ScramCredentialSet,
)
from events.catalog import (
    BrokerFenced,
    BrokerLeaving,
    BrokerRegistered,
    BrokerUnfenced,
    BrokerUnregistered,
    ChangeCarriedOut,
    ChangeRejected,
    CreateAnswered,
    CreateRejected,
    CreateRequested,
    CreationRefused,
    FeaturesChanged,
    IsrChanged,
    LeaderElected,
    LogDirsChanged,
    MetadataAdopted,
    MetadataHandedBack,
    MetadataPropagated,
    Partition,
    PartitionChanged,
    PartitionsAdded,
    PlaceholderFilled,
    ProducerIdsAllocated,
    QuorumEpochBegun,
    Recorded,
    ResourceConfigsChanged,
    SettingsChanged,
    TopicConfigsChanged,
    TopicCreated,
    TopicDeleted,
    TopicDiscovered,
    TopicReady,
    TopicVanished,
)
from events.names import CLUSTER_SHARD, ShardKey, shard_key


class CannotApply(AssertionError):
    """An event that does not fit the state: a bug in `decide`, or a log that is not whole."""

    def __init__(self, record: Recorded, why: str) -> None:
        super().__init__(f"event {type(record.event).__name__} at offset {record.offset} cannot be applied: {why}")


def apply(state: State, record: Recorded) -> ShardKey:
    """Bring `state` past one event; returns the shard key of the topic it concerned ("" for a cluster event)."""
    event = record.event
    on_topic = _TOPIC_FOLDS.get(type(event))
    if on_topic is None:
        state.cluster = apply_cluster(state.cluster, record)
        return CLUSTER_SHARD
    key = shard_key(event.topic)  # type: ignore[union-attr]
    if on_topic is _unchanged:
        return key
    before = state.topics.get(key)
    after = on_topic(before, record)
    if after is not before:
        state.topics.put(key, after)
        _track_waiting(state, key, before, after)
    return key


def apply_topic(topic: Topic | None, record: Recorded) -> Topic | None:
    """The topic after an event of its shard; None where there is none. Raises CannotApply."""
    return _TOPIC_FOLDS[type(record.event)](topic, record)


def concerns_topic(event: object) -> bool:
    """Whether an event belongs to one topic, rather than to the whole cluster."""
    return type(event) in _TOPIC_FOLDS


def apply_cluster(cluster: Cluster, record: Recorded) -> Cluster:
    """Brokers, settings, access control entries and quotas after a cluster event. Raises CannotApply for what is not
    there, or is there already."""
    match record.event:
        case AclsCreated() | AclsDeleted() | QuotasChanged() | AsksRefused():
            return _apply_access(cluster, record)
        case BrokerRegistered() as e:
            return cluster.with_broker(_registered(e))
        case BrokerFenced() | BrokerUnfenced() | BrokerLeaving() | LogDirsChanged() | BrokerUnregistered():
            return _with_known_broker(cluster, record)
        case ScramCredentialSet() | ScramCredentialRemoved() as e:
            if isinstance(e, ScramCredentialRemoved) and (e.user, e.mechanism) not in cluster.scram:
                raise CannotApply(record, f"user {e.user!r} has no credential for {e.mechanism}")
            return apply_credential(cluster, e)
        case QuorumEpochBegun() | MetadataHandedBack():
            return replace(cluster, quorum=_quorum(cluster, record))
        case MetadataAdopted():
            return cluster
        case FeaturesChanged() as e:
            return replace(cluster, features=e.features)
        case ResourceConfigsChanged() as e:
            return cluster.with_configs(e.kind, e.name, e.configs)
        case ProducerIdsAllocated() as e:
            return replace(cluster, next_producer_id=e.next_producer_id)
        case SettingsChanged() as e:
            return replace(
                cluster, settings=settings_from_pairs(e.settings), settings_pairs=e.settings, release=e.release
            )
        case _:
            raise CannotApply(record, "it is no cluster event")


def _quorum(cluster: Cluster, record: Recorded) -> Quorum:
    event: Any = record.event
    if isinstance(event, QuorumEpochBegun):
        return Quorum(
            event.leader_epoch, event.node_id, event.kraft_version, event.host, event.port, event.directory_id
        )
    if cluster.quorum is None:
        raise CannotApply(record, "nobody leads real brokers here")
    return replace(cluster.quorum, handed_back_to=event.folder)


def _apply_access(cluster: Cluster, record: Recorded) -> Cluster:
    event: Any = record.event
    match event:
        case AclsCreated():
            known = next((acl for acl in event.acls if acl in cluster.acls), None)
            if known is not None:
                raise CannotApply(record, f"{known} holds already")
            return replace(cluster, acls=cluster.acls.with_all(event.acls))
        case AclsDeleted():
            unknown = next((acl for acl in event.acls if acl not in cluster.acls), None)
            if unknown is not None:
                raise CannotApply(record, f"{unknown} does not hold")
            return replace(cluster, acls=cluster.acls.without(event.acls))
        case QuotasChanged():
            values = after_quotas(cluster.quotas.get(event.entity, ()), event)
            return cluster.with_quotas(event.entity, values)
        case _:
            return cluster


def _with_known_broker(cluster: Cluster, record: Recorded) -> Cluster:
    event: Any = record.event
    known = cluster.brokers.get(event.broker_id)
    if known is None:
        raise CannotApply(record, f"broker {event.broker_id} is not registered")
    match event:
        case BrokerFenced():
            return cluster.with_broker(replace(known, fenced=True))
        case BrokerUnfenced():
            return cluster.with_broker(replace(known, fenced=False, unclean=False))
        case BrokerLeaving():
            return cluster.with_broker(replace(known, leaving=True))
        case LogDirsChanged():
            return cluster.with_broker(replace(known, log_dirs=event.log_dirs))
        case _:
            return cluster.without_broker(event.broker_id)


def _registered(event: BrokerRegistered) -> Broker:
    broker = Broker(event.broker_id, event.broker_epoch, event.incarnation, event.rack, event.endpoints, fenced=True)
    if event.details is None:
        return broker
    details = event.details
    return replace(
        broker,
        log_dirs=details.log_dirs,
        unclean=not details.clean,
        security_protocols=details.security_protocols,
        features=details.features,
    )


def _track_waiting(state: State, key: ShardKey, before: Topic | None, after: Topic | None) -> None:
    if after is not None and after.ready_at_ms is None:
        if before is None:
            state.waiting[key] = after.created_offset
    elif before is not None and before.ready_at_ms is None:
        del state.waiting[key]


def _existing(topic: Topic | None, record: Recorded) -> Topic:
    if topic is None or topic.name != record.event.topic:  # type: ignore[union-attr]
        raise CannotApply(record, f"topic {record.event.topic!r} does not exist")  # type: ignore[union-attr]
    return topic


def _unchanged(topic: Topic | None, _: Recorded) -> Topic | None:
    return topic


def _on_created(topic: Topic | None, record: Recorded) -> Topic | None:
    if topic is not None:
        raise CannotApply(record, f"topic {topic.name!r} exists")
    event: Any = record.event
    new = event.deadline_ms != 0
    return Topic(
        event.topic,
        event.topic_id,
        event.partitions,
        event.configs,
        record.at_ms,
        record.offset,
        None if new else record.at_ms,
        (),
        Waiter(event.request_id, record.at_ms, event.deadline_ms) if new else None,
    )


def _on_partitions_added(topic: Topic | None, record: Recorded) -> Topic | None:
    event: Any = record.event
    known = _existing(topic, record)
    if event.first != len(known.partitions):
        raise CannotApply(record, f"topic {known.name!r} has {len(known.partitions)} partitions")
    return replace(known, partitions=known.partitions + event.partitions)


def _on_deleted(topic: Topic | None, record: Recorded) -> Topic | None:
    _existing(topic, record)
    return None


def _on_discovered(topic: Topic | None, record: Recorded) -> Topic | None:
    event: Any = record.event
    if topic is None:
        facts = (event.topic, event.topic_id, event.partitions, event.configs)
        return Topic(*facts, record.at_ms, record.offset, ready_at_ms=record.at_ms)
    known = _existing(topic, record)
    return replace(known, topic_id=event.topic_id, partitions=event.partitions, configs=event.configs)


def _on_configs(topic: Topic | None, record: Recorded) -> Topic | None:
    event: Any = record.event
    return replace(_existing(topic, record), configs=event.configs)


def _partition(topic: Topic, record: Recorded) -> Partition:
    index: int = record.event.partition  # type: ignore[union-attr]
    if not 0 <= index < len(topic.partitions):
        raise CannotApply(record, f"topic {topic.name!r} has no partition {index}")
    return topic.partitions[index]


def _on_leadership(topic: Topic | None, record: Recorded) -> Topic | None:
    event: Any = record.event
    known = _existing(topic, record)
    return with_partition(known, event.partition, after_change(_partition(known, record), event))


def _on_step(topic: Topic | None, record: Recorded) -> Topic | None:
    event: Any = record.event
    known = _existing(topic, record)
    return with_partition(known, event.partition, after_step(_partition(known, record), event))


def _on_filled(topic: Topic | None, record: Recorded) -> Topic | None:
    event: Any = record.event
    known = _existing(topic, record)
    before = _partition(known, record)
    if event.placeholder not in before.replicas:
        raise CannotApply(record, f"partition {event.partition} has no placeholder {event.placeholder}")
    return with_partition(known, event.partition, after_fill(before, event))


def _on_propagated(topic: Topic | None, record: Recorded) -> Topic | None:
    event: Any = record.event
    known = _existing(topic, record)
    return replace(known, propagated=known.propagated + event.brokers)


def _on_ready(topic: Topic | None, record: Recorded) -> Topic | None:
    known = _existing(topic, record)
    if known.ready_at_ms is not None:
        raise CannotApply(record, f"topic {known.name!r} is ready since {known.ready_at_ms} ms")
    return replace(known, ready_at_ms=record.at_ms, propagated=())


def _on_answered(topic: Topic | None, record: Recorded) -> Topic | None:
    """Whoever is answered waits no longer. A refused create never waited, though a topic may stand under its key:
    of another request, or of the same one under a name that collides."""
    event: Any = record.event
    if topic is None or topic.name != event.topic:
        return topic
    if topic.waiter is None or topic.waiter.request_id != event.request_id:
        return topic
    return replace(topic, waiter=None)


_TOPIC_FOLDS: dict[type, Callable[[Topic | None, Recorded], Topic | None]] = {
    CreateRequested: _unchanged,
    CreateRejected: _unchanged,
    ChangeRejected: _unchanged,
    TopicCreated: _on_created,
    PartitionsAdded: _on_partitions_added,
    TopicDeleted: _on_deleted,
    TopicVanished: _on_deleted,
    CreationRefused: _on_deleted,
    ChangeCarriedOut: _unchanged,
    TopicDiscovered: _on_discovered,
    TopicConfigsChanged: _on_configs,
    LeaderElected: _on_leadership,
    IsrChanged: _on_leadership,
    PartitionChanged: _on_step,
    PlaceholderFilled: _on_filled,
    MetadataPropagated: _on_propagated,
    TopicReady: _on_ready,
    CreateAnswered: _on_answered,
}
