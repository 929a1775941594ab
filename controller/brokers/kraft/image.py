"""What the metadata log says altogether: its records folded, as every broker folds them.

It stands apart from the machine and shares no rule with it: a snapshot is made of the log alone, and tests compare what
it says with the machine's state. Records of any release are taken; those that this one does not know are kept as they
are, in their order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from controller.brokers.kraft.batches import KRAFT_VERSION, KRAFT_VOTERS, Batch, Pair, control_type
from controller.brokers.kraft.metadata_records import table
from controller.brokers.kraft.metadata_records.codec import MetadataRecord, UnknownRecord, decode_record
from controller.brokers.kraft.metadata_records.partition_record import PartitionRecordV2
from controller.brokers.kraft.metadata_records.register_broker_record import RegisterBrokerRecordV4
from controller.brokers.kraft.projection import CORDONED_SINCE, DIRECTORIES_SINCE, ELR_SINCE, METADATA_VERSION

_UNCHANGED_LEADER = -2
_KINDS: dict[type, str] = {kind: kind.__name__.rpartition("V")[0] for kind in table.RECORDS.values()}
_FOLDED_AS_WRITTEN: dict[str, tuple[str, ...]] = {
    "FeatureLevelRecord": ("name",),
    "ConfigRecord": ("resource_type", "resource_name", "name"),
    "ProducerIdsRecord": (),
    "AccessControlEntryRecord": ("id",),
    "UserScramCredentialRecord": ("name", "mechanism"),
    "ClientQuotaRecord": ("entity", "key"),
    "DelegationTokenRecord": ("token_id",),
    "RegisterControllerRecord": ("controller_id",),
    "ZkMigrationStateRecord": (),
}
"""Records of which the newest with the same values in these fields counts."""
_WRITTEN: tuple[str, ...] = (
    "FeatureLevelRecord",
    "RegisterBrokerRecord",
    "RegisterControllerRecord",
    "TopicRecord",
    "ConfigRecord",
    "ClientQuotaRecord",
    "ProducerIdsRecord",
    "AccessControlEntryRecord",
    "UserScramCredentialRecord",
    "DelegationTokenRecord",
    "ZkMigrationStateRecord",
)
"""The order in which Kafka writes an image."""


class CannotFold(Exception):
    """A record that does not fit those before it; says which."""


class MetadataImage:
    """The metadata of a cluster, by the records that tell it."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[tuple[Any, ...], MetadataRecord]] = {kind: {} for kind in _WRITTEN}
        self.partitions: dict[bytes, dict[int, PartitionRecordV2]] = {}
        self.unknown: list[UnknownRecord] = []
        self.quorum: dict[int, Pair] = {}
        """The newest control records about the voters, by type."""
        self.timestamp_ms = 0
        self._transaction: list[MetadataRecord] | None = None

    def fold(self, batches: Iterable[Batch]) -> None:
        """Take batches, in order. Raises CannotFold and MalformedRecord."""
        for batch in batches:
            if batch.is_control:
                for pair in batch.records:
                    if control_type(pair[0]) in (KRAFT_VERSION, KRAFT_VOTERS):
                        self.quorum[control_type(pair[0])] = pair
                continue
            self.timestamp_ms = batch.timestamp_ms
            for _, value in batch.records:
                self.apply(decode_record(value))

    def apply(self, record: MetadataRecord) -> None:
        """Take one record; those of a transaction count when it ends (KIP-868)."""
        kind = _KINDS.get(type(record), "")
        match kind:
            case "BeginTransactionRecord":
                self._transaction = []
            case "AbortTransactionRecord":
                self._transaction = None
            case "EndTransactionRecord":
                whole, self._transaction = self._transaction or [], None
                for each in whole:
                    self.apply(each)
            case _ if self._transaction is not None:
                self._transaction.append(record)
            case _:
                self._apply(kind, record)

    def _apply(self, kind: str, record: MetadataRecord) -> None:
        if not kind:
            self.unknown.append(record)
        elif kind in _FOLDED_AS_WRITTEN:
            key = tuple(getattr(record, name) for name in _FOLDED_AS_WRITTEN[kind])
            if _removes(kind, record):
                self.kept[kind].pop(key, None)
            else:
                self.kept[kind][key] = record
        else:
            fold = _FOLDS.get(kind)
            if fold is not None:
                fold(self, record)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun and not ended: its records do not count yet."""
        return self._transaction is not None

    # --- what is written

    @property
    def level(self) -> int:
        """The level of metadata.version."""
        record: Any = self.kept["FeatureLevelRecord"].get((METADATA_VERSION,))
        return 0 if record is None else int(record.feature_level)

    def records(self) -> Iterator[MetadataRecord]:
        """The whole as records, metadata.version first."""
        level = self.level
        for kind in _WRITTEN:
            records = self.kept[kind].values()
            if kind == "FeatureLevelRecord":
                records = sorted(records, key=lambda each: (each.name != METADATA_VERSION, each.name))  # type: ignore[assignment]
            for record in records:
                if kind == "RegisterBrokerRecord":
                    yield _broker_at(level, record)
                    continue
                yield record
                if kind == "TopicRecord":
                    for _, partition in sorted(self.partitions.get(record.topic_id, {}).items()):
                        yield _partition_at(level, partition)
        yield from self.unknown

    # --- folding

    def _on_topic(self, record: Any) -> None:
        self.kept["TopicRecord"][record.topic_id,] = record
        self.partitions[record.topic_id] = {}

    def _on_topic_removed(self, record: Any) -> None:
        topic: Any = self.kept["TopicRecord"].pop((record.topic_id,), None)
        if topic is None:
            raise CannotFold(f"{record} is of no topic")
        del self.partitions[record.topic_id]
        configs = self.kept["ConfigRecord"]
        for key in [key for key in configs if key[:2] == (2, topic.name)]:
            del configs[key]

    def _on_partition(self, record: Any) -> None:
        self._of_topic(record)[record.partition_id] = _widened(PartitionRecordV2, record)

    def _on_partition_change(self, record: Any) -> None:
        partitions = self._of_topic(record)
        before = partitions.get(record.partition_id)
        if before is None:
            raise CannotFold(f"{record} is of no partition")
        partitions[record.partition_id] = _merged(before, record)

    def _of_topic(self, record: Any) -> dict[int, PartitionRecordV2]:
        partitions = self.partitions.get(record.topic_id)
        if partitions is None:
            raise CannotFold(f"{record} is of no topic")
        return partitions

    def _on_broker(self, record: Any) -> None:
        self.kept["RegisterBrokerRecord"][record.broker_id,] = _widened(RegisterBrokerRecordV4, record)

    def _on_broker_change(self, record: Any) -> None:
        before = self._broker(record, record.broker_id, record.broker_epoch)
        changes: dict[str, Any] = {}
        if record.fenced:
            changes["fenced"] = record.fenced > 0
        if getattr(record, "in_controlled_shutdown", 0):
            changes["in_controlled_shutdown"] = True
        if getattr(record, "log_dirs", ()):
            changes["log_dirs"] = record.log_dirs
        if getattr(record, "cordoned_log_dirs", None) is not None:
            changes["cordoned_log_dirs"] = record.cordoned_log_dirs
        self.kept["RegisterBrokerRecord"][record.broker_id,] = dataclasses.replace(before, **changes)

    def _on_fenced(self, record: Any) -> None:
        before = self._broker(record, record.id, record.epoch)
        fenced = _KINDS[type(record)] == "FenceBrokerRecord"
        self.kept["RegisterBrokerRecord"][record.id,] = dataclasses.replace(before, fenced=fenced)

    def _on_broker_gone(self, record: Any) -> None:
        self._broker(record, record.broker_id, record.broker_epoch)
        del self.kept["RegisterBrokerRecord"][record.broker_id,]

    def _broker(self, record: Any, broker_id: int, epoch: int) -> Any:
        known: Any = self.kept["RegisterBrokerRecord"].get((broker_id,))
        if known is None or known.broker_epoch != epoch:
            raise CannotFold(f"{record} is of no registered broker")
        return known

    def _on_elr_cleared(self, record: Any) -> None:
        names = {topic.topic_id: topic.name for topic in self.kept["TopicRecord"].values()}
        for topic_id, partitions in self.partitions.items():
            if record.topic_name in ("", names[topic_id]):
                for index, partition in partitions.items():
                    cleared = dataclasses.replace(partition, eligible_leader_replicas=None, last_known_elr=None)
                    partitions[index] = cleared

    def _on_acl_gone(self, record: Any) -> None:
        self.kept["AccessControlEntryRecord"].pop((record.id,), None)

    def _on_scram_gone(self, record: Any) -> None:
        self.kept["UserScramCredentialRecord"].pop((record.name, record.mechanism), None)

    def _on_token_gone(self, record: Any) -> None:
        self.kept["DelegationTokenRecord"].pop((record.token_id,), None)


_FOLDS: dict[str, Callable[[MetadataImage, Any], None]] = {
    "TopicRecord": MetadataImage._on_topic,
    "RemoveTopicRecord": MetadataImage._on_topic_removed,
    "PartitionRecord": MetadataImage._on_partition,
    "PartitionChangeRecord": MetadataImage._on_partition_change,
    "RegisterBrokerRecord": MetadataImage._on_broker,
    "BrokerRegistrationChangeRecord": MetadataImage._on_broker_change,
    "FenceBrokerRecord": MetadataImage._on_fenced,
    "UnfenceBrokerRecord": MetadataImage._on_fenced,
    "UnregisterBrokerRecord": MetadataImage._on_broker_gone,
    "ClearElrRecord": MetadataImage._on_elr_cleared,
    "RemoveAccessControlEntryRecord": MetadataImage._on_acl_gone,
    "RemoveUserScramCredentialRecord": MetadataImage._on_scram_gone,
    "RemoveDelegationTokenRecord": MetadataImage._on_token_gone,
}
"""What is left (NoOpRecord) changes nothing."""


def _removes(kind: str, record: Any) -> bool:
    if kind == "ConfigRecord":
        return record.value is None
    if kind == "FeatureLevelRecord":
        return bool(record.feature_level == 0)
    return kind == "ClientQuotaRecord" and bool(record.remove)


def _merged(before: PartitionRecordV2, change: Any) -> PartitionRecordV2:
    """A partition after a change, as `PartitionRegistration.merge`: epochs are implicit."""
    fields = {
        "replicas": change.replicas,
        "isr": change.isr,
        "removing_replicas": change.removing_replicas,
        "adding_replicas": change.adding_replicas,
        "directories": getattr(change, "directories", None),
        "eligible_leader_replicas": getattr(change, "eligible_leader_replicas", None),
        "last_known_elr": getattr(change, "last_known_elr", None),
    }
    changes: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    if change.leader != _UNCHANGED_LEADER:
        changes |= {"leader": change.leader, "leader_epoch": before.leader_epoch + 1}
    if change.leader_recovery_state >= 0:
        changes["leader_recovery_state"] = change.leader_recovery_state
    return dataclasses.replace(before, partition_epoch=before.partition_epoch + 1, **changes)


def _widened(kind: Any, record: Any) -> Any:
    """The same record in its newest version."""
    if type(record) is kind:
        return record
    fields = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    if kind is RegisterBrokerRecordV4:
        fields["end_points"] = tuple(_renewed(each, "BrokerEndpointV4") for each in record.end_points)
        fields["features"] = tuple(_renewed(each, "BrokerFeatureV4") for each in record.features)
    return kind(**fields)


def _renewed(nested: Any, name: str) -> Any:
    from controller.brokers.kraft.metadata_records import register_broker_record

    kind = getattr(register_broker_record, name)
    return kind(**{field.name: getattr(nested, field.name) for field in dataclasses.fields(nested)})


def _broker_at(level: int, record: Any) -> MetadataRecord:
    version = 4 if level >= CORDONED_SINCE else 3 if level >= DIRECTORIES_SINCE else 2
    return _narrowed(record, version)


def _partition_at(level: int, record: PartitionRecordV2) -> MetadataRecord:
    version = 2 if level >= ELR_SINCE else 1 if level >= DIRECTORIES_SINCE else 0
    elr, last_known = record.eligible_leader_replicas or None, record.last_known_elr or None
    return _narrowed(dataclasses.replace(record, eligible_leader_replicas=elr, last_known_elr=last_known), version)


def _narrowed(record: Any, version: int) -> MetadataRecord:
    """The same record in an older version."""
    kind: Any = table.RECORDS[type(record).__api_key__, version]
    if kind is type(record):
        return record
    fields = {field.name: getattr(record, field.name) for field in dataclasses.fields(kind)}
    if "end_points" in fields:
        fields["end_points"] = tuple(_renewed(each, f"BrokerEndpointV{version}") for each in record.end_points)
        fields["features"] = tuple(_renewed(each, f"BrokerFeatureV{version}") for each in record.features)
    return kind(**fields)
