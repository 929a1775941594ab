"""Imports records that concern the whole cluster: brokers, features, configs, SCRAM credentials, quotas and ACLs; and
collects the events of an import (see `importing`).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from controller.brokers.kraft.projection import details_of, endpoints_of, is_kraft_broker, registration_record
from controller.brokers.kraft.projector import ProtocolIdChanges, ProtocolIds
from controller.kafka.codec.primitives import read_uvarint
from controller.kafka.codec.reader import READ_FAILURES
from controller.kafka.messages import records as kinds
from controller.kafka.messages.records import MetadataRecord, RegisterBrokerRecord
from controller.machine.access.requests import MECHANISMS
from controller.machine.partitions.requests import PRODUCER_IDS_PER_BLOCK
from controller.machine.state import Cluster
from controller.quorum.features import unsupported_feature
from controller.quorum.log.image import MetadataImage
from controller.quorum.log.record_kinds import (
    ACLS,
    CONFIGS,
    CORDONED_SINCE,
    CREDENTIALS,
    FEATURES,
    KIND_OF,
    QUOTAS,
    TOPICS,
    Author,
    Kind,
    by_name,
)
from events import catalog
from events.access import Acl, AclsCreated, AclsDeleted
from events.errors import shortened
from events.names import BrokerId

STEPS_PER_SLICE: Final = 200
"""Records applied and objects compared between two slices: some milliseconds."""
_ACLS_PER_EVENT: Final = 1000
_CHARACTERS_MAX: Final = 300
_IGNORED: Final = (
    kinds.NoOpRecord,
    kinds.RegisterControllerRecord,
    kinds.UnregisterControllerRecord,
    kinds.DelegationTokenRecord,
    kinds.RemoveDelegationTokenRecord,
)
"""Record types unknown to the state machine: only the metadata log and its snapshots have these records."""
_MIGRATING: Final = (1, 2)
"""States of an unfinished migration from ZooKeeper (KIP-866)."""


def _is_ignored(record: MetadataRecord) -> bool:
    """True if no decision depends on the record."""
    if isinstance(record, kinds.ZkMigrationStateRecord):
        return record.zk_migration_state not in _MIGRATING
    return isinstance(record, _IGNORED)


def _record_summary(record: MetadataRecord) -> str:
    if not isinstance(record, kinds.UnknownRecord):
        return type(record).__name__
    try:
        _, at = read_uvarint(record.value, 0)
        key, at = read_uvarint(record.value, at)
        version, _ = read_uvarint(record.value, at)
    except READ_FAILURES:
        return "an invalid record"
    return f"a record of type {key}, version {version}"


class Imported(msgspec.Struct, frozen=True):
    """The events of an import, or a slice of it."""

    events: tuple[catalog.Event, ...]
    ids: ProtocolIdChanges = ProtocolIdChanges()
    unsupported: str | None = None
    """The first record or feature level that this release cannot import; the events cover everything else."""


class EventCollector:
    """Collects the events of an import, the changed broker epochs and ACL ids, and the first unsupported record."""

    def __init__(self, author: Author, image: MetadataImage | None = None) -> None:
        self.author = author
        self.is_snapshot = image is not None
        self.image = MetadataImage() if image is None else image
        """The image of the imported snapshot; for a batch, only the metadata that its records touch."""
        self._events: list[catalog.Event] = []
        self.broker_epochs: dict[BrokerId, int | None] = {}
        self.acls: dict[bytes, Acl | None] = {}
        self._unsupported: str | None = None

    def add(self, *events: catalog.Event) -> None:
        self._events += events

    def add_unsupported(self, why: str) -> None:
        self._unsupported = self._unsupported or shortened(why, _CHARACTERS_MAX)

    def add_unsupported_record(self, record: MetadataRecord, where: str) -> None:
        if not _is_ignored(record):
            self.add_unsupported(f"{_record_summary(record)} {where}")

    def slices(self, steps: Iterable[None]) -> Iterator[Imported]:
        """Run the steps and return their events in slices; at least one."""
        for number, _ in enumerate(steps, 1):
            if number % STEPS_PER_SLICE == 0:
                yield self.flush()
        yield self.flush()

    def flush(self) -> Imported:
        imported = Imported(tuple(self._events), ProtocolIdChanges(self.broker_epochs, self.acls), self._unsupported)
        self._events, self.broker_epochs, self.acls, self._unsupported = [], {}, {}, None
        return imported


class ClusterImport:
    """Imports everything except topics. Call `apply` with each record of a batch, or `compare_all`; then `finish`."""

    def __init__(self, before: Cluster, ids: ProtocolIds, collector: EventCollector) -> None:
        self._before, self._ids, self._collector, self._image = before, ids, collector, collector.image
        self._kinds = [FEATURES, CONFIGS, CREDENTIALS, QUOTAS, ACLS]
        self._values: dict[Kind, dict[Any, dict[str, Any]]] = {each: {} for each in self._kinds}
        """The values by key and name, for the keys that the import touches."""
        self._brokers: set[int] = set()
        self._last_epoch = before.last_broker_epoch
        self._epochs = {each.broker_id: each.broker_epoch for each in before.brokers.values() if is_kraft_broker(each)}
        """The state machine's epoch of each broker, which counts registrations."""
        self._removed_acls: dict[Acl, None] = {}
        self._new_acls: dict[Acl, None] = {}
        self._has_acl_twice = False

    def apply(self, record: MetadataRecord) -> bool:
        """Apply a record if it concerns the cluster, and return whether it does. Raises RecordMismatch."""
        match record:
            case RegisterBrokerRecord() | kinds.BrokerRegistrationChangeRecord() | kinds.UnregisterBrokerRecord():
                self._apply_broker(record, record.broker_id)
            case kinds.FenceBrokerRecord() | kinds.UnfenceBrokerRecord():
                self._apply_broker(record, record.id)
            case kinds.ProducerIdsRecord():
                self._report_producer_ids(record)
            case _ if type(record) in KIND_OF:
                self._apply_value(record)
            case _:
                return False
        return True

    def compare_all(self) -> Iterator[None]:
        """Import the differences of features, brokers and producer ids. Yields after each step."""
        before, image = self._before, self._image
        yield from self._compare(self._kinds.pop(0))
        registered = sorted(image.all(RegisterBrokerRecord), key=lambda each: each.broker_epoch)
        ids = [BrokerId(each.broker_id) for each in registered]
        for broker_id in (*(one for one in sorted(before.brokers) if one not in ids), *ids):
            after = image.find(RegisterBrokerRecord(broker_id=broker_id))
            self._report_broker(broker_id, self._registration(broker_id), after)
            yield
        for block in image.all(kinds.ProducerIdsRecord):
            if block.next_producer_id != before.next_producer_id:
                self._report_producer_ids(block)

    def finish(self) -> Iterator[None]:
        """Import changed values spread over several records, such as configs, and ACLs. Yields after each step."""
        for kind in self._kinds:
            yield from self._compare(kind)
        yield from self._report_acls()

    # --- values with a key

    def _held(self, kind: Kind) -> Mapping[Any, Any]:
        return self._ids.acls if kind is ACLS else kind.values(self._before)

    def _apply_value(self, record: Any) -> None:
        if getattr(record, "mechanism", 1) not in MECHANISMS:
            why = f"a SCRAM credential of user {record.name!r} with mechanism {record.mechanism}"
            self._collector.add_unsupported(why)
            return
        kind = KIND_OF[type(record)]
        key, name, value = kind.decode(record)
        touched = self._values[kind]
        values = touched[key] if key in touched else touched.setdefault(key, dict(by_name(self._held(kind).get(key))))
        if kind is ACLS and value is None and not values:
            self._collector.add_unsupported(f"removal of the unknown ACL {key.hex()}")
        values.pop(name, None)
        if value is not None:
            values[name] = value

    def _compare(self, kind: Kind) -> Iterator[None]:
        held, after = self._held(kind), self._values[kind]
        if self._collector.is_snapshot:
            after |= {key: {} for key in held}
            for record in self._image.all(kind.record):
                if not (isinstance(record, kinds.ConfigRecord) and record.resource_type == TOPICS):
                    self._apply_value(record)
                yield
        for key, new in after.items():
            old = by_name(held.get(key))
            if old != new and kind.event is not None:
                self._collector.add(kind.event(self._collector.author, key, old, new))
            elif old != new:
                self._collect_acl(key, old.get(""), new.get(""))
            if kind is FEATURES and (why := unsupported_feature(tuple(sorted(new.items())))) is not None:
                self._collector.add_unsupported(why)
            yield

    def _collect_acl(self, acl_id: bytes, before: Acl | None, after: Acl | None) -> None:
        self._collector.acls[acl_id] = after
        if before is not None:
            self._removed_acls[before] = None
        if after is not None:
            self._has_acl_twice = self._has_acl_twice or after in self._new_acls
            self._new_acls[after] = None

    def _report_acls(self) -> Iterator[None]:
        collector, known = self._collector, self._before.acls
        removed = [acl for acl in self._removed_acls if acl in known]
        new = [acl for acl in self._new_acls if acl in self._removed_acls or acl not in known]
        for kind, acls in ((AclsDeleted, removed), (AclsCreated, new)):
            for at in range(0, len(acls), _ACLS_PER_EVENT):
                some = tuple(sorted(acls[at : at + _ACLS_PER_EVENT]))
                collector.add(kind(collector.author.request_id, some, collector.author.principal, None))
                yield
        if self._has_acl_twice or (len(removed), len(new)) != (len(self._removed_acls), len(self._new_acls)):
            self._collector.add_unsupported("an ACL with two ids")

    # --- brokers

    def _apply_broker(self, record: MetadataRecord, broker_id: int) -> None:
        key = RegisterBrokerRecord(broker_id=broker_id)
        if broker_id not in self._brokers:
            self._brokers.add(broker_id)
            registration = self._registration(broker_id)
            if registration is not None:
                self._image.apply(registration)
        before = self._image.find(key)
        self._image.apply(record)
        self._report_broker(BrokerId(broker_id), before, self._image.find(key))

    def _registration(self, broker_id: int) -> RegisterBrokerRecord | None:
        broker = self._before.brokers.get(BrokerId(broker_id))
        if broker is None or not is_kraft_broker(broker):
            return None
        return registration_record(broker, self._ids.broker_epochs.get(broker.broker_id, -1), CORDONED_SINCE)

    def _report_broker(
        self, broker_id: BrokerId, before: RegisterBrokerRecord | None, after: RegisterBrokerRecord | None
    ) -> None:
        self._collector.add(*self._broker_events(broker_id, before, after))
        if after is None or before is None or before.broker_epoch != after.broker_epoch:
            self._collector.broker_epochs[broker_id] = None if after is None else after.broker_epoch

    def _broker_events(
        self, broker_id: BrokerId, before: RegisterBrokerRecord | None, after: RegisterBrokerRecord | None
    ) -> Iterator[catalog.Event]:
        """The events that lead from one registration of a broker to another; None means not registered.

        The events do not tell whether a broker had shut down cleanly: the other controller has decided the
        consequences.
        """
        reason, epoch = self._collector.author.reason, self._epochs.get(broker_id, 0)
        if after is None:
            if before is not None:
                yield catalog.BrokerUnregistered(broker_id, epoch, reason)
            return
        if before is None or _is_another(before, after):
            if before is not None and not before.fenced:
                yield catalog.BrokerFenced(broker_id, epoch, "registered again")
            self._last_epoch += 1
            self._epochs[broker_id] = epoch = self._last_epoch
            details = details_of(after.end_points, after.features, after.log_dirs)
            incarnation, endpoints = after.incarnation_id.hex(), endpoints_of(after.end_points)
            yield catalog.BrokerRegistered(broker_id, epoch, incarnation, after.rack, endpoints, details)
            before = replace(after, fenced=True, in_controlled_shutdown=False, cordoned_log_dirs=None)
        cordoned = after.cordoned_log_dirs or ()
        if (before.log_dirs, before.cordoned_log_dirs or ()) != (after.log_dirs, cordoned):
            yield catalog.LogDirsChanged(broker_id, epoch, after.log_dirs, cordoned)
        if before.fenced and not after.fenced:
            yield catalog.BrokerUnfenced(broker_id, epoch, reason)
        if after.in_controlled_shutdown and not before.in_controlled_shutdown:
            yield catalog.BrokerLeaving(broker_id, epoch)
        if after.fenced and not before.fenced:
            yield catalog.BrokerFenced(broker_id, epoch, reason)

    def _report_producer_ids(self, record: kinds.ProducerIdsRecord) -> None:
        broker_id, end = BrokerId(record.broker_id), record.next_producer_id
        first = max(0, end - PRODUCER_IDS_PER_BLOCK)
        self._collector.add(catalog.ProducerIdsAllocated(broker_id, self._epochs.get(broker_id, 0), first, end))


def _is_another(before: RegisterBrokerRecord, after: RegisterBrokerRecord) -> bool:
    """True for different registrations: only a new one ends a controlled shutdown."""
    if before.in_controlled_shutdown and not after.in_controlled_shutdown:
        return True
    names = ("is_migrating_zk_broker", "incarnation_id", "broker_epoch", "end_points", "features", "rack")
    return any(getattr(before, name) != getattr(after, name) for name in names)
