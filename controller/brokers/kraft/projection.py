"""Maps values of the state machine (topics, brokers) to records of Kafka's metadata log, and records back to values.

Pure: the same event on the same state gives the same records, so the metadata log is a projection of the event log.

Method: brokers get the difference between the state before and after an event, not the event. So an event of any type
that changes a topic or the cluster is projected, and one that changes nothing for brokers gives no record. Partition
epochs are implicit in `PartitionChangeRecord`: each record raises the partition epoch by one, and the leader epoch if
it has a leader. The state machine must raise both the same way; this is asserted. `projector` calls this module for
commits, `importing` for the reverse direction.

Broker epochs are the offsets of registrations in the metadata log, as in Kafka, not the machine's own count. An ACL id
is assigned when the ACL is created, and its removal names the id. The `projector` stores both.
"""

from collections.abc import Generator, Iterator, Mapping

from controller.kafka.messages import records as kinds
from controller.kafka.messages.cluster import Feature, Listener
from controller.kafka.messages.records import MetadataRecord
from controller.machine.access.bucket_map import differing as differing_keys
from controller.machine.configs.topic_configs import without_labels
from controller.machine.partitions.blocks import differing
from controller.machine.partitions.placement import UNASSIGNED, replica_metadata_of
from controller.machine.state import Broker, Cluster, Topic
from controller.quorum.log.image import partition_change
from controller.quorum.log.record_kinds import (
    CONFIGS,
    CORDONED_SINCE,
    DIRECTORIES_SINCE,
    METADATA_VERSION_FEATURE,
    TOPICS,
    broker_record_version,
    key_records,
    partition_record_version,
)
from events.catalog import BrokerDetails, Endpoint, Partition, ReplicaMetadata, SupportedFeature
from events.names import BrokerId, TopicId


def topic_records(
    before: Topic | None, after: Topic | None, level: int, index: int | None = None
) -> list[MetadataRecord]:
    """The records of a created, changed or deleted topic at a metadata.version level. For an event about one partition,
    `index` is its index, and the other partitions are not compared."""
    if before is not None and (after is None or before.topic_id != after.topic_id):
        removed: list[MetadataRecord] = [kinds.RemoveTopicRecord(topic_id=before.topic_id)]
        return removed + topic_records(None, after, level)
    if after is None or before is after:
        return []
    records: list[MetadataRecord] = []
    if before is None:
        records.append(kinds.TopicRecord(name=after.name, topic_id=after.topic_id))
    configs = [() if one is None else without_labels(one.configs) for one in (before, after)]
    records += key_records(CONFIGS, (TOPICS, after.name), *configs)
    known = before.partitions if before is not None else ()
    changes = differing(known, after.partitions) if index is None else ((index, after.partitions[index]),)
    for number, partition in changes:
        if number >= len(known):
            records.append(partition_record(after.topic_id, number, partition, level))
        elif known[number] != partition:
            is_one = is_one_record(known[number], partition)
            assert is_one, f"partition {number} goes from {known[number]} to {partition}, more than one record"
            old, new = (partition_record(after.topic_id, number, one, level) for one in (known[number], partition))
            records.append(partition_change(old, new))
    return records


def partition_record(topic_id: TopicId, index: int, partition: Partition, level: int) -> kinds.PartitionRecord:
    """The whole state of a partition, in the record version of a metadata.version."""
    known = replica_metadata_of(partition)
    return kinds.PartitionRecord(
        version=partition_record_version(level),
        partition_id=index,
        topic_id=topic_id,
        replicas=partition.replicas,
        isr=partition.isr,
        removing_replicas=known.removing,
        adding_replicas=known.adding,
        leader=partition.leader,
        leader_recovery_state=int(known.recovering),
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=known.directories or (UNASSIGNED,) * len(partition.replicas),
        eligible_leader_replicas=known.elr or None,
        last_known_elr=known.last_known_elr or None,
    )


def partition_of(record: kinds.PartitionRecord) -> Partition:
    """The partition of a record. Fields that the record's version lacks are empty."""
    return Partition(
        _ids(record.replicas),
        _ids(record.isr),
        BrokerId(record.leader),
        record.leader_epoch,
        record.partition_epoch,
        ReplicaMetadata(
            record.directories,
            _ids(record.adding_replicas),
            _ids(record.removing_replicas),
            _ids(record.eligible_leader_replicas),
            _ids(record.last_known_elr),
            bool(record.leader_recovery_state),
        ),
    )


def partitions_of(
    records: Mapping[int, kinds.PartitionRecord], first: int = 0
) -> Generator[None, None, tuple[Partition, ...] | None]:
    """Returns the partitions from index `first` on; None if there is a gap. Yields after each, so that callers can
    pause."""
    indexes = sorted(index for index in records if index >= first)
    if indexes != list(range(first, first + len(indexes))):
        return None
    found: list[Partition] = []
    for index in indexes:
        found.append(partition_of(records[index]))
        yield
    return tuple(found)


def _ids(ids: tuple[int, ...] | None) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, ids or ()))


def is_one_record(before: Partition, after: Partition) -> bool:
    """True if one PartitionChangeRecord can express the change: the partition epoch rises by one, and the leader epoch
    by one or, if the leader is the same, not at all."""
    step = after.leader_epoch - before.leader_epoch
    is_led_on = step == 0 and before.leader == after.leader
    return after.partition_epoch - before.partition_epoch == 1 and (step == 1 or is_led_on)


# --- brokers


def is_kraft_broker(broker: Broker | None) -> bool:
    """True for a broker that follows the metadata log."""
    return broker is not None and bool(broker.features)


def broker_records(
    before: Cluster, after: Cluster, epochs: Mapping[BrokerId, int], next_offset: int
) -> list[MetadataRecord]:
    """The records of changed brokers. `epochs` holds the wire epochs of registered brokers, `next_offset` is the offset
    of the first record."""
    records: list[MetadataRecord] = []
    level = after.feature(METADATA_VERSION_FEATURE)
    for broker_id in sorted(differing_keys(before.brokers, after.brokers)):
        old, new, epoch = before.brokers.get(broker_id), after.brokers.get(broker_id), epochs.get(broker_id, -1)
        was_kraft, is_kraft = is_kraft_broker(old), is_kraft_broker(new)
        if was_kraft and not is_kraft:
            records.append(kinds.UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch))
        if new is None or not is_kraft:
            continue
        if old is None or not was_kraft or old.broker_epoch != new.broker_epoch:
            records.append(registration_record(new, next_offset + len(records), level))
        else:
            records += _registration_change(old, new, epoch, level)
    return records


def registration_record(broker: Broker, epoch: int, level: int) -> kinds.RegisterBrokerRecord:
    """The registration of a broker, in the record version of a metadata.version."""
    endpoints = zip(broker.endpoints, broker.security_protocols, strict=True)
    return kinds.RegisterBrokerRecord(
        version=broker_record_version(level),
        broker_id=broker.broker_id,
        incarnation_id=bytes.fromhex(broker.incarnation),
        broker_epoch=epoch,
        end_points=tuple(
            Listener(name=each.name, host=each.host, port=each.port, security_protocol=protocol)
            for each, protocol in endpoints
        ),
        features=tuple(
            Feature(name=each.name, min_supported_version=each.lowest, max_supported_version=each.highest)
            for each in broker.features
        ),
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.leaving,
        log_dirs=broker.log_dirs,
        cordoned_log_dirs=broker.cordoned if broker.cordoned and level >= CORDONED_SINCE else None,
    )


def endpoints_of(listeners: tuple[Listener, ...]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(each.name, each.host, each.port) for each in listeners)


def details_of(
    listeners: tuple[Listener, ...], features: tuple[Feature, ...], log_dirs: tuple[bytes, ...], *, clean: bool = True
) -> BrokerDetails:
    supported = (
        SupportedFeature(each.name, each.min_supported_version, each.max_supported_version) for each in features
    )
    return BrokerDetails(tuple(each.security_protocol for each in listeners), tuple(supported), log_dirs, clean)


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
