"""The epochs in which this process leads brokers, as events say them (KIP-595)."""

from __future__ import annotations

import msgspec

from controller.brokers.kraft.features import METADATA_VERSION_SHARED, features_at
from controller.brokers.kraft.replication import QuorumReplication
from controller.brokers.port import CommandSink, stamp
from controller.machine.commands.commands import BeginQuorumEpoch


class KraftOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the controller is to real brokers."""

    session_timeout_ms: int
    metadata_version: int | None = None
    """None: the highest that all brokers share."""
    leaders_balanced_every_s: float | None = None
    """How often leaderships go back to preferred replicas; None for never."""


class QuorumEpoch:
    """What is recorded of the epochs that this process leads in."""

    def __init__(self, controller: CommandSink, replication: QuorumReplication, options: KraftOptions) -> None:
        self._controller = controller
        self._replication = replication
        self._options = options

    def begin(self) -> None:
        """Record the epoch that the quorum is in, which this process leads."""
        quorum = self._replication.quorum
        me = quorum.me
        host, port = quorum.place_of(me)
        self._controller.submit_internal(
            BeginQuorumEpoch(
                **stamp(self._controller, "kraft"),
                node_id=me.id,
                kraft_version=quorum.kraft_version,
                host=host,
                port=port,
                directory_id=me.directory,
                features=features_at(self._options.metadata_version or METADATA_VERSION_SHARED),
                epoch_min=quorum.epoch,
                priority=quorum.options.priority,
            )
        )
