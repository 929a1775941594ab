"""Creates the brokers and the handlers of the controller listener for `topicwright serve --brokers kraft`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from controller.apis.cluster import with_api_versions
from controller.apis.kraft.features import finalized_features, supported_features
from controller.apis.kraft.listener import kraft_listener
from controller.brokers.kraft.kraft_brokers import KraftBrokers
from controller.controller_api import ControllerApi
from controller.kafka.handling import ApiHandler
from controller.kafka.messages import ApiKey
from controller.quorum.log.record_kinds import METADATA_VERSION_FEATURE
from controller.serving.quorum_member import Member
from controller.settings.load import ServeSettings, SettingsError
from controller.store.store import TopicStore
from events.logs.log import EventLog

NOT_FOR_CLIENTS: Final = frozenset(
    {
        ApiKey.FETCH,
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.ALTER_PARTITION,
        ApiKey.ENVELOPE,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.UPDATE_RAFT_VOTER,
    }
)
"""APIs for brokers and controllers: the APIs that Kafka has only on controller listeners, Fetch of the metadata log,
and changes of voters."""


def kraft_brokers(log: EventLog, member: Member, settings: ServeSettings, metadata_version: int | None) -> KraftBrokers:
    """The KRaft brokers of this process. Raises SettingsError if the cluster was handed back to Kafka's controllers,
    or if a setting would lower a feature level."""
    cluster, had = TopicStore(log).durable_cluster, member.node.quorum.kraft_version
    quorum = cluster.quorum
    if quorum is not None and quorum.handed_back_to:
        raise SettingsError(
            f"the data folder was handed back to Kafka's controller, in {quorum.handed_back_to}: served, it would be a "
            "second controller of the same brokers. To take the cluster back, stop that controller, run "
            f"`topicwright adopt --from {quorum.handed_back_to} --data NEW`, and serve NEW"
        )
    if settings.kraft_version < had and member.is_alone:
        raise SettingsError(f"kraft.version={settings.kraft_version}: the cluster has {had}, which cannot be lowered")
    level = cluster.feature(METADATA_VERSION_FEATURE)
    if metadata_version is not None and metadata_version < level:
        raise SettingsError(f"--metadata-version {metadata_version}: the cluster has {level}, which cannot be lowered")
    node, replication = member.node, member.replication
    return KraftBrokers(member.projector, node, replication, settings, metadata_version, time.monotonic)


def refuse_other_brokers(log: EventLog) -> None:
    """Raise SettingsError if the log has KRaft brokers, because this process would not send them any changes."""
    if TopicStore(log).durable_cluster.quorum is not None:
        raise SettingsError(
            "the data folder has the log of a KRaft controller: serve it with --brokers kraft, or choose another --data"
        )


def kraft_broker_listener(
    brokers: KraftBrokers, of_brokers_name: str, api: ControllerApi, versions_max: Mapping[str, int], priority: int = 0
) -> dict[int, ApiHandler]:
    """Handlers by API key: for brokers and controllers on the listener `of_brokers_name`, for clients on any other.
    `priority` is the leader priority that this voter reports."""
    table = kraft_listener(api, brokers, versions_max)
    if api.advertised.name != of_brokers_name:
        table = {key: handler for key, handler in table.items() if key not in NOT_FOR_CLIENTS}
    features = supported_features(priority)
    return with_api_versions(table, supported_features=features, finalized=lambda: finalized_features(brokers))
