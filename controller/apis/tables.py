"""Which APIs a listener speaks, in which versions, and who answers them.

Two kinds of listener: the controller's, where everything is decided, and a simulated broker's, which knows the topics
and sends admin requests away (KIP-4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from controller.apis import (
    acls,
    client_quotas,
    cluster,
    configs,
    create_partitions,
    for_each,
    no_records,
    user_scram_credentials,
)
from controller.apis.api_versions import finalized_keys, supported_features, with_api_versions
from controller.apis.bounds import CHANGES, bounded
from controller.apis.cluster_configs import to_brokers
from controller.apis.create_topics import CreateTopicsHandler
from controller.apis.delete_topics import DeleteTopicsHandler
from controller.apis.describe_topic_partitions import DescribeTopicPartitionsHandler
from controller.apis.metadata import MetadataHandler
from controller.apis.passing_through import RecordClients, SentOn, closing, passing, showing_addresses, to_broker
from controller.apis.produce import produce
from controller.apis.sasl import not_expected
from controller.brokers.cluster.link import ClusterLink
from controller.brokers.kraft.features import METADATA_VERSION_MAX, SUPPORTED, features_at
from controller.controller_api import ControllerApi
from controller.kafka.codec.primitives import ELEMENTS_MAX
from controller.kafka.handling import ApiHandler, Handler
from controller.kafka.messages import APIS, ApiKey
from controller.machine.configs.groups import GROUPS
from controller.machine.state import BROKERS
from events.names import BrokerId

HandlerTable = Mapping[int, ApiHandler]

ELEMENTS_OF_BROKERS_MAX = 400_000
"""In one report of a broker: the in-sync replicas of 100,000 partitions."""
ELEMENTS_OF_OFFSETS_MAX = 4_000
"""In one OffsetFetch: 32,000 partitions are answered in some ten milliseconds."""
ELEMENTS_OF_CHANGES_MAX = 16_000
"""In one request that changes things, which may change 10,000 of them: some parts have parts."""
_NEWEST = 0, finalized_keys(features_at(METADATA_VERSION_MAX))
"""The finalized features of simulated brokers: always the newest levels."""
_REPORTS = frozenset({ApiKey.ALTER_PARTITION, ApiKey.ASSIGN_REPLICAS_TO_DIRS})
_LISTS = frozenset(
    {
        ApiKey.METADATA,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
    }
)
"""What may be answered by everything that there is: one at a time for a connection."""


def controller_listener(api: ControllerApi, versions_max: Mapping[str, int]) -> HandlerTable:
    """The controller's own listener. `versions_max` caps the versions of APIs by name (`api.versions.max`)."""
    handlers = {**_reading(api), **no_records.reads(api), **administration(api)}
    return _listener(handlers, versions_max, api.is_node)


def administration(
    api: ControllerApi, create_ms_max: int | None = None, other_configs: frozenset[int] = frozenset({BROKERS, GROUPS})
) -> dict[int, Handler]:
    """What only a controller answers: changes, and who may log in. A create keeps nobody waiting for longer than
    `create_ms_max`; configs of the kinds `other_configs` can be altered as those of topics can."""
    changes: dict[ApiKey, Handler] = {
        ApiKey.CREATE_TOPICS: CreateTopicsHandler(api, create_ms_max),
        ApiKey.DELETE_TOPICS: DeleteTopicsHandler(api),
        ApiKey.CREATE_PARTITIONS: partial(create_partitions.create_partitions, api),
        ApiKey.ALTER_CONFIGS: partial(configs.alter_configs, api, other_configs),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: partial(configs.incremental_alter_configs, api, other_configs),
        ApiKey.CREATE_ACLS: partial(acls.create_acls, api),
        ApiKey.DELETE_ACLS: partial(acls.delete_acls, api),
        ApiKey.ALTER_CLIENT_QUOTAS: partial(client_quotas.alter_client_quotas, api),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: partial(user_scram_credentials.alter_user_scram_credentials, api),
    }
    return {
        **{key: bounded(api, key, handle) for key, handle in changes.items()},
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: partial(user_scram_credentials.describe_user_scram_credentials, api),
    }


def descriptions(api: ControllerApi) -> dict[int, Handler]:
    """What every listener answers: configs, access control entries and quotas."""
    return {
        ApiKey.DESCRIBE_CONFIGS: partial(configs.describe_configs, api),
        ApiKey.DESCRIBE_ACLS: partial(acls.describe_acls, api),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: partial(client_quotas.describe_client_quotas, api),
    }


def cluster_listener(
    api: ControllerApi,
    versions_max: Mapping[str, int],
    broker_id: BrokerId | None = None,
    *,
    link: ClusterLink,
    clients: RecordClients,
) -> HandlerTable:
    """A listener in front of a cluster: this process's own, or that of the broker `broker_id`. Requests that are not
    about topics go to that broker, else to any. `clients` is shared by all listeners."""
    spoken = link.spoken.api_keys
    forward = link.forward if broker_id is None else to_broker(api, broker_id, link.forward)
    is_node = api.is_node if broker_id is None else _at_broker(api, broker_id)
    table = dict(_listener({**_reading(api), **administration(api)}, versions_max, is_node))
    del table[ApiKey.API_VERSIONS]
    del table[ApiKey.LIST_PARTITION_REASSIGNMENTS]  # reassignments are the cluster's own
    table |= to_brokers(api, table, spoken, forward, broker_id)
    own, is_a_brokers = {*table, int(ApiKey.API_VERSIONS)}, broker_id is not None
    table[ApiKey.METADATA] = showing_addresses(table[ApiKey.METADATA], clients, closes=is_a_brokers)
    if is_a_brokers:
        table |= closing(spoken, clients)
    sent_on = SentOn() if api.broker_ports is None else None
    if sent_on is not None:
        table[ApiKey.METADATA] = sent_on.answering(table[ApiKey.METADATA])
    may_pass = partial(api.grants, operation="ClusterAction")
    passed = passing(spoken, own, forward, may_pass, clients, sent_on)
    return with_api_versions(
        table | passed,
        supported_features=link.spoken.supported_features,
        finalized=lambda: (link.spoken.finalized_features_epoch, link.spoken.finalized_features),
        is_node=is_node,
    )


def broker_listener(api: ControllerApi, versions_max: Mapping[str, int], broker_id: int) -> HandlerTable:
    """A broker's listener: reads are answered, admin requests get NOT_CONTROLLER."""
    return _listener(
        {**_reading(api), **no_records.reads(api), **for_each.SENT_AWAY},
        versions_max,
        _at_broker(api, broker_id),
    )


def _at_broker(api: ControllerApi, broker_id: int) -> Callable[[str, int], bool]:
    """The check that a client at this broker's listener expects this broker (KIP-1242)."""
    return lambda cluster_id, node_id: (cluster_id, node_id) == (api.cluster_id, broker_id)


def _reading(api: ControllerApi) -> dict[int, Handler]:
    return {
        **descriptions(api),
        ApiKey.METADATA: MetadataHandler(api),
        ApiKey.DESCRIBE_CLUSTER: partial(cluster.describe_cluster, api),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: DescribeTopicPartitionsHandler(api),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: partial(cluster.list_partition_reassignments, api),
    }


def _listener(
    handlers: Mapping[int, Handler], versions_max: Mapping[str, int], is_node: Callable[[str, int], bool]
) -> HandlerTable:
    table = rows(handlers, versions_max) | rows(not_expected, {})
    table[ApiKey.PRODUCE] = produce()
    return with_api_versions(
        table, supported_features=supported_features(SUPPORTED), finalized=lambda: _NEWEST, is_node=is_node
    )


def rows(handlers: Mapping[int, Handler], versions_max: Mapping[str, int]) -> dict[int, ApiHandler]:
    """The rows of a listener's table; `versions_max` caps the versions of APIs by name."""
    return {
        key: ApiHandler(
            api.min_version,
            min(api.max_version, versions_max.get(api.name, 99)),
            handle,
            elements_max=_elements_max(key),
            alone=key in _LISTS,
        )
        for key, handle in handlers.items()
        for api in (APIS[key],)
    }


def _elements_max(key: int) -> int:
    if key in _REPORTS:
        return ELEMENTS_OF_BROKERS_MAX
    if key == ApiKey.OFFSET_FETCH:
        return ELEMENTS_OF_OFFSETS_MAX
    return ELEMENTS_OF_CHANGES_MAX if key in CHANGES else ELEMENTS_MAX
