"""The epoch of the quorum that this process leads brokers in (KIP-595): a quorum with one voter, which is itself."""

from __future__ import annotations

import msgspec

from controller.brokers.kraft.features import METADATA_VERSION_SHARED, features_at
from controller.brokers.kraft.log.metadata_log import MetadataLog
from controller.brokers.port import CommandSink, stamp
from controller.machine.commands.commands import BeginQuorumEpoch
from controller.machine.state import Quorum
from events.catalog import Endpoint


class KraftOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the controller is to real brokers; see `QuorumEpochBegun` for most of it."""

    node_id: int
    kraft_version: int
    directory_id: bytes
    session_timeout_ms: int
    snapshot_every_bytes: int = 20 << 20
    metadata_version: int | None = None
    """None: the highest that all brokers share."""
    leaders_balanced_every_s: float | None = None
    """How often leaderships go back to preferred replicas; None for never."""


class QuorumEpoch:
    """The epoch of one process: it leads in none of those before. `endpoint` is where brokers reach it."""

    def __init__(
        self, controller: CommandSink, metadata: MetadataLog, options: KraftOptions, endpoint: Endpoint
    ) -> None:
        self._controller = controller
        self._metadata = metadata
        self._options = options
        self._endpoint = endpoint
        self._first = metadata.mark.epoch + 1

    @property
    def quorum(self) -> Quorum | None:
        """The epoch that brokers are led in, None before it is durable."""
        return self._controller.store.durable_cluster.quorum if self._metadata.mark.epoch >= self._first else None

    def begin(self) -> None:
        """Have an epoch begun, above all those of the metadata log."""
        options = self._options
        self._controller.observe(
            BeginQuorumEpoch(
                **stamp(self._controller, "kraft"),
                node_id=options.node_id,
                kraft_version=options.kraft_version,
                host=self._endpoint.host,
                port=self._endpoint.port,
                directory_id=options.directory_id,
                features=features_at(options.metadata_version or METADATA_VERSION_SHARED),
                epoch_min=self._metadata.mark.epoch + 1,
            )
        )
