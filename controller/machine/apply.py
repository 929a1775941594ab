"""Applies events to the state: for the engine after `decide`, and for views and replay, which rebuild a state.

`apply` accepts every event that `decide` emits. It does not validate or reject, and reads no clock. An event that does
not fit the state is a bug, so `apply` raises CannotApply instead of skipping the event: the command fails, and a log
with such an event cannot be read.
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import astuple, replace

from controller.machine.access.bucket_map import changed as changed_entry
from controller.machine.access.requests import after_quotas
from controller.machine.partitions.blocks import changed, extended
from controller.machine.state import (
    Broker,
    Cluster,
    PendingCreate,
    QuorumLeader,
    RulesVersion,
    ScramCredential,
    State,
    Topic,
)
from events import access, catalog
from events.catalog import Event, Recorded
from events.errors import UserError
from events.names import CLUSTER_SHARD, BrokerId, ShardKey, shard_key


class CannotApply(UserError, AssertionError):
    """An event does not fit the state: a bug in `decide`, or an incomplete log."""

    def __init__(self, record: Recorded, why: str) -> None:
        super().__init__(f"event {type(record.event).__name__} at offset {record.offset} cannot be applied: {why}")


def apply(state: State, record: Recorded) -> ShardKey:
    """Applies an event to `state`. Returns the shard key of its topic; "" for a cluster event. Raises CannotApply."""
    return apply_all(state, (record,))[0]


def apply_all(
    state: State, records: Sequence[Recorded], on_change: Callable[[Event, Cluster, Any, Any], None] | None = None
) -> list[ShardKey]:
    """Applies the events of a command to `state`; if one raises CannotApply, or `on_change` raises, nothing is changed.

    Returns the shard keys of the events. Each topic is read and stored once, however many events it has. `on_change` is
    called after each event with the cluster, and with the topic, or for a cluster event the cluster, before and after.
    """
    cluster, topics = state.cluster, state.topics
    before: dict[ShardKey, Topic | None] = {}
    after: dict[ShardKey, Topic | None] = {}
    keys = []
    for record in records:
        event = record.event
        on_topic = _TOPIC_EVENTS.get(type(event))
        if on_topic is None:
            earlier, cluster = cluster, apply_cluster(cluster, record)
            keys.append(CLUSTER_SHARD)
            if on_change is not None:
                on_change(event, cluster, earlier, cluster)
            continue
        key = shard_key(event.topic)  # type: ignore[union-attr]
        keys.append(key)
        if on_topic is not _unchanged:
            if key not in after:
                before[key] = after[key] = topics.get(key)
            topic = after[key]
            after[key] = on_topic(topic, event, record)
            if on_change is not None:
                on_change(event, cluster, topic, after[key])
    state.cluster = cluster
    for key, topic in after.items():
        if topic is not before[key]:
            topics.put(key, topic)
            _track_waiting(state, key, before[key], topic)
    return keys


def apply_topic(topic: Topic | None, record: Recorded) -> Topic | None:
    """Returns the topic after an event of its shard, or None if the topic does not exist. Raises CannotApply."""
    return _TOPIC_EVENTS[type(record.event)](topic, record.event, record)


def concerns_topic(event: Event) -> bool:
    """True if the event belongs to one topic instead of the whole cluster."""
    return type(event) in _TOPIC_EVENTS


def apply_cluster(cluster: Cluster, record: Recorded) -> Cluster:
    """Returns the cluster after a cluster event. Raises CannotApply."""
    match record.event:
        case access.RequestsRefused() | catalog.MetadataAdopted() | catalog.HistorySkipped() | catalog.HeadSigned():
            return cluster
        case catalog.QuorumEpochBegun() as e:
            return replace(cluster, quorum=QuorumLeader(*astuple(e)))
        case catalog.MetadataHandedBack() as e:
            if cluster.quorum is None:
                raise CannotApply(record, "there is no quorum leader")
            return replace(cluster, quorum=replace(cluster.quorum, handed_back_to=e.folder))
        case catalog.FeaturesChanged() as e:
            return replace(cluster, features=e.features)
        case catalog.ResourceConfigsChanged() as e:
            return cluster.with_configs(changed_entry(cluster.resource_configs, (e.kind, e.name), e.configs or None))
        case catalog.ProducerIdsAllocated() as e:
            return replace(cluster, next_producer_id=e.next_producer_id)
        case catalog.RulesApplied() as e:
            from_file = e.sha256 if e.is_file else "" if cluster.rules is None else cluster.rules.file_sha256
            return replace(cluster, rules=RulesVersion(e.number, e.text, e.sha256, e.principal, from_file))
        case catalog.ApprovalRequested() | catalog.ApprovalDecided() as e:
            key, requested = (e.request_id, e.name), isinstance(e, catalog.ApprovalRequested)
            if (key in cluster.held) is requested:
                raise CannotApply(record, f"the request is {'already' if requested else 'not'} held")
            return replace(cluster, held=changed_entry(cluster.held, key, e if requested else None))
        case catalog.SettingsChanged() as e:
            return replace(cluster.with_settings(e.settings), release=e.release)
        case _:
            return _with_brokers(cluster, record)


def _with_brokers(cluster: Cluster, record: Recorded) -> Cluster:
    match record.event:
        case catalog.BrokerRegistered() as e:
            broker = Broker(e.broker_id, e.broker_epoch, e.incarnation, e.rack, e.endpoints, fenced=True)
            if (details := e.details) is not None:
                own = {"security_protocols": details.security_protocols, "features": details.features}
                broker = replace(broker, log_dirs=details.log_dirs, unclean=not details.clean, **own)
            return cluster.with_broker(broker)
        case catalog.BrokerFenced() as e:
            return cluster.with_broker(replace(_known(cluster, e.broker_id, record), fenced=True))
        case catalog.BrokerUnfenced() as e:
            return cluster.with_broker(replace(_known(cluster, e.broker_id, record), fenced=False, unclean=False))
        case catalog.BrokerLeaving() as e:
            return cluster.with_broker(replace(_known(cluster, e.broker_id, record), leaving=True))
        case catalog.LogDirsChanged() as e:
            known = _known(cluster, e.broker_id, record)
            return cluster.with_broker(replace(known, log_dirs=e.log_dirs, cordoned=e.cordoned))
        case catalog.BrokerUnregistered() as e:
            gone = _known(cluster, e.broker_id, record)
            return cluster.with_brokers({key: one for key, one in cluster.brokers.items() if one is not gone})
        case _:
            return _with_access(cluster, record)


def _with_access(cluster: Cluster, record: Recorded) -> Cluster:
    match record.event:
        case access.AclsCreated() | access.AclsDeleted() as e:
            created = isinstance(e, access.AclsCreated)
            wrong = next((acl for acl in e.acls if (acl in cluster.acls) is created), None)
            if wrong is not None:
                raise CannotApply(record, f"{wrong} exists already" if created else f"{wrong} does not exist")
            return replace(cluster, acls=cluster.acls.with_all(e.acls) if created else cluster.acls.without(e.acls))
        case access.QuotasChanged() as e:
            values = after_quotas(cluster.quotas.get(e.entity, ()), e)
            return replace(cluster, quotas=changed_entry(cluster.quotas, e.entity, values or None))
        case access.ScramCredentialSet() as e:
            credential = ScramCredential(e.iterations, e.salt, e.stored_key, e.server_key)
            return replace(cluster, scram=changed_entry(cluster.scram, (e.user, e.mechanism), credential))
        case access.ScramCredentialRemoved() as e:
            if (e.user, e.mechanism) not in cluster.scram:
                raise CannotApply(record, f"user {e.user!r} has no credential for {e.mechanism}")
            return replace(cluster, scram=changed_entry(cluster.scram, (e.user, e.mechanism), None))
        case access.LoginSecretDrawn() as e:
            if cluster.login_secret:
                raise CannotApply(record, "a login secret exists already")
            return replace(cluster, login_secret=e.secret)
        case _:
            raise CannotApply(record, "not an event of the cluster")


def _known(cluster: Cluster, broker_id: BrokerId, record: Recorded) -> Broker:
    broker = cluster.brokers.get(broker_id)
    if broker is None:
        raise CannotApply(record, f"broker {broker_id} is not registered")
    return broker


def _track_waiting(state: State, key: ShardKey, before: Topic | None, after: Topic | None) -> None:
    if after is not None and after.ready_at_ms is None:
        if before is None or before.created_offset != after.created_offset:
            state.waiting.pop(key, None)  # `waiting` is in order of creation: a recreated topic moves to the end
            state.waiting[key] = after.created_offset
    elif before is not None and before.ready_at_ms is None:
        del state.waiting[key]


def _existing(topic: Topic | None, record: Recorded) -> Topic:
    name = record.event.topic  # type: ignore[union-attr]
    if topic is None or topic.name != name:
        raise CannotApply(record, f"topic {name!r} does not exist")
    return topic


def _unchanged(topic: Topic | None, event: Event, record: Recorded) -> Topic | None:
    return topic


def _on_created(topic: Topic | None, event: catalog.TopicCreated, record: Recorded) -> Topic:
    if topic is not None:
        raise CannotApply(record, f"topic {topic.name!r} exists")
    facts = (event.topic, event.topic_id, event.partitions, event.configs, record.at_ms, record.offset)
    pending = PendingCreate(event.request_id, record.at_ms, event.deadline_ms)
    return Topic(*facts, pending_create=pending, principal=event.principal)


def _on_partitions_added(topic: Topic | None, event: catalog.PartitionsAdded, record: Recorded) -> Topic:
    known = _existing(topic, record)
    if event.first != len(known.partitions):
        raise CannotApply(record, f"topic {known.name!r} has {len(known.partitions)} partitions")
    return replace(known, partitions=extended(known.partitions, event.partitions))


def _on_deleted(topic: Topic | None, event: Event, record: Recorded) -> None:
    _existing(topic, record)


def _on_discovered(topic: Topic | None, event: catalog.TopicDiscovered, record: Recorded) -> Topic:
    if topic is None:
        facts = (event.topic, event.topic_id, event.partitions, event.configs)
        return Topic(*facts, record.at_ms, record.offset, ready_at_ms=record.at_ms)
    known = _existing(topic, record)
    return replace(known, topic_id=event.topic_id, partitions=event.partitions, configs=event.configs)


def _on_partition(topic: Topic | None, event: catalog.PartitionChanged, record: Recorded) -> Topic:
    known = _existing(topic, record)
    if not 0 <= event.partition < len(known.partitions):
        raise CannotApply(record, f"topic {known.name!r} has no partition {event.partition}")
    return replace(known, partitions=changed(known.partitions, {event.partition: event.after}))


def _on_propagated(topic: Topic | None, event: catalog.MetadataPropagated, record: Recorded) -> Topic:
    known = _existing(topic, record)
    return replace(known, propagated=known.propagated + event.brokers)


def _on_ready(topic: Topic | None, event: catalog.TopicReady, record: Recorded) -> Topic:
    known = _existing(topic, record)
    if known.ready_at_ms is not None:
        raise CannotApply(record, f"topic {known.name!r} is ready since {known.ready_at_ms} ms")
    return replace(known, ready_at_ms=record.at_ms, propagated=())


def _on_rules_observed(topic: Topic | None, event: catalog.RulesObserved, record: Recorded) -> Topic | None:
    """Stores a warning of the rules, for the answer to the pending create."""
    pending = None if topic is None else topic.pending_create
    if topic is None or pending is None or pending.request_id != event.request_id or not event.warned:
        return topic
    return replace(topic, pending_create=replace(pending, warning=event.warning))


def _on_answered(topic: Topic | None, event: catalog.CreateAnswered, record: Recorded) -> Topic | None:
    """Ends the pending create. A refused create never became pending, even if another topic has the same shard key."""
    if topic is None or topic.name != event.topic:
        return topic
    if topic.pending_create is None or topic.pending_create.request_id != event.request_id:
        return topic
    return replace(topic, pending_create=None)


_TOPIC_EVENTS: dict[type, Callable[[Topic | None, Any, Recorded], Topic | None]] = {
    catalog.CreateRequested: _unchanged,
    catalog.CreateRejected: _unchanged,
    catalog.ChangeRejected: _unchanged,
    catalog.RulesObserved: _on_rules_observed,
    catalog.TopicCreated: _on_created,
    catalog.PartitionsAdded: _on_partitions_added,
    catalog.TopicDeleted: _on_deleted,
    catalog.TopicVanished: _on_deleted,
    catalog.CreationRefused: _on_deleted,
    catalog.ChangeCarriedOut: _unchanged,
    catalog.TopicDiscovered: _on_discovered,
    catalog.TopicConfigsChanged: lambda topic, event, record: replace(_existing(topic, record), configs=event.configs),
    catalog.PartitionChanged: _on_partition,
    catalog.MetadataPropagated: _on_propagated,
    catalog.TopicReady: _on_ready,
    catalog.CreateAnswered: _on_answered,
}
"""The function that applies each event type to a topic. Each takes its own event type, hence `Any`."""
