"""From the state before and after an event to the records of Kafka's metadata log that tell real brokers of it.

Pure: the same event on the same state gives the same records, so the metadata log is a projection of the event log.

Method: what brokers are told is the difference of two states, not the event. An event of any kind that changes a topic
or the cluster is therefore projected, and one that changes nothing that brokers know gives no record. Epochs of
partitions are implicit in `PartitionChangeRecord`: each raises the partition's by one, and the leader's if it names a
leader; so each step of the machine must raise them so, which is asserted here.

Brokers' epochs are the offsets of their registrations in the metadata log, as Kafka's controller has it, and not the
machine's own count: `broker_epochs` holds them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

from controller.brokers.kraft.metadata_records.broker_registration_change_record import (
    BrokerRegistrationChangeRecordV1,
    BrokerRegistrationChangeRecordV2,
    BrokerRegistrationChangeRecordV3,
)
from controller.brokers.kraft.metadata_records.codec import MetadataRecord
from controller.brokers.kraft.metadata_records.config_record import ConfigRecordV0
from controller.brokers.kraft.metadata_records.feature_level_record import FeatureLevelRecordV0
from controller.brokers.kraft.metadata_records.partition_change_record import (
    PartitionChangeRecordV0,
    PartitionChangeRecordV1,
    PartitionChangeRecordV2,
)
from controller.brokers.kraft.metadata_records.partition_record import (
    PartitionRecordV0,
    PartitionRecordV1,
    PartitionRecordV2,
)
from controller.brokers.kraft.metadata_records.producer_ids_record import ProducerIdsRecordV0
from controller.brokers.kraft.metadata_records.register_broker_record import (
    BrokerEndpointV2,
    BrokerEndpointV3,
    BrokerEndpointV4,
    BrokerFeatureV2,
    BrokerFeatureV3,
    BrokerFeatureV4,
    RegisterBrokerRecordV2,
    RegisterBrokerRecordV3,
    RegisterBrokerRecordV4,
)
from controller.brokers.kraft.metadata_records.remove_topic_record import RemoveTopicRecordV0
from controller.brokers.kraft.metadata_records.topic_record import TopicRecordV0
from controller.brokers.kraft.metadata_records.unregister_broker_record import UnregisterBrokerRecordV0
from controller.machine.partition_changes import UNASSIGNED, upkeep_of
from controller.machine.state import Broker, Cluster, Topic
from events.catalog import Configs, Partition
from events.names import BrokerId, TopicId

METADATA_VERSION: Final = "metadata.version"
DIRECTORIES_SINCE: Final = 17
ELR_SINCE: Final = 23
CORDONED_SINCE: Final = 30
"""Levels of metadata.version from which on records have these fields: 3.7-IV2, 4.0-IV1, 4.3-IV0."""
TOPICS: Final = 2
"""Kafka's number of topics among what has configs."""
UNCHANGED_LEADER: Final = -2

BrokerEpochs = Mapping[BrokerId, int]
T = TypeVar("T")


def topic_records(before: Topic | None, after: Topic | None, level: int) -> list[MetadataRecord]:
    """What brokers are told when a topic is created, changed or deleted, at a level of metadata.version."""
    if before is not None and (after is None or before.topic_id != after.topic_id):
        removed = [RemoveTopicRecordV0(topic_id=before.topic_id)]
        return removed + topic_records(None, after, level)
    if after is None or before is after:
        return []
    records: list[MetadataRecord] = []
    if before is None:
        records.append(TopicRecordV0(name=after.name, topic_id=after.topic_id))
    records += config_records(TOPICS, after.name, before.configs if before is not None else (), after.configs)
    known = before.partitions if before is not None else ()
    for index, partition in enumerate(after.partitions):
        if index >= len(known):
            records.append(_partition_record(after.topic_id, index, partition, level))
        elif known[index] is not partition and known[index] != partition:
            records.append(_change_record(after.topic_id, index, known[index], partition, level))
    return records


def config_records(kind: int, name: str, before: Configs, after: Configs) -> Iterator[MetadataRecord]:
    """What brokers are told when the configs of something change; a null value removes one."""
    if before == after:
        return
    old, new = dict(before), dict(after)
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            yield ConfigRecordV0(resource_type=kind, resource_name=name, name=key, value=new.get(key))


def _partition_record(topic_id: TopicId, index: int, partition: Partition, level: int) -> MetadataRecord:
    upkeep = upkeep_of(partition)
    fields: dict[str, Any] = {
        "partition_id": index,
        "topic_id": topic_id,
        "replicas": partition.replicas,
        "isr": partition.isr,
        "removing_replicas": upkeep.removing,
        "adding_replicas": upkeep.adding,
        "leader": partition.leader,
        "leader_recovery_state": int(upkeep.recovering),
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
    }
    if level < DIRECTORIES_SINCE:
        return PartitionRecordV0(**fields)
    fields["directories"] = _directories(partition)
    if level < ELR_SINCE:
        return PartitionRecordV1(**fields)
    elr, last_known = upkeep.elr or None, upkeep.last_known_elr or None
    return PartitionRecordV2(**fields, eligible_leader_replicas=elr, last_known_elr=last_known)


def _directories(partition: Partition) -> tuple[bytes, ...]:
    return upkeep_of(partition).directories or (UNASSIGNED,) * len(partition.replicas)


def _change_record(topic_id: TopicId, index: int, before: Partition, after: Partition, level: int) -> MetadataRecord:
    steps = after.partition_epoch - before.partition_epoch, after.leader_epoch - before.leader_epoch
    assert steps in ((1, 0), (1, 1)), f"partition {index} goes from {before} to {after}, which no one record can tell"
    old, new = upkeep_of(before), upkeep_of(after)
    fields: dict[str, Any] = {
        "partition_id": index,
        "topic_id": topic_id,
        "isr": _changed(before.isr, after.isr),
        "leader": after.leader if steps[1] else UNCHANGED_LEADER,
        "replicas": _changed(before.replicas, after.replicas),
        "removing_replicas": _changed(old.removing, new.removing),
        "adding_replicas": _changed(old.adding, new.adding),
        "leader_recovery_state": int(new.recovering) if new.recovering != old.recovering else -1,
    }
    if level < DIRECTORIES_SINCE:
        return PartitionChangeRecordV0(**fields)
    fields["directories"] = _changed(_directories(before), _directories(after))
    if level < ELR_SINCE:
        return PartitionChangeRecordV1(**fields)
    elr, last_known = _changed(old.elr, new.elr), _changed(old.last_known_elr, new.last_known_elr)
    return PartitionChangeRecordV2(**fields, eligible_leader_replicas=elr, last_known_elr=last_known)


def _changed(before: T, after: T) -> T | None:
    return None if before == after else after


def cluster_records(before: Cluster, after: Cluster, epochs: BrokerEpochs, next_offset: int) -> list[MetadataRecord]:
    """What brokers are told when brokers, features, dynamic configs or producer ids change.

    `epochs` are those of the registered brokers, `next_offset` is the offset of the first of the records.
    """
    records: list[MetadataRecord] = []
    if before.features != after.features:
        records += _feature_records(dict(before.features), dict(after.features))
    if before.brokers is not after.brokers:
        for broker_id in sorted(before.brokers.keys() | after.brokers.keys()):
            old, new = before.brokers.get(broker_id), after.brokers.get(broker_id)
            if old is not new:
                level = after.feature(METADATA_VERSION)
                records += _broker_records(old, new, epochs.get(broker_id, -1), next_offset + len(records), level)
    if before.resource_configs != after.resource_configs:
        old_configs, new_configs = dict(before.resource_configs), dict(after.resource_configs)
        for kind, name in sorted(old_configs.keys() | new_configs.keys()):
            key = kind, name
            records += config_records(kind, name, old_configs.get(key, ()), new_configs.get(key, ()))
    return records


def _feature_records(before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[MetadataRecord]:
    for name in sorted(before.keys() | after.keys(), key=lambda name: (name != METADATA_VERSION, name)):
        if before.get(name, 0) != after.get(name, 0):
            yield FeatureLevelRecordV0(name=name, feature_level=after.get(name, 0))


def is_real(broker: Broker | None) -> bool:
    """Whether a broker is one that follows the metadata log."""
    return broker is not None and bool(broker.features)


def _broker_records(
    before: Broker | None, after: Broker | None, epoch: int, next_offset: int, level: int
) -> Iterator[MetadataRecord]:
    was, real = is_real(before), is_real(after)
    if before is not None and was and not real:
        yield UnregisterBrokerRecordV0(broker_id=before.broker_id, broker_epoch=epoch)
    if after is None or not real:
        return
    if before is None or not was or before.broker_epoch != after.broker_epoch:
        yield _registration(after, next_offset, level)
        return
    yield from _registration_change(before, after, epoch, level)


def _registration(broker: Broker, epoch: int, level: int) -> MetadataRecord:
    fields: dict[str, Any] = {
        "broker_id": broker.broker_id,
        "incarnation_id": bytes.fromhex(broker.incarnation),
        "broker_epoch": epoch,
        "rack": broker.rack,
        "fenced": broker.fenced,
        "in_controlled_shutdown": broker.leaving,
    }
    endpoints = [
        {"name": each.name, "host": each.host, "port": each.port, "security_protocol": protocol}
        for each, protocol in zip(broker.endpoints, broker.security_protocols, strict=True)
    ]
    features = [
        {"name": each.name, "min_supported_version": each.lowest, "max_supported_version": each.highest}
        for each in broker.features
    ]
    kind, endpoint, feature = _REGISTRATIONS[(level >= DIRECTORIES_SINCE) + (level >= CORDONED_SINCE)]
    if level >= DIRECTORIES_SINCE:
        fields["log_dirs"] = broker.log_dirs
    return kind(
        end_points=tuple(endpoint(**each) for each in endpoints),
        features=tuple(feature(**each) for each in features),
        **fields,
    )


_REGISTRATIONS: tuple[tuple[Any, Any, Any], ...] = (
    (RegisterBrokerRecordV2, BrokerEndpointV2, BrokerFeatureV2),
    (RegisterBrokerRecordV3, BrokerEndpointV3, BrokerFeatureV3),
    (RegisterBrokerRecordV4, BrokerEndpointV4, BrokerFeatureV4),
)


def _registration_change(before: Broker, after: Broker, epoch: int, level: int) -> Iterator[MetadataRecord]:
    fields: dict[str, Any] = {}
    if before.fenced != after.fenced:
        fields["fenced"] = 1 if after.fenced else -1
    if after.leaving and not before.leaving:
        fields["in_controlled_shutdown"] = 1
    if before.log_dirs != after.log_dirs and level >= DIRECTORIES_SINCE:
        fields["log_dirs"] = after.log_dirs
    if fields:
        kind: Any = (
            BrokerRegistrationChangeRecordV3
            if level >= CORDONED_SINCE
            else BrokerRegistrationChangeRecordV2
            if level >= DIRECTORIES_SINCE
            else BrokerRegistrationChangeRecordV1
        )
        yield kind(broker_id=after.broker_id, broker_epoch=epoch, **fields)


def producer_ids_record(broker_id: BrokerId, epoch: int, next_producer_id: int) -> MetadataRecord:
    """A broker got a block of producer ids, up to but not including `next_producer_id` (KIP-730)."""
    return ProducerIdsRecordV0(broker_id=broker_id, broker_epoch=epoch, next_producer_id=next_producer_id)
