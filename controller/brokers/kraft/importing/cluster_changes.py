"""Imports the records of a batch that concern the whole cluster: brokers, features, configs, SCRAM credentials, quotas
and ACLs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from controller.brokers.kraft.features import unsupported_feature
from controller.brokers.kraft.importing.collector import EventCollector
from controller.brokers.kraft.log import metadata_records as kinds
from controller.brokers.kraft.log.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    MetadataRecord,
    RegisterBrokerRecord,
)
from controller.brokers.kraft.log.projection import (
    CORDONED_SINCE,
    NUMBERS,
    TOPICS,
    config_records,
    credential_and_quota_records,
    is_kraft_broker,
    registration_record,
)
from controller.brokers.kraft.log.projector import ProtocolIds
from controller.machine.access.credentials import MECHANISMS
from controller.machine.access.quotas import canonical_entity
from controller.machine.state import Cluster
from events import catalog
from events.access import (
    Acl,
    AclsCreated,
    AclsDeleted,
    QuotaEntity,
    QuotasChanged,
    ScramCredentialRemoved,
    ScramCredentialSet,
)
from events.names import BrokerId


class MachineEpochs:
    """The machine's broker epochs, which count registrations."""

    def __init__(self, last: int) -> None:
        self._last = last
        self._of: dict[BrokerId, int] = {}

    def know(self, broker_id: BrokerId, epoch: int) -> None:
        self._of[broker_id] = epoch

    def next(self, broker_id: BrokerId) -> int:
        """The epoch of a new registration."""
        self._last += 1
        self._of[broker_id] = self._last
        return self._last

    def of(self, broker_id: int) -> int:
        """The epoch of a broker; 0 if it is not registered."""
        return self._of.get(BrokerId(broker_id), 0)


def broker_events(
    before: RegisterBrokerRecord | None, after: RegisterBrokerRecord | None, epochs: MachineEpochs, reason: str
) -> Iterator[catalog.Event]:
    """The events that lead from one registration of a broker to another; None means not registered.

    They do not tell whether a broker came back cleanly: the consequences were decided with its registration.
    """
    if after is None:
        if before is not None:
            broker_id = BrokerId(before.broker_id)
            yield catalog.BrokerUnregistered(broker_id, epochs.of(broker_id), reason)
        return
    broker_id = BrokerId(after.broker_id)
    if before is None or _is_another(before, after):
        if before is not None and not before.fenced:
            yield catalog.BrokerFenced(broker_id, epochs.of(broker_id), "registered again")
        yield _registered(after, epochs.next(broker_id))
        before = replace(after, fenced=True, in_controlled_shutdown=False, cordoned_log_dirs=None)
    yield from _changes(before, after, epochs.of(broker_id), reason)


def _is_another(before: RegisterBrokerRecord, after: RegisterBrokerRecord) -> bool:
    """True for different registrations: only a new one ends a controlled shutdown."""
    same = replace(
        before,
        version=after.version,
        fenced=after.fenced,
        in_controlled_shutdown=after.in_controlled_shutdown,
        log_dirs=after.log_dirs,
        cordoned_log_dirs=after.cordoned_log_dirs,
    )
    return same != after or (before.in_controlled_shutdown and not after.in_controlled_shutdown)


def _registered(record: RegisterBrokerRecord, epoch: int) -> catalog.BrokerRegistered:
    return catalog.BrokerRegistered(
        BrokerId(record.broker_id),
        epoch,
        record.incarnation_id.hex(),
        record.rack,
        tuple(catalog.Endpoint(each.name, each.host, each.port) for each in record.end_points),
        catalog.BrokerDetails(
            tuple(each.security_protocol for each in record.end_points),
            tuple(
                catalog.SupportedFeature(each.name, each.min_supported_version, each.max_supported_version)
                for each in record.features
            ),
            record.log_dirs,
        ),
    )


def _changes(
    before: RegisterBrokerRecord, after: RegisterBrokerRecord, epoch: int, reason: str
) -> Iterator[catalog.Event]:
    broker_id = BrokerId(after.broker_id)
    cordoned = after.cordoned_log_dirs or ()
    if (before.log_dirs, before.cordoned_log_dirs or ()) != (after.log_dirs, cordoned):
        yield catalog.LogDirsChanged(broker_id, epoch, after.log_dirs, cordoned)
    if before.fenced and not after.fenced:
        yield catalog.BrokerUnfenced(broker_id, epoch, reason)
    if after.in_controlled_shutdown and not before.in_controlled_shutdown:
        yield catalog.BrokerLeaving(broker_id, epoch)
    if after.fenced and not before.fenced:
        yield catalog.BrokerFenced(broker_id, epoch, reason)


Quotas = tuple[tuple[str, float], ...]


def acl_of(record: AccessControlEntryRecord) -> Acl:
    return Acl(
        record.resource_type,
        record.pattern_type,
        record.resource_name,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )


def entity_of(record: ClientQuotaRecord) -> QuotaEntity:
    """The entity of a quota, in canonical order."""
    return canonical_entity(tuple((each.entity_type, each.entity_name) for each in record.entity))


PRODUCER_IDS_PER_BLOCK: Final = 1000
"""The size of Kafka's producer id blocks (KIP-730)."""
_ACLS_PER_EVENT: Final = 1000


class ClusterChanges:
    """Collects the cluster changes of a batch: `apply` its records, then `finish`."""

    def __init__(self, before: Cluster, ids: ProtocolIds, collector: EventCollector) -> None:
        self._before, self._ids_before, self._collector = before, ids, collector
        self._image = collector.image
        self._epochs = MachineEpochs(before.last_broker_epoch)
        self._brokers: set[int] = set()
        self._features = False
        self._resources: dict[tuple[int, str], None] = {}
        self._entities: dict[QuotaEntity, None] = {}
        self._credentials: dict[tuple[str, int], None] = {}
        self._entries: dict[bytes, None] = {}

    def apply(self, record: MetadataRecord) -> bool:
        """Apply a record if it concerns the cluster, and return whether it does. Raises RecordMismatch."""
        match record:
            case kinds.RegisterBrokerRecord() | kinds.BrokerRegistrationChangeRecord() | kinds.UnregisterBrokerRecord():
                self._apply_broker(record, record.broker_id)
            case kinds.FenceBrokerRecord() | kinds.UnfenceBrokerRecord():
                self._apply_broker(record, record.id)
            case kinds.FeatureLevelRecord():
                self._load_features()
                self._image.apply(record)
            case kinds.ConfigRecord():
                self._load_configs((record.resource_type, record.resource_name))
                self._image.apply(record)
            case kinds.ProducerIdsRecord():
                self._load_broker(record.broker_id)
                self._report_producer_ids(record)
            case _:
                return self._apply_access(record)
        return True

    def compare_all(self) -> Iterator[None]:
        """Instead of `apply`, for an image of a whole cluster: import how brokers and producer ids differ, in steps,
        and let `finish` import the rest."""
        before, image = self._before, self._image
        self._features = True
        self._report_features()
        registered = sorted(image.all(kinds.RegisterBrokerRecord), key=lambda each: each.broker_epoch)
        ids = [BrokerId(each.broker_id) for each in registered]
        for broker_id in (*(one for one in sorted(before.brokers) if one not in ids), *ids):
            was = self._registration(broker_id)
            self._report_broker(broker_id, was, image.find(kinds.RegisterBrokerRecord(broker_id=broker_id)))
            yield
        for block in image.all(kinds.ProducerIdsRecord):
            if block.next_producer_id != before.next_producer_id:
                self._report_producer_ids(block)
        held = (resource for resource, _ in before.resource_configs)
        self._resources = dict.fromkeys((*held, *(one for one in image.configured() if one[0] != TOPICS)))
        self._entities = dict.fromkeys(before.quotas)
        self._credentials = {(user, NUMBERS[mechanism]): None for user, mechanism in before.scram}
        for login in image.all(kinds.UserScramCredentialRecord):
            self._mark_login(login)
        self._entries = dict.fromkeys(
            (*self._ids_before.acls, *(one.id for one in image.all(kinds.AccessControlEntryRecord)))
        )

    def finish(self) -> Iterator[None]:
        """Import the changes that several records make together, in steps."""
        self._report_features()
        for kind, name in self._resources:
            self._report_configs(kind, name)
            yield
        for user, mechanism in self._credentials:
            self._report_credential(user, mechanism)
            yield
        yield from self._report_quotas()
        yield from self._report_acls()

    # --- brokers

    def _apply_broker(self, record: MetadataRecord, broker_id: int) -> None:
        self._load_broker(broker_id)
        key = kinds.RegisterBrokerRecord(broker_id=broker_id)
        before = self._image.find(key)
        self._image.apply(record)
        self._report_broker(broker_id, before, self._image.find(key))

    def _report_broker(
        self, broker_id: int, before: kinds.RegisterBrokerRecord | None, after: kinds.RegisterBrokerRecord | None
    ) -> None:
        self._collector.add(*broker_events(before, after, self._epochs, self._collector.source.reason))
        epochs = self._collector.broker_epochs
        if after is None:
            epochs[BrokerId(broker_id)] = None
        elif before is None or before.broker_epoch != after.broker_epoch:
            epochs[BrokerId(broker_id)] = after.broker_epoch

    def _load_broker(self, broker_id: int) -> None:
        if broker_id not in self._brokers:
            self._brokers.add(broker_id)
            registration = self._registration(broker_id)
            if registration is not None:
                self._image.apply(registration)

    def _registration(self, broker_id: int) -> kinds.RegisterBrokerRecord | None:
        broker = self._before.brokers.get(BrokerId(broker_id))
        if broker is None or not is_kraft_broker(broker):
            return None
        self._epochs.know(broker.broker_id, broker.broker_epoch)
        epoch = self._ids_before.broker_epochs.get(broker.broker_id, -1)
        return registration_record(broker, epoch, CORDONED_SINCE)

    def _report_producer_ids(self, record: kinds.ProducerIdsRecord) -> None:
        end = record.next_producer_id
        first, epoch = max(0, end - PRODUCER_IDS_PER_BLOCK), self._epochs.of(record.broker_id)
        self._collector.add(catalog.ProducerIdsAllocated(BrokerId(record.broker_id), epoch, first, end))

    # --- features and configs

    def _load_features(self) -> None:
        if not self._features:
            self._features = True
            for name, level in self._before.features:
                self._image.apply(kinds.FeatureLevelRecord(name=name, feature_level=level))

    def _report_features(self) -> None:
        if not self._features:
            return
        self._features = False
        features = self._image.features
        if features != self._before.features:
            self._collector.add(catalog.FeaturesChanged(features, self._collector.source.reason))
        why = unsupported_feature(features)
        if why is not None:
            self._collector.add_unsupported(why)

    def _load_configs(self, resource: tuple[int, str]) -> None:
        if resource not in self._resources:
            self._resources[resource] = None
            for each in config_records(*resource, (), self._before.configs_of(*resource)):
                self._image.apply(each)

    def _report_configs(self, kind: int, name: str) -> None:
        before = self._before.configs_of(kind, name)
        after = self._image.configs_of(kind, name)
        source = self._collector.source
        if before != after:
            changed = catalog.ResourceConfigsChanged(source.request_id, kind, name, after, source.principal, None)
            self._collector.add(changed)

    # --- access

    def _apply_access(self, record: MetadataRecord) -> bool:
        match record:
            case kinds.ClientQuotaRecord():
                self._load_quotas(entity_of(record))
            case kinds.UserScramCredentialRecord() | kinds.RemoveUserScramCredentialRecord():
                if not self._mark_login(record):
                    return True
            case kinds.AccessControlEntryRecord():
                self._entries[record.id] = None
            case kinds.RemoveAccessControlEntryRecord():
                if record.id not in self._entries and record.id not in self._ids_before.acls:
                    self._collector.add_unsupported(f"removal of the unknown ACL {record.id.hex()}")
                    return True
                self._entries[record.id] = None
            case _:
                return False
        self._image.apply(record)
        return True

    def _mark_login(self, record: kinds.UserScramCredentialRecord | kinds.RemoveUserScramCredentialRecord) -> bool:
        if record.mechanism not in MECHANISMS:
            self._collector.add_unsupported(
                f"a SCRAM credential of user {record.name!r} with mechanism {record.mechanism}"
            )
            return False
        self._credentials[record.name, record.mechanism] = None
        return True

    def _load_quotas(self, entity: QuotaEntity) -> None:
        if entity not in self._entities:
            self._entities[entity] = None
            held = Cluster(quotas={entity: self._before.quotas.get(entity, ())})
            for each in credential_and_quota_records(Cluster(), held):
                self._image.apply(each)

    def _report_credential(self, user: str, mechanism: int) -> None:
        name, source = MECHANISMS[mechanism], self._collector.source
        before = self._before.scram.get((user, name))
        after = self._image.find(kinds.UserScramCredentialRecord(name=user, mechanism=mechanism))
        if after is None:
            if before is not None:
                self._collector.add(ScramCredentialRemoved(source.request_id, user, name, source.principal, None))
            return
        keys = (after.iterations, after.salt, after.stored_key, after.server_key)
        if before is None or keys != (before.iterations, before.salt, before.stored_key, before.server_key):
            self._collector.add(ScramCredentialSet(source.request_id, user, name, *keys, source.principal, None))

    def _report_quotas(self) -> Iterator[None]:
        quotas: dict[QuotaEntity, dict[str, float]] = {}
        source = self._collector.source
        for record in self._image.all(kinds.ClientQuotaRecord):
            quotas.setdefault(entity_of(record), {})[record.key] = record.value
            yield
        for entity in {**self._entities, **dict.fromkeys(quotas)}:
            before, after = dict(self._before.quotas.get(entity, ())), quotas.get(entity, {})
            values = tuple(sorted((key, value) for key, value in after.items() if before.get(key) != value))
            removed = tuple(key for key in before if key not in after)
            if values or removed:
                self._collector.add(QuotasChanged(source.request_id, entity, values, removed, source.principal, None))
            yield

    def _report_acls(self) -> Iterator[None]:
        removed: dict[Acl, bytes] = {}
        new: dict[Acl, bytes] = {}
        twice = False
        for acl_id in self._entries:
            before = self._ids_before.acls.get(acl_id)
            record = self._image.find(kinds.AccessControlEntryRecord(id=acl_id))
            after = None if record is None else acl_of(record)
            if before != after:
                self._collector.acls[acl_id] = after
                twice = twice or after in new
                removed |= {} if before is None else {before: acl_id}
                new |= {} if after is None else {after: acl_id}
            yield
        fitting = [acl for acl in removed if acl in self._before.acls]
        yield from self._report_acl_events(AclsDeleted, fitting)
        created = [acl for acl in new if acl in removed or acl not in self._before.acls]
        yield from self._report_acl_events(AclsCreated, created)
        if twice or (len(fitting), len(created)) != (len(removed), len(new)):
            self._collector.add_unsupported("an ACL with two ids")

    def _report_acl_events(self, kind: type[AclsCreated | AclsDeleted], acls: list[Acl]) -> Iterator[None]:
        source = self._collector.source
        for at in range(0, len(acls), _ACLS_PER_EVENT):
            chunk = tuple(sorted(acls[at : at + _ACLS_PER_EVENT]))
            event = kind(source.request_id, chunk, source.principal, None)
            self._collector.add(event)
            yield
