"""What brokers go by that the machine does not keep: their epochs on the wire, and the ids of access control entries.

The machine counts registrations and knows entries by what they say. Another controller gives both as it writes the
records, so they are read from there and never worked out.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from events.access import Acl
from events.names import BrokerId


class Wire(msgspec.Struct, frozen=True):
    """Changes of it, None for what is gone: epochs by broker, entries by their id (16 bytes)."""

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
