"""Projects the difference of two states to records of Kafka's metadata log.

Pure: the same event on the same state gives the same records, so the metadata log is a projection of the event log.

Method: brokers get the difference between the state before and after an event, not the event. So an event of any type
that changes a topic or the cluster is projected, and one that changes nothing for brokers gives no record. Partition
epochs are implicit in `PartitionChangeRecord`: each raises the partition epoch by one, and the leader epoch if it names
a leader. The machine must raise them the same way; this is asserted.

Broker epochs are the offsets of registrations in the metadata log, as in Kafka, not the machine's own count. ACL ids
are assigned when an ACL is created and named when it is removed; both are stored by the `projector`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

from controller.brokers.kraft.log import metadata_records as kinds
from controller.brokers.kraft.log.metadata_records import MetadataRecord
from controller.machine.access.acls import Acls
from controller.machine.access.bucket_map import differing as differing_keys
from controller.machine.access.credentials import MECHANISMS
from controller.machine.partitions.blocks import differing
from controller.machine.partitions.changes import UNASSIGNED, replica_metadata_of
from controller.machine.state import Broker, Cluster, ScramCredential, Topic
from events.access import Acl, QuotaEntity
from events.catalog import Configs, Partition
from events.names import BrokerId, TopicId

METADATA_VERSION_FEATURE: Final = "metadata.version"
DIRECTORIES_SINCE: Final = 17
ELR_SINCE: Final = 23
CORDONED_SINCE: Final = 30
"""The metadata.version levels that introduced these fields: 3.7-IV2, 4.0-IV1, 4.3-IV0."""
TOPICS: Final = 2
"""The config resource type of topics."""
UNCHANGED_LEADER: Final = -2

BrokerEpochs = Mapping[BrokerId, int]
T = TypeVar("T")


def topic_records(
    before: Topic | None, after: Topic | None, level: int, index: int | None = None
) -> list[MetadataRecord]:
    """The records of a created, changed or deleted topic at a metadata.version level. For an event about one partition
    `index` names it, so that the others are not compared."""
    if before is not None and (after is None or before.topic_id != after.topic_id):
        removed: list[MetadataRecord] = [kinds.RemoveTopicRecord(topic_id=before.topic_id)]
        return removed + topic_records(None, after, level)
    if after is None or before is after:
        return []
    records: list[MetadataRecord] = []
    if before is None:
        records.append(kinds.TopicRecord(name=after.name, topic_id=after.topic_id))
    records += config_records(TOPICS, after.name, before.configs if before is not None else (), after.configs)
    known = before.partitions if before is not None else ()
    changes = differing(known, after.partitions) if index is None else ((index, after.partitions[index]),)
    for number, partition in changes:
        if number >= len(known):
            records.append(partition_record(after.topic_id, number, partition, level))
        elif known[number] != partition:
            records.append(_change_record(after.topic_id, number, known[number], partition, level))
    return records


def config_records(kind: int, name: str, before: Configs, after: Configs) -> Iterator[MetadataRecord]:
    """The records of changed configs; a null value removes one."""
    if before == after:
        return
    old, new = dict(before), dict(after)
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            yield kinds.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=new.get(key))


def partition_record_version(level: int) -> int:
    """The version of partition records at a metadata.version level."""
    return (level >= DIRECTORIES_SINCE) + (level >= ELR_SINCE)


def broker_record_version(level: int) -> int:
    """The version of a registration at a metadata.version level. A registration change has one less."""
    return 2 + (level >= DIRECTORIES_SINCE) + (level >= CORDONED_SINCE)


def partition_record(topic_id: TopicId, index: int, partition: Partition, level: int) -> kinds.PartitionRecord:
    replica_metadata = replica_metadata_of(partition)
    return kinds.PartitionRecord(
        version=partition_record_version(level),
        partition_id=index,
        topic_id=topic_id,
        replicas=partition.replicas,
        isr=partition.isr,
        removing_replicas=replica_metadata.removing,
        adding_replicas=replica_metadata.adding,
        leader=partition.leader,
        leader_recovery_state=int(replica_metadata.recovering),
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=_directories(partition),
        eligible_leader_replicas=replica_metadata.elr or None,
        last_known_elr=replica_metadata.last_known_elr or None,
    )


def _directories(partition: Partition) -> tuple[bytes, ...]:
    return replica_metadata_of(partition).directories or (UNASSIGNED,) * len(partition.replicas)


def _change_record(topic_id: TopicId, index: int, before: Partition, after: Partition, level: int) -> MetadataRecord:
    steps = after.partition_epoch - before.partition_epoch, after.leader_epoch - before.leader_epoch
    assert steps in ((1, 0), (1, 1)), f"partition {index} goes from {before} to {after}, which is more than one record"
    old, new = replica_metadata_of(before), replica_metadata_of(after)
    return kinds.PartitionChangeRecord(
        version=partition_record_version(level),
        partition_id=index,
        topic_id=topic_id,
        isr=_changed(before.isr, after.isr),
        leader=after.leader if steps[1] else UNCHANGED_LEADER,
        replicas=_changed(before.replicas, after.replicas),
        removing_replicas=_changed(old.removing, new.removing),
        adding_replicas=_changed(old.adding, new.adding),
        leader_recovery_state=int(new.recovering) if new.recovering != old.recovering else -1,
        directories=_changed(_directories(before), _directories(after)),
        eligible_leader_replicas=_changed(old.elr, new.elr),
        last_known_elr=_changed(old.last_known_elr, new.last_known_elr),
    )


def _changed(before: T, after: T) -> T | None:
    return None if before == after else after


def cluster_records(
    before: Cluster, after: Cluster, epochs: BrokerEpochs, next_offset: int, resource: tuple[int, str] | None = None
) -> list[MetadataRecord]:
    """The records of changed brokers, features and dynamic configs.

    `epochs` holds the wire epochs of registered brokers, `next_offset` is the offset of the first record. For an event
    about one resource's configs `resource` names it, so that the others are not compared.
    """
    records: list[MetadataRecord] = []
    if before.features != after.features:
        records += _feature_records(dict(before.features), dict(after.features))
    if before.brokers is not after.brokers:
        for broker_id in sorted(before.brokers.keys() | after.brokers.keys()):
            old, new = before.brokers.get(broker_id), after.brokers.get(broker_id)
            if old is not new:
                level = after.feature(METADATA_VERSION_FEATURE)
                records += _broker_records(old, new, epochs.get(broker_id, -1), next_offset + len(records), level)
    if before.resource_configs is not after.resource_configs:
        every = (key for key, _ in (*before.resource_configs, *after.resource_configs))
        for kind, name in sorted(set(every)) if resource is None else (resource,):
            records += config_records(kind, name, before.configs_of(kind, name), after.configs_of(kind, name))
    return records


def _feature_records(before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[MetadataRecord]:
    for name in sorted(before.keys() | after.keys(), key=lambda name: (name != METADATA_VERSION_FEATURE, name)):
        if before.get(name, 0) != after.get(name, 0):
            yield kinds.FeatureLevelRecord(name=name, feature_level=after.get(name, 0))


def is_kraft_broker(broker: Broker | None) -> bool:
    """True for a broker that follows the metadata log."""
    return broker is not None and bool(broker.features)


def _broker_records(
    before: Broker | None, after: Broker | None, epoch: int, next_offset: int, level: int
) -> Iterator[MetadataRecord]:
    was, real = is_kraft_broker(before), is_kraft_broker(after)
    if before is not None and was and not real:
        yield kinds.UnregisterBrokerRecord(broker_id=before.broker_id, broker_epoch=epoch)
    if after is None or not real:
        return
    if before is None or not was or before.broker_epoch != after.broker_epoch:
        yield registration_record(after, next_offset, level)
        return
    yield from _registration_change(before, after, epoch, level)


def registration_record(broker: Broker, epoch: int, level: int) -> kinds.RegisterBrokerRecord:
    """The record of a broker with its wire epoch, at a metadata.version level."""
    endpoints = zip(broker.endpoints, broker.security_protocols, strict=True)
    return kinds.RegisterBrokerRecord(
        version=broker_record_version(level),
        broker_id=broker.broker_id,
        incarnation_id=bytes.fromhex(broker.incarnation),
        broker_epoch=epoch,
        end_points=tuple(
            kinds.BrokerEndpoint(name=each.name, host=each.host, port=each.port, security_protocol=protocol)
            for each, protocol in endpoints
        ),
        features=tuple(
            kinds.BrokerFeature(name=each.name, min_supported_version=each.lowest, max_supported_version=each.highest)
            for each in broker.features
        ),
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.leaving,
        log_dirs=broker.log_dirs,
        cordoned_log_dirs=broker.cordoned if broker.cordoned and level >= CORDONED_SINCE else None,
    )


def _registration_change(before: Broker, after: Broker, epoch: int, level: int) -> Iterator[MetadataRecord]:
    fenced, leaving = before.fenced != after.fenced, after.leaving and not before.leaving
    log_dirs = before.log_dirs != after.log_dirs and level >= DIRECTORIES_SINCE
    cordoned = before.cordoned != after.cordoned and level >= CORDONED_SINCE
    if fenced or leaving or log_dirs or cordoned:
        yield kinds.BrokerRegistrationChangeRecord(
            version=broker_record_version(level) - 1,
            broker_id=after.broker_id,
            broker_epoch=epoch,
            fenced=(1 if after.fenced else -1) if fenced else 0,
            in_controlled_shutdown=int(leaving),
            log_dirs=after.log_dirs if log_dirs else (),
            cordoned_log_dirs=after.cordoned if cordoned else None,
        )


def producer_ids_record(broker_id: BrokerId, epoch: int, next_producer_id: int) -> MetadataRecord:
    """A broker was assigned a block of producer ids below `next_producer_id` (KIP-730)."""
    return kinds.ProducerIdsRecord(broker_id=broker_id, broker_epoch=epoch, next_producer_id=next_producer_id)


NUMBERS: Final = {name: number for number, name in MECHANISMS.items()}
"""Kafka's numbers of SCRAM mechanisms (ScramMechanism.type)."""
Quotas = Mapping[QuotaEntity, tuple[tuple[str, float], ...]]
Credentials = Mapping[tuple[str, str], ScramCredential]


def credential_and_quota_records(before: Cluster, after: Cluster) -> list[MetadataRecord]:
    """The records of changed SCRAM credentials and quotas."""
    records: list[MetadataRecord] = []
    if before.scram is not after.scram:
        records += _credential_records(before.scram, after.scram)
    if before.quotas is not after.quotas:
        records += _quota_records(before.quotas, after.quotas)
    return records


def _credential_records(before: Credentials, after: Credentials) -> Iterator[MetadataRecord]:
    for user, mechanism in sorted(differing_keys(before, after)):
        old, new = before.get((user, mechanism)), after.get((user, mechanism))
        if new is None:
            yield kinds.RemoveUserScramCredentialRecord(name=user, mechanism=NUMBERS[mechanism])
        elif old != new:
            yield kinds.UserScramCredentialRecord(
                name=user,
                mechanism=NUMBERS[mechanism],
                salt=new.salt,
                stored_key=new.stored_key,
                server_key=new.server_key,
                iterations=new.iterations,
            )


def _quota_records(before: Quotas, after: Quotas) -> Iterator[MetadataRecord]:
    for entity in sorted(differing_keys(before, after), key=lambda one: [(kind, name or "") for kind, name in one]):
        old, new = dict(before.get(entity, ())), dict(after.get(entity, ()))
        who = tuple(kinds.EntityData(entity_type=kind, entity_name=name) for kind, name in entity)
        for key in sorted(old.keys() | new.keys()):
            if key not in new:
                yield kinds.ClientQuotaRecord(entity=who, key=key, remove=True)
            elif old.get(key) != new[key]:
                yield kinds.ClientQuotaRecord(entity=who, key=key, value=new[key])


def acl_changes(before: Acls, after: Acls) -> tuple[list[Acl], list[Acl]]:
    """The removed and the added ACLs; each sorted."""
    if before is after:
        return [], []
    removed: list[Acl] = []
    new: list[Acl] = []
    for pattern in before.by_pattern.keys() | after.by_pattern.keys():
        old_entries, entries = before.by_pattern.get(pattern, {}), after.by_pattern.get(pattern, {})
        if old_entries is not entries:
            removed += old_entries.keys() - entries.keys()
            new += entries.keys() - old_entries.keys()
    return sorted(removed), sorted(new)


def acl_record(acl: Acl, acl_id: bytes) -> MetadataRecord:
    return kinds.AccessControlEntryRecord(
        id=acl_id,
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
