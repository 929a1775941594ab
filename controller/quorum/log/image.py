"""Applies the records of the metadata log to an image, as Kafka's MetadataImage does, and writes snapshots (KIP-630).

The snapshots of a voter and the import of another controller's log use the image. It shares no code with the state
machine (`controller.machine`), so tests can compare the two. Unknown records are stored unchanged, in order.

A snapshot is made from the previous snapshot and the batches since then, never from the machine's state. So a thread
can make the snapshot while that state changes.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, Final, TypeVar, cast

from msgspec.structs import replace

from controller.kafka.messages import records as kinds
from controller.kafka.messages.records import MetadataRecord, PartitionRecord, RegisterBrokerRecord
from controller.quorum.log import batches
from controller.quorum.log.batches import KRAFT_VERSION, KRAFT_VOTERS, Pair, RecordBatch, control_type
from controller.quorum.log.metadata_codec import MalformedRecord, decode_record, encode_record, newest_version
from controller.quorum.log.record_kinds import (
    METADATA_VERSION_FEATURE,
    TOPICS,
    UNCHANGED_LEADER,
    broker_record_version,
    partition_record_version,
)

R = TypeVar("R", bound=MetadataRecord)

_KEYS: Final[Mapping[type[MetadataRecord], tuple[str, ...]]] = {
    kinds.FeatureLevelRecord: ("name",),
    RegisterBrokerRecord: ("broker_id",),
    kinds.RegisterControllerRecord: ("controller_id",),
    kinds.TopicRecord: ("topic_id",),
    kinds.ConfigRecord: ("resource_type", "resource_name", "name"),
    kinds.ClientQuotaRecord: ("entity", "key"),
    kinds.ProducerIdsRecord: (),
    kinds.AccessControlEntryRecord: ("id",),
    kinds.UserScramCredentialRecord: ("name", "mechanism"),
    kinds.DelegationTokenRecord: ("token_id",),
    kinds.ZkMigrationStateRecord: (),
}
"""The key fields by record type, in the order in which Kafka writes them. The newest record with a key wins."""
_REMOVED: Final[Mapping[type[MetadataRecord], type[MetadataRecord]]] = {
    kinds.UnregisterControllerRecord: kinds.RegisterControllerRecord,
    kinds.RemoveAccessControlEntryRecord: kinds.AccessControlEntryRecord,
    kinds.RemoveUserScramCredentialRecord: kinds.UserScramCredentialRecord,
    kinds.RemoveDelegationTokenRecord: kinds.DelegationTokenRecord,
}
"""The record type that a removal with the same key fields removes."""


class RecordMismatch(Exception):
    """A record refers to a topic, partition or broker epoch that the records before it do not have."""


class Transactions:
    """Holds back the records of a transaction until it ends (KIP-868). A transaction may span batches."""

    def __init__(self) -> None:
        self.begun_at: int | None = None
        """The offset of the open transaction; None if none is open. A restart must read from there."""
        self._held: list[tuple[int, MetadataRecord]] = []

    def complete(self, records: Iterable[tuple[int, MetadataRecord]]) -> list[tuple[int, MetadataRecord]]:
        """The records that now apply: those outside of transactions, and those of transactions that ended."""
        effective: list[tuple[int, MetadataRecord]] = []
        for offset, record in records:
            match record:
                case kinds.BeginTransactionRecord():
                    self.begun_at, self._held = offset, []
                case kinds.EndTransactionRecord():
                    effective += self._held
                    self.begun_at, self._held = None, []
                case kinds.AbortTransactionRecord():
                    self.abort()
                case _ if self.begun_at is not None:
                    self._held.append((offset, record))
                case _:
                    effective.append((offset, record))
        return effective

    def abort(self) -> None:
        self.begun_at, self._held = None, []


class MetadataImage:
    """The current metadata of a cluster: the newest record of each topic, partition, broker, config and so on."""

    def __init__(self) -> None:
        self._records: dict[type[MetadataRecord], dict[tuple[Any, ...], MetadataRecord]] = {kind: {} for kind in _KEYS}
        self.partitions: dict[bytes, dict[int, PartitionRecord]] = {}
        self._configs: dict[tuple[int, str], dict[str, kinds.ConfigRecord]] = {}
        """By resource and name."""
        self.unknown: list[kinds.UnknownRecord] = []
        self.quorum: dict[int, Pair] = {}
        """The newest control records about voters, by type."""
        self.timestamp_ms = 0
        self.transactions = Transactions()

    def all(self, kind: type[R]) -> Collection[R]:
        if issubclass(kind, kinds.ConfigRecord):
            return cast("Collection[R]", [each for configs in self._configs.values() for each in configs.values()])
        return cast("Collection[R]", self._records[kind].values())

    def configs_of(self, kind: int, name: str) -> tuple[tuple[str, str], ...]:
        """The configs of a resource, sorted by name."""
        configs = self._configs.get((kind, name), {})
        return tuple(sorted((each.name, each.value) for each in configs.values() if each.value is not None))

    def find(self, record: R) -> R | None:
        """The current record with the same key fields; None if there is none."""
        return cast("R | None", self._records[type(record)].get(_key(type(record), record)))

    def fold(self, batches: Iterable[RecordBatch], *, keep_mismatched: bool = False) -> None:
        """Apply batches in order. Raises RecordMismatch and MalformedRecord; with `keep_mismatched` such records are
        stored in `unknown` instead."""
        for batch in batches:
            if batch.is_control:
                for pair in batch.records:
                    if control_type(pair[0]) in (KRAFT_VERSION, KRAFT_VOTERS):
                        self.quorum[control_type(pair[0])] = pair
                continue
            self.timestamp_ms = batch.timestamp_ms
            for _, value in batch.records:
                try:
                    self.apply(decode_record(value))
                except (RecordMismatch, MalformedRecord):
                    if not keep_mismatched:
                        raise
                    self.unknown.append(kinds.UnknownRecord(value=value))

    def apply(self, record: MetadataRecord) -> None:
        """Apply one record. Records of a transaction are applied when the transaction ends (KIP-868)."""
        for _, each in self.transactions.complete(((0, record),)):
            self._apply(each)

    # --- reads

    @property
    def level(self) -> int:
        return dict(self.features).get(METADATA_VERSION_FEATURE, 0)

    @property
    def features(self) -> tuple[tuple[str, int], ...]:
        """The feature levels, sorted by name."""
        return tuple(sorted((each.name, each.feature_level) for each in self.all(kinds.FeatureLevelRecord)))

    def records(self) -> Iterator[MetadataRecord]:
        """The whole image as records, metadata.version first."""
        level = self.level
        yield from sorted(
            self.all(kinds.FeatureLevelRecord), key=lambda each: (each.name != METADATA_VERSION_FEATURE, each.name)
        )
        for kind in list(_KEYS)[1:]:
            for record in self.all(kind):
                if isinstance(record, RegisterBrokerRecord):
                    yield replace(record, version=broker_record_version(level))
                    continue
                if isinstance(record, kinds.ProducerIdsRecord):  # Kafka's `ProducerIdsImage` drops the broker
                    yield replace(record, broker_id=-1, broker_epoch=-1)
                    continue
                yield record
                if isinstance(record, kinds.TopicRecord):
                    for _, partition in sorted(self.partitions.get(record.topic_id, {}).items()):
                        yield _partition_at(level, partition)
        yield from self.unknown

    # --- changes

    def _apply(self, record: MetadataRecord) -> None:
        match record:
            case kinds.UnknownRecord():
                self.unknown.append(record)
            case kinds.TopicRecord():
                self._store(record)
                self.partitions[record.topic_id] = {}
            case kinds.RemoveTopicRecord():
                self._remove_topic(record)
            case PartitionRecord():
                newest = replace(record, version=newest_version(PartitionRecord))
                self._of_topic(record)[record.partition_id] = newest
            case kinds.PartitionChangeRecord():
                self._change_partition(record)
            case RegisterBrokerRecord():
                self._store(replace(record, version=newest_version(RegisterBrokerRecord)))
            case kinds.BrokerRegistrationChangeRecord():
                self._change_broker(record)
            case kinds.FenceBrokerRecord() | kinds.UnfenceBrokerRecord():
                before = self._broker(record, record.id, record.epoch)
                self._store(replace(before, fenced=isinstance(record, kinds.FenceBrokerRecord)))
            case kinds.UnregisterBrokerRecord():
                self._broker(record, record.broker_id, record.broker_epoch)
                del self._records[RegisterBrokerRecord][record.broker_id,]
            case kinds.ConfigRecord():
                self._configure(record)
            case kinds.ClearElrRecord():
                self._clear_elr(record)
            case _:
                self._store_or_remove(record)

    def _store(self, record: MetadataRecord) -> None:
        kind = type(record)
        self._records[kind][_key(kind, record)] = record

    def _store_or_remove(self, record: MetadataRecord) -> None:
        """Store or remove a record. Other records, such as NoOpRecord, change nothing."""
        kind = _REMOVED.get(type(record), type(record))
        match record:
            case kinds.FeatureLevelRecord(feature_level=0) | kinds.ClientQuotaRecord(remove=True):
                self._records[kind].pop(_key(kind, record), None)
            case _ if kind is not type(record):
                self._records[kind].pop(_key(kind, record), None)
            case _ if kind in _KEYS:
                self._store(record)

    def _remove_topic(self, record: kinds.RemoveTopicRecord) -> None:
        topic = self._records[kinds.TopicRecord].pop((record.topic_id,), None)
        if not isinstance(topic, kinds.TopicRecord):
            raise RecordMismatch(f"{record} refers to an unknown topic")
        del self.partitions[record.topic_id]
        self._configs.pop((TOPICS, topic.name), None)

    def _configure(self, record: kinds.ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        configs = self._configs.setdefault(resource, {})
        configs.pop(record.name, None)
        if record.value is not None:
            configs[record.name] = record
        if not configs:
            del self._configs[resource]

    def _change_partition(self, record: kinds.PartitionChangeRecord) -> None:
        partitions = self._of_topic(record)
        before = partitions.get(record.partition_id)
        if before is None:
            raise RecordMismatch(f"{record} refers to an unknown partition")
        partitions[record.partition_id] = _merged(before, record)

    def _of_topic(self, record: PartitionRecord | kinds.PartitionChangeRecord) -> dict[int, PartitionRecord]:
        partitions = self.partitions.get(record.topic_id)
        if partitions is None:
            raise RecordMismatch(f"{record} refers to an unknown topic")
        return partitions

    def _change_broker(self, record: kinds.BrokerRegistrationChangeRecord) -> None:
        before = self._broker(record, record.broker_id, record.broker_epoch)
        changes: dict[str, Any] = {}
        if record.fenced:
            changes["fenced"] = record.fenced > 0
        if record.in_controlled_shutdown:
            changes["in_controlled_shutdown"] = True
        if record.log_dirs:
            changes["log_dirs"] = record.log_dirs
        if record.cordoned_log_dirs is not None:
            changes["cordoned_log_dirs"] = record.cordoned_log_dirs
        self._store(replace(before, **changes))

    def _broker(self, record: MetadataRecord, broker_id: int, epoch: int) -> RegisterBrokerRecord:
        known = self._records[RegisterBrokerRecord].get((broker_id,))
        if not isinstance(known, RegisterBrokerRecord) or known.broker_epoch != epoch:
            raise RecordMismatch(f"{record} refers to an unregistered broker or an old epoch")
        return known

    def _clear_elr(self, record: kinds.ClearElrRecord) -> None:
        for topic in self.all(kinds.TopicRecord):
            if record.topic_name in ("", topic.name):
                partitions = self.partitions[topic.topic_id]
                for index, partition in partitions.items():
                    partitions[index] = replace(partition, eligible_leader_replicas=None, last_known_elr=None)


def _key(kind: type[MetadataRecord], record: MetadataRecord) -> tuple[Any, ...]:
    if isinstance(record, kinds.ClientQuotaRecord):  # the order of an entity's parts does not matter
        parts = tuple(sorted(((each.entity_type, each.entity_name) for each in record.entity), key=repr))
        return parts, record.key
    return tuple(getattr(record, name) for name in _KEYS[kind])


_CHANGED_FIELDS: Final = (
    "replicas", "isr", "removing_replicas", "adding_replicas", "directories", "eligible_leader_replicas",
    "last_known_elr",
)  # fmt: skip
"""The fields that a PartitionChangeRecord replaces in a PartitionRecord; None in the change means unchanged. `_merged`
applies such a record, and `partition_change` computes it."""


def _merged(before: PartitionRecord, change: kinds.PartitionChangeRecord) -> PartitionRecord:
    """A partition after a change, as in `PartitionRegistration.merge`: epochs are implicit."""
    values = {name: getattr(change, name) for name in _CHANGED_FIELDS}
    changes = {name: value for name, value in values.items() if value is not None}
    if change.leader != UNCHANGED_LEADER:
        changes |= {"leader": change.leader, "leader_epoch": before.leader_epoch + 1}
    if change.leader_recovery_state >= 0:
        changes["leader_recovery_state"] = change.leader_recovery_state
    return replace(before, partition_epoch=before.partition_epoch + 1, **changes)


def partition_change(before: PartitionRecord, after: PartitionRecord) -> kinds.PartitionChangeRecord:
    """The record that changes a partition, the inverse of `_merged`. The epochs of `after` are one step ahead."""
    values = {name: getattr(after, name) for name in _CHANGED_FIELDS}
    changes = {name: value or () for name, value in values.items() if value != getattr(before, name)}
    state = after.leader_recovery_state
    return kinds.PartitionChangeRecord(
        version=after.version,
        partition_id=after.partition_id,
        topic_id=after.topic_id,
        leader=after.leader if after.leader_epoch != before.leader_epoch else UNCHANGED_LEADER,
        leader_recovery_state=state if state != before.leader_recovery_state else -1,
        **changes,
    )


def _partition_at(level: int, record: PartitionRecord) -> PartitionRecord:
    """A partition as written at a metadata.version level; eligible leaders only if there are any."""
    elr, last_known = record.eligible_leader_replicas or None, record.last_known_elr or None
    version = partition_record_version(level)
    return replace(record, version=version, eligible_leader_replicas=elr, last_known_elr=last_known)


RECORDS_PER_BATCH = 500  # brokers read whole batches: a few hundred kilobytes


def snapshot_batches(image: MetadataImage, epoch: int) -> Iterator[bytes]:
    """The batches of a snapshot as Kafka writes it. Offsets start at 0; the first batch holds the voters."""
    at = 0
    head = [batches.snapshot_header(image.timestamp_ms), *(pair for _, pair in sorted(image.quorum.items()))]
    remaining: Iterator[Pair] = ((None, encode_record(record)) for record in image.records())
    body = iter(lambda: list(islice(remaining, RECORDS_PER_BATCH)), [])
    for pairs in chain([head], body, [[batches.snapshot_footer()]]):
        is_control = pairs[0][0] is not None
        yield batches.encode_batch(at, epoch, image.timestamp_ms, pairs, is_control=is_control)
        at += len(pairs)
