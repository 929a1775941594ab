"""Which APIs a listener speaks, in which versions, and who answers them.

Two kinds of listener: the controller's, where everything is decided, and a simulated broker's, which knows the topics
and sends admin requests away (KIP-4).
"""

from __future__ import annotations

from collections.abc import Mapping

from controller.kafka.handlers import not_controller
from controller.kafka.handlers.acls import CreateAclsHandler, DeleteAclsHandler, DescribeAclsHandler
from controller.kafka.handlers.api_versions import with_api_versions
from controller.kafka.handlers.client_quotas import AlterClientQuotasHandler, DescribeClientQuotasHandler
from controller.kafka.handlers.cluster import DescribeClusterHandler, ListPartitionReassignmentsHandler
from controller.kafka.handlers.configs import (
    AlterConfigsHandler,
    DescribeConfigsHandler,
    IncrementalAlterConfigsHandler,
)
from controller.kafka.handlers.create_partitions import CreatePartitionsHandler
from controller.kafka.handlers.create_topics import CreateTopicsHandler
from controller.kafka.handlers.delete_topics import DeleteTopicsHandler
from controller.kafka.handlers.describe_topic_partitions import DescribeTopicPartitionsHandler
from controller.kafka.handlers.metadata import MetadataHandler
from controller.kafka.handlers.produce import produce
from controller.kafka.handlers.sasl import not_expected
from controller.kafka.handlers.user_scram_credentials import (
    AlterUserScramCredentialsHandler,
    DescribeUserScramCredentialsHandler,
)
from controller.kafka.handling import ApiHandler, Handler
from controller.kafka.messages import APIS, ApiKey
from controller.kafka.messages.api_versions import ApiVersionsResponse
from controller.kafka.passing_through import PassOn, passing
from controller.runtime.front import Front

HandlerTable = Mapping[int, ApiHandler]


def controller_listener(front: Front, versions_max: Mapping[str, int]) -> HandlerTable:
    """The controller's own listener. `versions_max` caps the versions of APIs by name (`api.versions.max`)."""
    handlers: dict[int, Handler] = {
        **_reading(front),
        ApiKey.CREATE_TOPICS: CreateTopicsHandler(front),
        ApiKey.DELETE_TOPICS: DeleteTopicsHandler(front),
        ApiKey.CREATE_PARTITIONS: CreatePartitionsHandler(front),
        ApiKey.ALTER_CONFIGS: AlterConfigsHandler(front),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: IncrementalAlterConfigsHandler(front),
        ApiKey.CREATE_ACLS: CreateAclsHandler(front),
        ApiKey.DELETE_ACLS: DeleteAclsHandler(front),
        ApiKey.ALTER_CLIENT_QUOTAS: AlterClientQuotasHandler(front),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: AlterUserScramCredentialsHandler(front),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: DescribeUserScramCredentialsHandler(front),
    }
    return _table(handlers, versions_max)


def cluster_listener(
    front: Front, versions_max: Mapping[str, int], brokers: ApiVersionsResponse, pass_on: PassOn
) -> HandlerTable:
    """The controller's listener in front of a cluster: what is not about topics goes to one of its brokers, which speak
    what `brokers` says."""
    table = dict(controller_listener(front, versions_max))
    del table[ApiKey.API_VERSIONS]
    del table[ApiKey.LIST_PARTITION_REASSIGNMENTS]  # reassignments are the cluster's own
    own = {*table, int(ApiKey.API_VERSIONS)}
    return with_api_versions(
        {**table, **passing(brokers.api_keys, own, pass_on, lambda context: front.grants(context, "ClusterAction"))},
        supported_features=brokers.supported_features,
        finalized=lambda: (brokers.finalized_features_epoch, brokers.finalized_features),
    )


def broker_listener(front: Front, versions_max: Mapping[str, int]) -> HandlerTable:
    """A broker's listener: reads are answered, admin requests get NOT_CONTROLLER."""
    handlers: dict[int, Handler] = {
        **_reading(front),
        ApiKey.CREATE_TOPICS: not_controller.create_topics,
        ApiKey.DELETE_TOPICS: not_controller.delete_topics,
        ApiKey.CREATE_PARTITIONS: not_controller.create_partitions,
        ApiKey.ALTER_CONFIGS: not_controller.alter_configs,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: not_controller.incremental_alter_configs,
        ApiKey.CREATE_ACLS: not_controller.create_acls,
        ApiKey.DELETE_ACLS: not_controller.delete_acls,
        ApiKey.ALTER_CLIENT_QUOTAS: not_controller.alter_client_quotas,
    }
    return _table(handlers, versions_max)


def _reading(front: Front) -> dict[int, Handler]:
    return {
        ApiKey.METADATA: MetadataHandler(front),
        ApiKey.DESCRIBE_CONFIGS: DescribeConfigsHandler(front),
        ApiKey.DESCRIBE_CLUSTER: DescribeClusterHandler(front),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: DescribeTopicPartitionsHandler(front),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: ListPartitionReassignmentsHandler(front),
        ApiKey.DESCRIBE_ACLS: DescribeAclsHandler(front),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: DescribeClientQuotasHandler(front),
    }


def _table(handlers: Mapping[int, Handler], versions_max: Mapping[str, int]) -> HandlerTable:
    table: dict[int, ApiHandler] = {}
    for key, handle in handlers.items():
        api = APIS[key]
        table[key] = ApiHandler(api.min_version, min(api.max_version, versions_max.get(api.name, 99)), handle)
    table[ApiKey.PRODUCE] = produce()
    for key, handle in not_expected.items():
        table[key] = ApiHandler(APIS[key].min_version, APIS[key].max_version, handle)
    return with_api_versions(table)
