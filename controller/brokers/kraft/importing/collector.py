"""What a discovery has come to so far."""

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
from events.followed import FOLLOW, followed
from events.names import BrokerId, RequestId

_IGNORED: Final = (
    kinds.NoOpRecord,
    kinds.RegisterControllerRecord,
    kinds.UnregisterControllerRecord,
    kinds.DelegationTokenRecord,
    kinds.RemoveDelegationTokenRecord,
)
"""What the machine knows nothing of: the metadata log alone keeps it, and snapshots of that."""
_MIGRATING: Final = (1, 2)
"""States of a migration from ZooKeeper that is not over (KIP-866)."""


def is_ignored(record: MetadataRecord) -> bool:
    """Whether a record says nothing that decisions depend on."""
    if isinstance(record, kinds.ZkMigrationStateRecord):
        return record.zk_migration_state not in _MIGRATING
    return isinstance(record, _IGNORED)


def record_summary(record: MetadataRecord) -> str:
    """Which record it is."""
    if not isinstance(record, UnknownRecord):
        return type(record).__name__
    try:
        _, at = read_uvarint(record.value, 0)
        key, at = read_uvarint(record.value, at)
        version, _ = read_uvarint(record.value, at)
    except READ_FAILURES:
        return "a record that is none of Kafka's"
    return f"a record of type {key}, version {version}"


class Source(msgspec.Struct, frozen=True):
    """What the events of one discovery share."""

    request_id: RequestId
    principal: str
    """Stands for whoever requested it at the controller that decided, which its records do not say."""
    reason: str


def source_of(request_id: RequestId) -> Source:
    """Another controller, as the events have it that are of this request."""
    decided = followed(Cause(FOLLOW, request_id))
    assert decided is not None, f"{request_id} is the id of a decision that was followed"
    return Source(decided.request_id, decided.leader, decided.words)


STEPS_PER_SLICE: Final = 200
"""Records that are taken, and things that are compared, between two slices: some milliseconds."""
_WORDS_MAX: Final = 300


class Imported(msgspec.Struct, frozen=True):
    """What is discovered, or a slice of it."""

    events: tuple[catalog.Event, ...]
    ids: ProtocolIdChanges
    unsupported: str | None
    """What this release cannot say as events: a record, or the level of a feature; the events are all else."""


class EventCollector:
    """Collects events, what of the wire changes, and the first thing that cannot be said."""

    def __init__(self, source: Source, image: MetadataImage | None = None) -> None:
        self.source = source
        self.image = MetadataImage() if image is None else image
        """As records, what is touched; or all, where that is given."""
        self._events: list[catalog.Event] = []
        self.broker_epochs: dict[BrokerId, int | None] = {}
        self.acls: dict[bytes, Acl | None] = {}
        self._unsupported: str | None = None

    def add(self, *events: catalog.Event) -> None:
        """These are the next events."""
        self._events += events

    def add_unsupported(self, why: str) -> None:
        """Something cannot be said as events."""
        self._unsupported = self._unsupported or (why if len(why) <= _WORDS_MAX else why[: _WORDS_MAX - 1] + "…")

    def slices(self, steps: Iterable[None]) -> Iterator[Imported]:
        """What these steps come to, in slices; at least one."""
        for number, _ in enumerate(steps, 1):
            if number % STEPS_PER_SLICE == 0:
                yield self.flush()
        yield self.flush()

    def flush(self) -> Imported:
        """What came since the last time that it was taken."""
        events, self._events = tuple(self._events), []
        ids = ProtocolIdChanges(self.broker_epochs, self.acls)
        self.broker_epochs, self.acls = {}, {}
        unsupported, self._unsupported = self._unsupported, None
        return Imported(events, ids, unsupported)


def merged(slices: Iterable[Imported]) -> Imported:
    """Slices as one."""
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
