"""The fleet and the controller listener of `serve --brokers kraft`."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from functools import partial

from controller.apis.api_versions import with_api_versions
from controller.apis.kraft.broker_life import (
    BrokerHeartbeatHandler,
    BrokerRegistrationHandler,
    UnregisterBrokerHandler,
)
from controller.apis.kraft.features import UpdateFeaturesHandler, finalized_features, supported_features
from controller.apis.kraft.follow import DescribeQuorumHandler, FetchHandler, FetchSnapshotHandler
from controller.apis.kraft.listener import kraft_listener
from controller.apis.kraft.permissions import needing
from controller.brokers.kraft.epoch import KraftOptions
from controller.brokers.kraft.fleet import KraftFleet
from controller.brokers.kraft.log.projection import METADATA_VERSION_FEATURE
from controller.front.front import Front
from controller.kafka.handling import ApiHandler, Handler
from controller.kafka.messages import ApiKey
from controller.kafka.messages.broker_heartbeat import BrokerHeartbeatResponse
from controller.kafka.messages.broker_registration import BrokerRegistrationResponse
from controller.kafka.messages.describe_quorum import DescribeQuorumResponse
from controller.kafka.messages.fetch import FetchResponse
from controller.kafka.messages.fetch_snapshot import FetchSnapshotResponse
from controller.kafka.messages.unregister_broker import UnregisterBrokerResponse
from controller.machine.state import Quorum
from controller.settings.load import ServeSettings, SettingsError
from events.logs.log import EventLog
from projections.store.store import TopicStore

_DIRECTORIES = uuid.UUID(int=1)


def kraft_fleet(log: EventLog, settings: ServeSettings, metadata_version: int | None) -> KraftFleet:
    """Real brokers, led by this process. Raises SettingsError for a cluster that was handed back, and for levels below
    those that the cluster has."""
    cluster = TopicStore(log).durable_cluster
    had = cluster.quorum.kraft_version if cluster.quorum is not None else 0
    _refuse_if_handed_back(cluster.quorum)
    if settings.kraft_version < had:
        raise SettingsError(f"kraft.version={settings.kraft_version}: the cluster has {had}, which cannot be lowered")
    level = cluster.feature(METADATA_VERSION_FEATURE)
    if metadata_version is not None and metadata_version < level:
        raise SettingsError(f"--metadata-version {metadata_version}: the cluster has {level}, which cannot be lowered")
    options = KraftOptions(
        node_id=settings.node_id,
        kraft_version=settings.kraft_version,
        directory_id=_directory_id(log.cluster_id, cluster.quorum),
        session_timeout_ms=settings.broker_session_timeout_ms,
        snapshot_every_bytes=settings.metadata_log_max_record_bytes_between_snapshots,
        metadata_version=metadata_version,
        leaders_balanced_every_s=_balanced_every_s(settings),
    )
    return KraftFleet(log, options, time.monotonic)


def _refuse_if_handed_back(quorum: Quorum | None) -> None:
    if quorum is not None and quorum.handed_back_to:
        raise SettingsError(
            f"the data folder was handed back to Kafka's controller, in {quorum.handed_back_to}: two would lead the "
            "same brokers. To lead again, stop that controller, `topicwright adopt --from` its folder `--data` a new "
            "one, and serve the new one"
        )


def _directory_id(cluster_id: str, quorum: Quorum | None) -> bytes:
    """The id that votes: the one that a cluster had when it was taken over, else one of its own."""
    known = quorum.directory_id if quorum is not None else b""
    return known if any(known) else uuid.uuid5(_DIRECTORIES, cluster_id).bytes


def refuse_other_fleets(log: EventLog) -> None:
    """Raise SettingsError for a log that real brokers follow: of what other brokers do, they would never learn."""
    if TopicStore(log).durable_cluster.quorum is not None:
        raise SettingsError("the data folder is that of real brokers: serve it with --brokers kraft, or choose another")


def _balanced_every_s(settings: ServeSettings) -> float | None:
    return settings.leader_imbalance_check_interval_seconds if settings.auto_leader_rebalance_enable else None


def real_broker_listener(front: Front, fleet: KraftFleet, versions_max: Mapping[str, int]) -> dict[int, ApiHandler]:
    """What real brokers, and clients with `bootstrap.controllers`, are answered by. Brokers speak for their clients by
    Envelope on the controller's own listener alone, as in Kafka."""
    by_broker = partial(needing, front, "ClusterAction")
    raft, members = fleet.raft, fleet.membership
    of_brokers: dict[int, Handler] = {
        ApiKey.FETCH: by_broker(FetchHandler(front, raft, time.monotonic), FetchResponse),
        ApiKey.FETCH_SNAPSHOT: by_broker(FetchSnapshotHandler(raft), FetchSnapshotResponse),
        ApiKey.DESCRIBE_QUORUM: needing(front, "Describe", DescribeQuorumHandler(front, fleet), DescribeQuorumResponse),
        ApiKey.BROKER_REGISTRATION: by_broker(BrokerRegistrationHandler(front, members), BrokerRegistrationResponse),
        ApiKey.BROKER_HEARTBEAT: by_broker(
            BrokerHeartbeatHandler(front, members, fleet.confirmations), BrokerHeartbeatResponse
        ),
        ApiKey.UNREGISTER_BROKER: needing(front, "Alter", UnregisterBrokerHandler(front), UnregisterBrokerResponse),
        ApiKey.UPDATE_FEATURES: UpdateFeaturesHandler(front, fleet.epoch),
    }
    table = kraft_listener(front, members, of_brokers, versions_max)
    if not fleet.is_reached_at(front.advertised):
        del table[ApiKey.ENVELOPE]
    return with_api_versions(
        table, supported_features=supported_features(), finalized=lambda: finalized_features(fleet)
    )
