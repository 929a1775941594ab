"""Brokers: from their registrations, before and after, to the events that say the difference."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from controller.brokers.kraft.log.metadata_records import RegisterBrokerRecord
from events import catalog
from events.names import BrokerId


class MachineEpochs:
    """The machine's own epochs of brokers, which count registrations."""

    def __init__(self, last: int) -> None:
        self._last = last
        self._of: dict[BrokerId, int] = {}

    def know(self, broker_id: BrokerId, epoch: int) -> None:
        """A broker is registered under an epoch."""
        self._of[broker_id] = epoch

    def next(self, broker_id: BrokerId) -> int:
        """Another registration of a broker."""
        self._last += 1
        self._of[broker_id] = self._last
        return self._last

    def of(self, broker_id: int) -> int:
        """The epoch of a broker, 0 of one that is not registered."""
        return self._of.get(BrokerId(broker_id), 0)


def broker_events(
    before: RegisterBrokerRecord | None, after: RegisterBrokerRecord | None, epochs: MachineEpochs, reason: str
) -> Iterator[catalog.Event]:
    """The events that lead from one registration of a broker to the other; None is none.

    Whether a broker came back cleanly is not said: what followed from it was decided with its registration.
    """
    if after is None:
        if before is not None:
            broker_id = BrokerId(before.broker_id)
            yield catalog.BrokerUnregistered(broker_id, epochs.of(broker_id), reason)
        return
    broker_id = BrokerId(after.broker_id)
    if before is None or _is_another(before, after):
        if before is not None and not before.fenced:
            yield catalog.BrokerFenced(broker_id, epochs.of(broker_id), "registered anew")
        yield _registered(after, epochs.next(broker_id))
        before = replace(after, fenced=True, in_controlled_shutdown=False, cordoned_log_dirs=None)
    yield from _changes(before, after, epochs.of(broker_id), reason)


def _is_another(before: RegisterBrokerRecord, after: RegisterBrokerRecord) -> bool:
    """Whether the two are different registrations: only a new one ends a controlled shutdown."""
    kept = replace(
        before,
        version=after.version,
        fenced=after.fenced,
        in_controlled_shutdown=after.in_controlled_shutdown,
        log_dirs=after.log_dirs,
        cordoned_log_dirs=after.cordoned_log_dirs,
    )
    return kept != after or (before.in_controlled_shutdown and not after.in_controlled_shutdown)


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
