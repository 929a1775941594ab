"""Brokers and settings as rows. A pure fold over the events of the cluster."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from events import access, catalog
from events.catalog import Endpoint, Recorded
from events.names import BrokerId, Offset
from projections.views.topics import CannotFold


class BrokerRow(msgspec.Struct, frozen=True, gc=False):
    """A registered broker. A fenced broker does not lead, and gets no replicas. `changed…` and `reason` come from the
    newest event about it."""

    broker_id: BrokerId
    broker_epoch: int
    incarnation: str
    rack: str | None
    endpoints: tuple[Endpoint, ...]
    fenced: bool
    registered_at_ms: int
    changed_at_ms: int
    changed_offset: Offset
    reason: str
    leaving: bool = False
    """In controlled shutdown: it serves, but gets no leaderships and no replicas."""
    cordoned: bool = False
    """All log directories are cordoned: no new replicas are placed on it (KIP-1066)."""


class ClusterRow(msgspec.Struct, frozen=True):
    """Brokers, settings by Kafka's names, and the release whose rules decide."""

    brokers: Mapping[BrokerId, BrokerRow] = {}
    settings: tuple[tuple[str, str], ...] = ()
    release: str = ""
    settings_changed_at_ms: int | None = None
    features: tuple[tuple[str, int], ...] = ()
    """The finalized features of a KRaft cluster, with their levels."""

    @property
    def live(self) -> frozenset[BrokerId]:
        """The brokers that are neither fenced nor in controlled shutdown."""
        return frozenset(key for key, broker in self.brokers.items() if not broker.fenced and not broker.leaving)


NO_CLUSTER = ClusterRow()


def fold_cluster(row: ClusterRow, record: Recorded) -> ClusterRow:
    """The cluster after one more of its events. Raises CannotFold for a broker that is not registered."""
    match record.event:
        case catalog.BrokerRegistered() as event:
            return _with(row, _registered(record, event))
        case catalog.BrokerFenced() | catalog.BrokerUnfenced() as event:
            changed = _changed(row, record, event.broker_id, event.reason)
            return _with(row, replace(changed, fenced=isinstance(event, catalog.BrokerFenced)))
        case catalog.BrokerLeaving() as event:
            changed = _changed(row, record, event.broker_id, "in controlled shutdown")
            return _with(row, replace(changed, leaving=True))
        case catalog.LogDirsChanged() as event:
            reason = "all log directories are cordoned" if event.is_cordoned else "log directories changed"
            changed = _changed(row, record, event.broker_id, reason)
            return _with(row, replace(changed, cordoned=event.is_cordoned))
        case catalog.BrokerUnregistered() as event:
            _known(row, record, event.broker_id)
            return replace(row, brokers={key: one for key, one in row.brokers.items() if key != event.broker_id})
        case catalog.FeaturesChanged() as event:
            return replace(row, features=event.features)
        case catalog.SettingsChanged() as event:
            return replace(row, settings=event.settings, release=event.release, settings_changed_at_ms=record.at_ms)
        case event if isinstance(event, _WITHOUT_EFFECT):
            return row
        case _:
            raise CannotFold(record, "it concerns no broker and no setting")


_WITHOUT_EFFECT = (
    catalog.QuorumEpochBegun,
    catalog.MetadataAdopted,
    catalog.MetadataHandedBack,
    catalog.HeadSigned,
    catalog.HistorySkipped,
    catalog.ResourceConfigsChanged,
    catalog.ProducerIdsAllocated,
    access.AclsCreated,
    access.AclsDeleted,
    access.QuotasChanged,
    access.RequestsRefused,
    access.ScramCredentialSet,
    access.ScramCredentialRemoved,
    access.LoginSecretDrawn,
)
"""Events of the cluster that change neither brokers nor settings."""


def _registered(record: Recorded, event: catalog.BrokerRegistered) -> BrokerRow:
    return BrokerRow(
        broker_id=event.broker_id,
        broker_epoch=event.broker_epoch,
        incarnation=event.incarnation,
        rack=event.rack,
        endpoints=event.endpoints,
        fenced=True,
        registered_at_ms=record.at_ms,
        changed_at_ms=record.at_ms,
        changed_offset=record.offset,
        reason="registered",
    )


def _known(row: ClusterRow, record: Recorded, broker_id: BrokerId) -> BrokerRow:
    known = row.brokers.get(broker_id)
    if known is None:
        raise CannotFold(record, f"broker {broker_id} is not registered")
    return known


def _changed(row: ClusterRow, record: Recorded, broker_id: BrokerId, reason: str) -> BrokerRow:
    known = _known(row, record, broker_id)
    return replace(known, changed_at_ms=record.at_ms, changed_offset=record.offset, reason=reason)


def _with(row: ClusterRow, broker: BrokerRow) -> ClusterRow:
    return replace(row, brokers={**row.brokers, broker.broker_id: broker})
