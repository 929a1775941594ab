"""Kafka's messages as plain values, one class for all versions of an entity, one module an API.

`APIS` names every API that the codec speaks. To add one: a module here with its classes, and a row in the table. The
layout of each version on the wire is not told here but taken from kio's schema (see `controller.kafka.codec`).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import ModuleType
from typing import Final

import msgspec

from controller.kafka.messages import (
    add_raft_voter,
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    api_versions,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_quorum,
    describe_topic_partitions,
    describe_user_scram_credentials,
    elect_leaders,
    envelope,
    expire_delegation_token,
    fetch,
    fetch_snapshot,
    incremental_alter_configs,
    list_offsets,
    list_partition_reassignments,
    metadata,
    produce,
    remove_raft_voter,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    unregister_broker,
    update_features,
)
from controller.kafka.messages.message import OPERATIONS_OMITTED, ZERO_UUID, Encoded, Message

__all__ = ["APIS", "OPERATIONS_OMITTED", "ZERO_UUID", "Api", "ApiKey", "Encoded", "Message"]


class ApiKey(enum.IntEnum):
    """Kafka's numbers for the APIs spoken here."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    ALLOCATE_PRODUCER_IDS = 67
    ASSIGN_REPLICAS_TO_DIRS = 73
    DESCRIBE_TOPIC_PARTITIONS = 75
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81


class Api(msgspec.Struct, frozen=True):
    """One API: its key, Kafka's name, its two messages and the versions that the codec can read and write."""

    key: ApiKey
    name: str
    request: type[Message]
    response: type[Message]
    min_version: int
    max_version: int


def _api(key: ApiKey, module: ModuleType, min_version: int, max_version: int) -> Api:
    """A row whose messages are named as the API is."""
    name = "".join(word.capitalize() for word in key.name.split("_"))
    return Api(
        key, name, getattr(module, f"{name}Request"), getattr(module, f"{name}Response"), min_version, max_version
    )


_OF_REAL_BROKERS = (
    _api(ApiKey.FETCH, fetch, 12, 18),
    _api(ApiKey.LIST_OFFSETS, list_offsets, 4, 11),
    _api(ApiKey.ELECT_LEADERS, elect_leaders, 0, 2),
    _api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, alter_partition_reassignments, 0, 1),
    _api(ApiKey.DESCRIBE_QUORUM, describe_quorum, 0, 2),
    _api(ApiKey.ALTER_PARTITION, alter_partition, 2, 3),
    _api(ApiKey.UPDATE_FEATURES, update_features, 0, 2),
    _api(ApiKey.ENVELOPE, envelope, 0, 0),
    _api(ApiKey.FETCH_SNAPSHOT, fetch_snapshot, 0, 1),
    _api(ApiKey.BROKER_REGISTRATION, broker_registration, 0, 4),
    _api(ApiKey.BROKER_HEARTBEAT, broker_heartbeat, 0, 2),
    _api(ApiKey.UNREGISTER_BROKER, unregister_broker, 0, 0),
    _api(ApiKey.ALLOCATE_PRODUCER_IDS, allocate_producer_ids, 0, 0),
    _api(ApiKey.ASSIGN_REPLICAS_TO_DIRS, assign_replicas_to_dirs, 0, 0),
    _api(ApiKey.CREATE_DELEGATION_TOKEN, create_delegation_token, 1, 3),
    _api(ApiKey.RENEW_DELEGATION_TOKEN, renew_delegation_token, 1, 2),
    _api(ApiKey.EXPIRE_DELEGATION_TOKEN, expire_delegation_token, 1, 2),
    _api(ApiKey.ADD_RAFT_VOTER, add_raft_voter, 0, 1),
    _api(ApiKey.REMOVE_RAFT_VOTER, remove_raft_voter, 0, 0),
)
"""What real brokers and their controller say to each other, or pass on for clients."""

_ROWS = (
    *_OF_REAL_BROKERS,
    Api(ApiKey.PRODUCE, "Produce", produce.ProduceRequest, produce.ProduceResponse, 3, 13),
    Api(ApiKey.METADATA, "Metadata", metadata.MetadataRequest, metadata.MetadataResponse, 0, 13),
    Api(ApiKey.API_VERSIONS, "ApiVersions", api_versions.ApiVersionsRequest, api_versions.ApiVersionsResponse, 0, 4),
    Api(
        ApiKey.CREATE_TOPICS,
        "CreateTopics",
        create_topics.CreateTopicsRequest,
        create_topics.CreateTopicsResponse,
        0,
        7,
    ),
    Api(
        ApiKey.DELETE_TOPICS,
        "DeleteTopics",
        delete_topics.DeleteTopicsRequest,
        delete_topics.DeleteTopicsResponse,
        0,
        6,
    ),
    Api(
        ApiKey.DESCRIBE_CONFIGS,
        "DescribeConfigs",
        describe_configs.DescribeConfigsRequest,
        describe_configs.DescribeConfigsResponse,
        0,
        4,
    ),
    Api(
        ApiKey.ALTER_CONFIGS,
        "AlterConfigs",
        alter_configs.AlterConfigsRequest,
        alter_configs.AlterConfigsResponse,
        0,
        2,
    ),
    Api(
        ApiKey.CREATE_PARTITIONS,
        "CreatePartitions",
        create_partitions.CreatePartitionsRequest,
        create_partitions.CreatePartitionsResponse,
        0,
        3,
    ),
    Api(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        "IncrementalAlterConfigs",
        incremental_alter_configs.IncrementalAlterConfigsRequest,
        incremental_alter_configs.IncrementalAlterConfigsResponse,
        0,
        1,
    ),
    Api(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        "ListPartitionReassignments",
        list_partition_reassignments.ListPartitionReassignmentsRequest,
        list_partition_reassignments.ListPartitionReassignmentsResponse,
        0,
        0,
    ),
    Api(
        ApiKey.DESCRIBE_CLUSTER,
        "DescribeCluster",
        describe_cluster.DescribeClusterRequest,
        describe_cluster.DescribeClusterResponse,
        0,
        2,
    ),
    Api(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        "DescribeTopicPartitions",
        describe_topic_partitions.DescribeTopicPartitionsRequest,
        describe_topic_partitions.DescribeTopicPartitionsResponse,
        0,
        0,
    ),
    Api(
        ApiKey.SASL_HANDSHAKE,
        "SaslHandshake",
        sasl_handshake.SaslHandshakeRequest,
        sasl_handshake.SaslHandshakeResponse,
        0,
        1,
    ),
    Api(
        ApiKey.SASL_AUTHENTICATE,
        "SaslAuthenticate",
        sasl_authenticate.SaslAuthenticateRequest,
        sasl_authenticate.SaslAuthenticateResponse,
        0,
        2,
    ),
    Api(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        "DescribeUserScramCredentials",
        describe_user_scram_credentials.DescribeUserScramCredentialsRequest,
        describe_user_scram_credentials.DescribeUserScramCredentialsResponse,
        0,
        0,
    ),
    Api(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        "AlterUserScramCredentials",
        alter_user_scram_credentials.AlterUserScramCredentialsRequest,
        alter_user_scram_credentials.AlterUserScramCredentialsResponse,
        0,
        0,
    ),
    Api(
        ApiKey.DESCRIBE_ACLS,
        "DescribeAcls",
        describe_acls.DescribeAclsRequest,
        describe_acls.DescribeAclsResponse,
        1,
        3,
    ),
    Api(
        ApiKey.CREATE_ACLS,
        "CreateAcls",
        create_acls.CreateAclsRequest,
        create_acls.CreateAclsResponse,
        1,
        3,
    ),
    Api(
        ApiKey.DELETE_ACLS,
        "DeleteAcls",
        delete_acls.DeleteAclsRequest,
        delete_acls.DeleteAclsResponse,
        1,
        3,
    ),
    Api(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        "DescribeClientQuotas",
        describe_client_quotas.DescribeClientQuotasRequest,
        describe_client_quotas.DescribeClientQuotasResponse,
        0,
        1,
    ),
    Api(
        ApiKey.ALTER_CLIENT_QUOTAS,
        "AlterClientQuotas",
        alter_client_quotas.AlterClientQuotasRequest,
        alter_client_quotas.AlterClientQuotasResponse,
        0,
        1,
    ),
)

APIS: Final[Mapping[int, Api]] = {api.key: api for api in _ROWS}
"""Every API spoken here, by key."""
