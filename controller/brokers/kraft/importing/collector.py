"""Collects the events of an import, the changed ids, and the first unsupported record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from controller.brokers.kraft.log import metadata_records as kinds
from controller.brokers.kraft.log.image import MetadataImage
from controller.brokers.kraft.log.metadata_records import MetadataRecord, UnknownRecord
from controller.brokers.kraft.log.projector import ProtocolIdChanges
from controller.kafka.codec.primitives import read_uvarint
from controller.kafka.codec.reader import READ_FAILURES
from events import catalog
from events.access import Acl
from events.catalog import Cause
from events.external_decision import FOLLOW, external_decision
from events.names import BrokerId, RequestId

_IGNORED: Final = (
    kinds.NoOpRecord,
    kinds.RegisterControllerRecord,
    kinds.UnregisterControllerRecord,
    kinds.DelegationTokenRecord,
    kinds.RemoveDelegationTokenRecord,
)
"""Unknown to the machine: only the metadata log and its snapshots have them."""
_MIGRATING: Final = (1, 2)
"""States of an unfinished migration from ZooKeeper (KIP-866)."""


def is_ignored(record: MetadataRecord) -> bool:
    """True if no decision depends on the record."""
    if isinstance(record, kinds.ZkMigrationStateRecord):
        return record.zk_migration_state not in _MIGRATING
    return isinstance(record, _IGNORED)


def record_summary(record: MetadataRecord) -> str:
    if not isinstance(record, UnknownRecord):
        return type(record).__name__
    try:
        _, at = read_uvarint(record.value, 0)
        key, at = read_uvarint(record.value, at)
        version, _ = read_uvarint(record.value, at)
    except READ_FAILURES:
        return "an invalid record"
    return f"a record of type {key}, version {version}"


class Source(msgspec.Struct, frozen=True):
    """The request id, principal and reason of all events of one import."""

    request_id: RequestId
    principal: str
    """Stands for the client of the other controller, which records do not name."""
    reason: str


def source_of(request_id: RequestId) -> Source:
    """The source for events with the request id of `ExternalDecision`."""
    decided = external_decision(Cause(FOLLOW, request_id))
    assert decided is not None, f"{request_id} is not the id of an external decision"
    return Source(decided.request_id, decided.leader, decided.summary)


STEPS_PER_SLICE: Final = 200
"""Records applied and objects compared between two slices: some milliseconds."""
_CHARACTERS_MAX: Final = 300


class Imported(msgspec.Struct, frozen=True):
    """The events of an import, or a slice of it."""

    events: tuple[catalog.Event, ...]
    ids: ProtocolIdChanges
    unsupported: str | None
    """The first record or feature level that this release cannot import; the events cover everything else."""


class EventCollector:
    def __init__(self, source: Source, image: MetadataImage | None = None) -> None:
        self.source = source
        self.image = MetadataImage() if image is None else image
        """The touched part of the metadata as records; or all of it, if given."""
        self._events: list[catalog.Event] = []
        self.broker_epochs: dict[BrokerId, int | None] = {}
        self.acls: dict[bytes, Acl | None] = {}
        self._unsupported: str | None = None

    def add(self, *events: catalog.Event) -> None:
        self._events += events

    def add_unsupported(self, why: str) -> None:
        self._unsupported = self._unsupported or (
            why if len(why) <= _CHARACTERS_MAX else why[: _CHARACTERS_MAX - 1] + "…"
        )

    def slices(self, steps: Iterable[None]) -> Iterator[Imported]:
        """Run the steps and return their events in slices; at least one."""
        for number, _ in enumerate(steps, 1):
            if number % STEPS_PER_SLICE == 0:
                yield self.flush()
        yield self.flush()

    def flush(self) -> Imported:
        events, self._events = tuple(self._events), []
        ids = ProtocolIdChanges(self.broker_epochs, self.acls)
        self.broker_epochs, self.acls = {}, {}
        unsupported, self._unsupported = self._unsupported, None
        return Imported(events, ids, unsupported)


def merged(slices: Iterable[Imported]) -> Imported:
    """Join slices."""
    events: list[catalog.Event] = []
    broker_epochs: dict[BrokerId, int | None] = {}
    acls: dict[bytes, Acl | None] = {}
    unsupported: str | None = None
    for each in slices:
        events += each.events
        broker_epochs |= each.ids.broker_epochs
        acls |= each.ids.acls
        unsupported = unsupported or each.unsupported
    return Imported(tuple(events), ProtocolIdChanges(broker_epochs, acls), unsupported)
