"""What brokers go by that the machine does not keep: their epochs on the wire, and the ids of access control entries.

The machine counts registrations, and knows entries by what they say. All of this is read from the records of another
controller, and never worked out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from events.access import Acl
from events.names import BrokerId

K = TypeVar("K")
V = TypeVar("V")


class Wire(msgspec.Struct, frozen=True):
    """Changes of it, None for what is gone: epochs by broker, entries by id (16 bytes)."""

    broker_epochs: Mapping[BrokerId, int | None] = {}
    acls: Mapping[bytes, Acl | None] = {}


class KnownWire(msgspec.Struct, frozen=True):
    """All of it as it stands."""

    broker_epochs: Mapping[BrokerId, int] = {}
    acls: Mapping[bytes, Acl] = {}

    def after(self, changes: Wire) -> KnownWire:
        """The same after some changes."""
        epochs = {**self.broker_epochs, **changes.broker_epochs}
        acls = {**self.acls, **changes.acls}
        return KnownWire(
            {key: epoch for key, epoch in epochs.items() if epoch is not None},
            {key: acl for key, acl in acls.items() if acl is not None},
        )

    def changes_to(self, other: KnownWire) -> Wire:
        """What has to change for it to become another."""
        return Wire(
            _changes(self.broker_epochs, other.broker_epochs),
            _changes(self.acls, other.acls),
        )


def _changes(before: Mapping[K, V], after: Mapping[K, V]) -> Mapping[K, V | None]:
    gone = dict.fromkeys(key for key in before if key not in after)
    return {**gone, **{key: value for key, value in after.items() if before.get(key) != value}}
