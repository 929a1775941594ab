"""Which log directories brokers registered with, to tell a broker from a second process with its id.

Such a process is refused when it registers, but it follows the metadata log, and takes from there the epoch of the
broker that is registered. So its word on where replicas lie passes Kafka's checks, and the two processes would undo
each other's for ever. What tells them apart is that it names directories that the broker never had. One that failed
since the registration is still the broker's own: that it failed is told with it (KIP-858).

What it does not do: it says nothing of brokers that registered before this process started.
"""

from __future__ import annotations

from collections.abc import Iterable

from controller.brokers.kraft.registration import RESERVED_DIRECTORIES
from events.names import BrokerId


class Directories:
    """The ids of the log directories of each broker, as of its registration."""

    def __init__(self) -> None:
        self._own: dict[BrokerId, frozenset[bytes]] = {}

    def registered(self, broker_id: BrokerId, directories: Iterable[bytes]) -> None:
        """A broker registered with these."""
        self._own[broker_id] = frozenset(directories)

    def forget(self, broker_id: BrokerId) -> None:
        """A broker is gone."""
        self._own.pop(broker_id, None)

    def is_anothers(self, broker_id: int, directory: bytes) -> bool:
        """Whether the broker registered without this directory."""
        own = self._own.get(BrokerId(broker_id), frozenset())
        return bool(own) and directory not in own and directory not in RESERVED_DIRECTORIES
