"""Messages about the cluster, its brokers and its controllers; most come from brokers."""

from controller.kafka.messages.message import (
    OPERATIONS_OMITTED,
    ZERO_UUID,
    Feature,
    Listener,
    Message,
    Outcome,
    TopicById,
)


class ApiVersionsRequest(Message, frozen=True, kw_only=True):
    """ApiVersions (18): the versions of each API that a listener supports (KIP-35, KIP-511, KIP-584, KIP-1242). The
    client software, and the node that it expects to reach."""

    client_software_name: str = ""  # v3+
    client_software_version: str = ""  # v3+
    cluster_id: str | None = None  # v5+
    node_id: int = -1  # v5+


class ApiVersion(Message, frozen=True, kw_only=True):
    api_key: int = 0
    min_version: int = 0
    max_version: int = 0


class SupportedFeatureKey(Message, frozen=True, kw_only=True):
    name: str = ""  # v3+
    min_version: int = 0  # v3+
    max_version: int = 0  # v3+


class FinalizedFeatureKey(Message, frozen=True, kw_only=True):
    name: str = ""  # v3+
    max_version_level: int = 0  # v3+
    min_version_level: int = 0  # v3+


class ApiVersionsResponse(Message, frozen=True, kw_only=True):
    """`finalized_features_epoch` is -1 if unknown."""

    error_code: int = 0
    api_keys: tuple[ApiVersion, ...] = ()
    supported_features: tuple[SupportedFeatureKey, ...] = ()  # v3+, tag 0
    finalized_features_epoch: int = -1  # v3+, tag 1
    finalized_features: tuple[FinalizedFeatureKey, ...] = ()  # v3+, tag 2


BROKER_ENDPOINTS, CONTROLLER_ENDPOINTS = 1, 2
"""Endpoint types (KIP-919)."""


class DescribeClusterRequest(Message, frozen=True, kw_only=True):
    """DescribeCluster (60): cluster id, controller and brokers (KIP-700), fenced ones from v2. `endpoint_type`:
    BROKER_ENDPOINTS or CONTROLLER_ENDPOINTS."""

    include_cluster_authorized_operations: bool = False
    endpoint_type: int = 1  # v1+
    include_fenced_brokers: bool = False  # v2+


class DescribeClusterBroker(Message, frozen=True, kw_only=True):
    broker_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None
    is_fenced: bool = False  # v2+


class DescribeClusterResponse(Outcome, frozen=True, kw_only=True):
    """`cluster_authorized_operations` is a bit field (KIP-430)."""

    endpoint_type: int = 1  # v1+
    cluster_id: str = ""
    controller_id: int = -1
    brokers: tuple[DescribeClusterBroker, ...] = ()
    cluster_authorized_operations: int = OPERATIONS_OMITTED


class FeatureUpdateKey(Message, frozen=True, kw_only=True):
    feature: str = ""
    max_version_level: int = 0
    allow_downgrade: bool = False
    upgrade_type: int = 1


class UpdateFeaturesRequest(Message, frozen=True, kw_only=True):
    """UpdateFeatures (57): finalized feature levels, metadata.version among them (KIP-584, KIP-778)."""

    feature_updates: tuple[FeatureUpdateKey, ...] = ()
    validate_only: bool = False


class UpdatableFeatureResult(Outcome, frozen=True, kw_only=True):
    feature: str = ""


class UpdateFeaturesResponse(Outcome, frozen=True, kw_only=True):
    results: tuple[UpdatableFeatureResult, ...] = ()


class EnvelopeRequest(Message, frozen=True, kw_only=True):
    """Envelope (58): a request that a broker forwards for a client, with the client's principal (KIP-590)."""

    request_data: bytes = b""
    request_principal: bytes | None = None
    client_host_address: bytes = b""


class EnvelopeResponse(Message, frozen=True, kw_only=True):
    response_data: bytes | None = None
    error_code: int = 0


class BrokerRegistrationRequest(Message, frozen=True, kw_only=True):
    """BrokerRegistration (62): a broker registers (KIP-631)."""

    broker_id: int = 0
    cluster_id: str = ""
    incarnation_id: bytes = ZERO_UUID
    listeners: tuple[Listener, ...] = ()
    features: tuple[Feature, ...] = ()
    rack: str | None = None
    is_migrating_zk_broker: bool = False
    log_dirs: tuple[bytes, ...] = ()
    previous_broker_epoch: int = -1


class BrokerRegistrationResponse(Message, frozen=True, kw_only=True):
    error_code: int = 0
    broker_epoch: int = -1


class BrokerHeartbeatRequest(Message, frozen=True, kw_only=True):
    """BrokerHeartbeat (63): a broker renews its lease and reports the metadata offset that it has applied (KIP-631)."""

    broker_id: int = 0
    broker_epoch: int = -1
    current_metadata_offset: int = 0
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: tuple[bytes, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] | None = None


class BrokerHeartbeatResponse(Message, frozen=True, kw_only=True):
    error_code: int = 0
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False


class UnregisterBrokerRequest(Message, frozen=True, kw_only=True):
    """UnregisterBroker (64): removes the registration of a broker (KIP-746)."""

    broker_id: int = 0


class ControllerRegistrationRequest(Message, frozen=True, kw_only=True):
    """ControllerRegistration (70): a controller registers its endpoints and features (KIP-919)."""

    controller_id: int = 0
    incarnation_id: bytes = ZERO_UUID
    zk_migration_ready: bool = False
    listeners: tuple[Listener, ...] = ()
    features: tuple[Feature, ...] = ()


class UnregisterControllerRequest(Message, frozen=True, kw_only=True):
    """UnregisterController (94): removes the registration of a controller (KIP-1312)."""

    controller_id: int = 0


class AllocateProducerIdsRequest(Message, frozen=True, kw_only=True):
    """AllocateProducerIds (67): a block of producer ids for a broker (KIP-730)."""

    broker_id: int = 0
    broker_epoch: int = -1


class AllocateProducerIdsResponse(Message, frozen=True, kw_only=True):
    error_code: int = 0
    producer_id_start: int = 0
    producer_id_len: int = 0


class BrokerState(Message, frozen=True, kw_only=True):
    broker_id: int = 0
    broker_epoch: int = -1


class AlterPartitionData(Message, frozen=True, kw_only=True):
    partition_index: int = 0
    leader_epoch: int = 0
    new_isr: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    partition_epoch: int = 0
    new_isr_with_epochs: tuple[BrokerState, ...] = ()


class AlterPartitionRequest(Message, frozen=True, kw_only=True):
    """AlterPartition (56): a leader changes its ISR (KIP-497)."""

    broker_id: int = 0
    broker_epoch: int = -1
    topics: tuple[TopicById[AlterPartitionData], ...] = ()


class AlterPartitionResult(Message, frozen=True, kw_only=True):
    partition_index: int = 0
    error_code: int = 0
    leader_id: int = 0
    leader_epoch: int = 0
    isr: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    partition_epoch: int = 0


class AlterPartitionResponse(Message, frozen=True, kw_only=True):
    error_code: int = 0
    topics: tuple[TopicById[AlterPartitionResult], ...] = ()


class AssignReplicasPartition(Message, frozen=True, kw_only=True):
    partition_index: int = 0
    error_code: int = 0  # response only


class AssignReplicasDirectory(Message, frozen=True, kw_only=True):
    id_: bytes = ZERO_UUID
    topics: tuple[TopicById[AssignReplicasPartition], ...] = ()


class AssignReplicasToDirsRequest(Message, frozen=True, kw_only=True):
    """AssignReplicasToDirs (73): a broker reports which log directory holds each replica (KIP-858)."""

    broker_id: int = 0
    broker_epoch: int = -1
    directories: tuple[AssignReplicasDirectory, ...] = ()


class AssignReplicasToDirsResponse(Message, frozen=True, kw_only=True):
    error_code: int = 0
    directories: tuple[AssignReplicasDirectory, ...] = ()


AlterPartitionTopic = TopicById[AlterPartitionData]
AlterPartitionTopicResult = TopicById[AlterPartitionResult]
AssignReplicasTopic = TopicById[AssignReplicasPartition]
UnregisterBrokerResponse = Outcome
ControllerRegistrationResponse = Outcome
UnregisterControllerResponse = Outcome
