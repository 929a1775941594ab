"""The table of each listener without KRaft: the APIs that it answers, by API key, with versions and handler.

The controller's own listener answers every API. The listener of a simulated broker rejects changes of topics with
NOT_CONTROLLER (KIP-4). A listener in front of a target cluster forwards requests that are not about topics.
"""

from collections.abc import Callable, Mapping
from functools import partial

from controller.apis import ApiFunction, access, bound, cluster, configs, forwarding, guarded, records, topics
from controller.apis.cluster import NEWEST, finalized_keys, supported_features, with_api_versions
from controller.apis.limits import ACCESS_CHANGES, ACCESS_READS, CHANGES, NOT_CONTROLLER_HANDLERS, bounded
from controller.apis.metadata import metadata_handler
from controller.apis.partitions import elect_leaders, list_reassignments
from controller.brokers.cluster.link import ClusterLink
from controller.controller_api import ControllerApi
from controller.kafka.codec.primitives import ELEMENTS_MAX
from controller.kafka.handling import ApiHandler, Handler
from controller.kafka.messages import APIS, ApiKey
from controller.kafka.sasl_gate import UNEXPECTED_SASL
from controller.quorum.features import SUPPORTED
from events.names import BrokerId

HandlerTable = Mapping[int, ApiHandler]

_ELEMENTS_MAX: Mapping[int, int] = {
    **dict.fromkeys(CHANGES, 16_000),  # up to 10,000 (`RECORDS_PER_REQUEST_MAX`), some with several elements
    ApiKey.ELECT_LEADERS: 8_000,  # 64,000 partitions take 50 ms to encode
    **dict.fromkeys((ApiKey.DESCRIBE_PRODUCERS, ApiKey.OFFSET_FETCH), 4_000),  # 32,000 partitions take about 10 ms
    ApiKey.ALTER_PARTITION: 400_000,  # in one report of a broker: the in-sync replicas of 100,000 partitions
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: 400_000,
}
"""The most array elements in a request, for APIs whose limit is not `ELEMENTS_MAX`."""
_FINALIZED = 0, finalized_keys(NEWEST)
_LISTS = ACCESS_READS | {
    ApiKey.METADATA, ApiKey.DESCRIBE_CONFIGS, ApiKey.DESCRIBE_TOPIC_PARTITIONS, ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
}  # fmt: skip
"""Requests that may return all topics, ACLs, quotas or users: a connection processes one at a time."""


def controller_listener(api: ControllerApi) -> HandlerTable:
    of_cluster = bound(api, {ApiKey.ELECT_LEADERS: elect_leaders, ApiKey.UPDATE_FEATURES: cluster.update_features})
    handlers = {**_simulated_reads(api), **administration(api), **guarded(api, of_cluster)}
    return _listener(handlers, api.is_expected_node)


def administration(api: ControllerApi, create_ms_max: int | None = None) -> dict[int, Handler]:
    """The handlers of APIs that change something or describe SCRAM credentials. `create_ms_max` caps the timeout of
    CreateTopics."""
    changes: dict[int, ApiFunction] = {
        ApiKey.CREATE_TOPICS: partial(topics.create_topics, create_ms_max),
        ApiKey.DELETE_TOPICS: topics.delete_topics,
        ApiKey.CREATE_PARTITIONS: topics.create_partitions,
        ApiKey.ALTER_CONFIGS: configs.alter_configs,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.alter_configs,
    }
    of_access: dict[int, ApiFunction] = {
        ApiKey.CREATE_ACLS: access.create_acls,
        ApiKey.DELETE_ACLS: access.delete_acls,
        ApiKey.ALTER_CLIENT_QUOTAS: access.alter_client_quotas,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: access.alter_user_scram_credentials,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: access.describe_user_scram_credentials,
    }
    return bound(api, {key: bounded(key, function) for key, function in changes.items()} | of_access)


def descriptions(api: ControllerApi) -> dict[int, Handler]:
    """The handlers that every listener has: configs, ACLs and quotas."""
    functions: dict[int, ApiFunction] = {
        ApiKey.DESCRIBE_CONFIGS: configs.describe_configs,
        ApiKey.DESCRIBE_ACLS: access.describe_acls,
        ApiKey.DESCRIBE_CLIENT_QUOTAS: access.describe_client_quotas,
    }
    return bound(api, functions)


def cluster_listener(
    api: ControllerApi,
    broker_id: BrokerId | None = None,
    *,
    link: ClusterLink,
    has_own_access: bool,
    hidden_group: str | None = None,
) -> HandlerTable:
    """A listener in front of a target cluster: this process's own, or one for the broker `broker_id`. Requests that are
    not about topics are forwarded to that broker, or to any; also those about ACLs, users and quotas, unless this
    process `has_own_access`. ListGroups omits `hidden_group`."""
    broker_apis = link.api_versions.api_keys
    forward = link.forward if broker_id is None else forwarding.to_broker(api, broker_id, link.forward)
    is_expected_node = api.is_expected_node if broker_id is None else _at_broker(api, broker_id)
    table = dict(_listener({**_read_handlers(api), **administration(api)}, is_expected_node))
    del table[ApiKey.API_VERSIONS]
    for key in () if has_own_access else ACCESS_READS | ACCESS_CHANGES:
        del table[key]  # these are the cluster's own
    table |= forwarding.to_brokers(api, table, broker_apis, forward)
    own, at_broker = {*table, int(ApiKey.API_VERSIONS)}, broker_id is not None
    if at_broker:  # clients must move on to the address of the broker itself
        table[ApiKey.METADATA] = forwarding.metadata_then_close(table[ApiKey.METADATA])
        table[ApiKey.PRODUCE] = forwarding.produce_closes(table[ApiKey.PRODUCE])
    forwarded = forwarding.forwarding_rows(broker_apis, own, forward, api.grants, at_broker)
    if hidden_group is not None and ApiKey.LIST_GROUPS in forwarded:
        forwarded[ApiKey.LIST_GROUPS] = forwarding.without_group(forwarded[ApiKey.LIST_GROUPS], hidden_group)
    return with_api_versions(
        table | forwarded,
        supported_features=link.api_versions.supported_features,
        finalized=lambda: (link.api_versions.finalized_features_epoch, link.api_versions.finalized_features),
        is_expected_node=is_expected_node,
    )


def broker_listener(api: ControllerApi, broker_id: int) -> HandlerTable:
    """A simulated broker's listener."""
    handlers = {**_simulated_reads(api), **administration(api), **NOT_CONTROLLER_HANDLERS}
    return _listener(handlers, _at_broker(api, broker_id))


def _at_broker(api: ControllerApi, broker_id: int) -> Callable[[str, int], bool]:
    """Returns a check that a client at this broker's listener expects this cluster and broker (KIP-1242)."""
    return lambda cluster_id, node_id: (cluster_id, node_id) == (api.cluster_id, broker_id)


def _read_handlers(api: ControllerApi) -> dict[int, Handler]:
    """The handlers of reads: topics, brokers, configs, ACLs and quotas."""
    functions: dict[int, ApiFunction] = {
        ApiKey.DESCRIBE_CLUSTER: partial(cluster.describe_cluster, None),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: topics.describe_topic_partitions,
    }
    return {**descriptions(api), **bound(api, functions), ApiKey.METADATA: metadata_handler(api)}


def _simulated_reads(api: ControllerApi) -> dict[int, Handler]:
    of_cluster: dict[int, ApiFunction] = {
        ApiKey.DESCRIBE_QUORUM: cluster.describe_quorum,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: list_reassignments,
    }
    others: dict[int, ApiFunction] = {
        ApiKey.DESCRIBE_DELEGATION_TOKEN: access.describe_delegation_tokens,
        ApiKey.LIST_CONFIG_RESOURCES: configs.list_config_resources,
    }
    return {**_read_handlers(api), **records.reads(api), **guarded(api, bound(api, of_cluster)), **bound(api, others)}


def _listener(handlers: Mapping[int, Handler], is_expected_node: Callable[[str, int], bool]) -> HandlerTable:
    """A table of these handlers, SASL, Produce and ApiVersions, for which `is_expected_node` checks the ids."""
    table = rows({**handlers, **UNEXPECTED_SASL})
    table[ApiKey.PRODUCE] = records.PRODUCE_ROW
    return with_api_versions(
        table,
        supported_features=supported_features(SUPPORTED),
        finalized=lambda: _FINALIZED,
        is_expected_node=is_expected_node,
    )


def rows(handlers: Mapping[int, Handler]) -> dict[int, ApiHandler]:
    return {
        key: ApiHandler(
            APIS[key].min_version,
            APIS[key].max_version,
            handle,
            elements_max=_ELEMENTS_MAX.get(key, ELEMENTS_MAX),
            is_exclusive=key in _LISTS,
        )
        for key, handle in handlers.items()
    }
