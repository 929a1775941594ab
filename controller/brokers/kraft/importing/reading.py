"""What a discovery has come to so far."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from controller.brokers.kraft.importing.source import Source
from controller.brokers.kraft.importing.wire import Wire
from controller.brokers.kraft.log.image import MetadataImage
from events import catalog
from events.access import Acl
from events.names import BrokerId

STEPS_PER_SLICE: Final = 200
"""Records that are taken, and things that are compared, between two slices: some milliseconds."""
_WORDS_MAX: Final = 300


class Discovered(msgspec.Struct, frozen=True):
    """What is discovered, or a slice of it."""

    events: tuple[catalog.Event, ...]
    wire: Wire
    unsupported: str | None
    """What this release cannot say as events: a record, or the level of a feature; the events are all else."""


class Reading:
    """Collects events, what of the wire changes, and the first thing that cannot be said."""

    def __init__(self, source: Source, image: MetadataImage | None = None) -> None:
        self.source = source
        self.image = MetadataImage() if image is None else image
        """As records, what is touched; or all, where that is given."""
        self._events: list[catalog.Event] = []
        self.broker_epochs: dict[BrokerId, int | None] = {}
        self.acls: dict[bytes, Acl | None] = {}
        self._unfoldable: str | None = None

    def say(self, *events: catalog.Event) -> None:
        """These are the next events."""
        self._events += events

    def cannot(self, why: str) -> None:
        """Something cannot be said as events."""
        self._unfoldable = self._unfoldable or (why if len(why) <= _WORDS_MAX else why[: _WORDS_MAX - 1] + "…")

    def slices(self, steps: Iterable[None]) -> Iterator[Discovered]:
        """What these steps come to, in slices; at least one."""
        for number, _ in enumerate(steps, 1):
            if number % STEPS_PER_SLICE == 0:
                yield self.taken()
        yield self.taken()

    def taken(self) -> Discovered:
        """What came since the last time that it was taken."""
        events, self._events = tuple(self._events), []
        wire = Wire(self.broker_epochs, self.acls)
        self.broker_epochs, self.acls = {}, {}
        unsupported, self._unfoldable = self._unfoldable, None
        return Discovered(events, wire, unsupported)


def together(slices: Iterable[Discovered]) -> Discovered:
    """Slices as one."""
    events: list[catalog.Event] = []
    broker_epochs: dict[BrokerId, int | None] = {}
    acls: dict[bytes, Acl | None] = {}
    unsupported: str | None = None
    for each in slices:
        events += each.events
        broker_epochs |= each.wire.broker_epochs
        acls |= each.wire.acls
        unsupported = unsupported or each.unsupported
    return Discovered(tuple(events), Wire(broker_epochs, acls), unsupported)
