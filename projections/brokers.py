"""Brokers and settings as rows: what they are, since when and why. A pure fold over the events of every shard."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

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
    Endpoint,
    FeaturesChanged,
    LogDirsChanged,
    MetadataAdopted,
    MetadataHandedBack,
    ProducerIdsAllocated,
    QuorumEpochBegun,
    Recorded,
    ResourceConfigsChanged,
    SettingsChanged,
)
from events.names import BrokerId, Offset
from projections.topics import CannotFold


class BrokerRow(msgspec.Struct, frozen=True, gc=False):
    """A registered broker. A fenced one neither leads nor is placed on; `changed…` and `reason` tell of the event that
    made it as it is."""

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
    """In controlled shutdown: it serves, but is not to lead or to be placed on."""


class ClusterRow(msgspec.Struct, frozen=True):
    """What concerns every topic. `settings` is by Kafka's names; `release` is the one whose rules decide."""

    brokers: Mapping[BrokerId, BrokerRow] = {}
    settings: tuple[tuple[str, str], ...] = ()
    release: str = ""
    settings_changed_at_ms: int | None = None
    features: tuple[tuple[str, int], ...] = ()
    """Of real brokers: the finalized features with their levels."""

    @property
    def live(self) -> frozenset[BrokerId]:
        """The brokers that are neither fenced nor about to leave."""
        return frozenset(key for key, broker in self.brokers.items() if not broker.fenced and not broker.leaving)


NO_CLUSTER = ClusterRow()


def fold_cluster(row: ClusterRow, record: Recorded) -> ClusterRow:
    """The cluster after an event of every shard. Raises CannotFold for a broker that is not registered."""
    match record.event:
        case BrokerRegistered() as event:
            return _with(row, _registered(record, event))
        case BrokerFenced() | BrokerUnfenced() as event:
            changed = replace(
                _known(row, record, event.broker_id),
                fenced=isinstance(event, BrokerFenced),
                changed_at_ms=record.at_ms,
                changed_offset=record.offset,
                reason=event.reason,
            )
            return _with(row, changed)
        case BrokerLeaving() | LogDirsChanged() as event:
            leaving = isinstance(event, BrokerLeaving)
            known = _known(row, record, event.broker_id)
            reason = "in controlled shutdown" if leaving else "other log directories are online"
            return _with(
                row,
                replace(
                    known,
                    leaving=known.leaving or leaving,
                    changed_at_ms=record.at_ms,
                    changed_offset=record.offset,
                    reason=reason,
                ),
            )
        case FeaturesChanged() as event:
            return replace(row, features=event.features)
        case QuorumEpochBegun() | MetadataAdopted() | MetadataHandedBack():
            return row
        case ResourceConfigsChanged() | ProducerIdsAllocated():
            return row
        case BrokerUnregistered() as event:
            _known(row, record, event.broker_id)
            return replace(row, brokers={key: one for key, one in row.brokers.items() if key != event.broker_id})
        case SettingsChanged() as event:
            return replace(row, settings=event.settings, release=event.release, settings_changed_at_ms=record.at_ms)
        case AclsCreated() | AclsDeleted() | QuotasChanged() | AsksRefused():
            return row
        case ScramCredentialSet() | ScramCredentialRemoved():
            return row
        case _:
            raise CannotFold(record, "it concerns no broker and no setting")


def _registered(record: Recorded, event: BrokerRegistered) -> BrokerRow:
    return BrokerRow(
        event.broker_id,
        event.broker_epoch,
        event.incarnation,
        event.rack,
        event.endpoints,
        True,
        record.at_ms,
        record.at_ms,
        record.offset,
        "registered",
    )


def _known(row: ClusterRow, record: Recorded, broker_id: BrokerId) -> BrokerRow:
    known = row.brokers.get(broker_id)
    if known is None:
        raise CannotFold(record, f"broker {broker_id} is not registered")
    return known


def _with(row: ClusterRow, broker: BrokerRow) -> ClusterRow:
    return replace(row, brokers={**row.brokers, broker.broker_id: broker})
