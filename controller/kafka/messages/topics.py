"""Messages about topics: create, delete, describe, reassign, elect leaders."""

from controller.kafka.messages.configs import DescribeConfigsResourceResult
from controller.kafka.messages.message import OPERATIONS_OMITTED, ZERO_UUID, Message, NodeEndpoint, Outcome, TopicByName


class MetadataRequestTopic(Message, frozen=True, kw_only=True):
    """A topic by name, or by id with a null name: in Metadata from v10, in DeleteTopics from v6."""

    topic_id: bytes = ZERO_UUID  # v10+
    name: str | None = None


class MetadataRequest(Message, frozen=True, kw_only=True):
    """Metadata (3): the brokers, the controller and the topics, and auto-creation (KIP-361). `topics`: null for all,
    from v1; an empty array means all in v0 and none later. Before v4 auto-creation is always allowed."""

    topics: tuple[MetadataRequestTopic, ...] | None = ()
    allow_auto_topic_creation: bool = True  # v4+
    include_topic_authorized_operations: bool = False  # v8+
    include_cluster_authorized_operations: bool = False  # v8 to v10


class MetadataResponsePartition(Message, frozen=True, kw_only=True):
    """One partition in Metadata or DescribeTopicPartitions; `leader_id` is -1 if there is no leader."""

    error_code: int = 0
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = -1  # v7+
    replica_nodes: tuple[int, ...] = ()
    isr_nodes: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()  # v5+
    eligible_leader_replicas: tuple[int, ...] | None = ()  # DescribeTopicPartitions only, as the next
    last_known_elr: tuple[int, ...] | None = ()


class MetadataResponseTopic(Message, frozen=True, kw_only=True):
    """One topic or an error, in Metadata or DescribeTopicPartitions; from v12 of Metadata a null name if the requested
    id is unknown."""

    error_code: int = 0
    name: str | None = None
    topic_id: bytes = ZERO_UUID  # v10+
    is_internal: bool = False  # v1+
    partitions: tuple[MetadataResponsePartition, ...] = ()
    topic_authorized_operations: int = OPERATIONS_OMITTED  # v8+


class MetadataResponse(Message, frozen=True, kw_only=True):
    brokers: tuple[NodeEndpoint, ...] = ()
    cluster_id: str | None = None  # v2+
    controller_id: int = -1  # v1+
    topics: tuple[MetadataResponseTopic, ...] = ()
    error_code: int = 0  # v13+
    cluster_authorized_operations: int = OPERATIONS_OMITTED  # v8 to v10


class CreatableReplicaAssignment(Message, frozen=True, kw_only=True):
    partition_index: int = 0  # CreateTopics only
    broker_ids: tuple[int, ...] = ()


class CreatableTopicConfig(Message, frozen=True, kw_only=True):
    """One explicit config; a null value is rejected by the controller."""

    name: str = ""
    value: str | None = None


class CreatableTopic(Message, frozen=True, kw_only=True):
    """One topic to create. Counts are -1 with manual `assignments`, and from v1 to use the defaults."""

    name: str = ""
    num_partitions: int = 0
    replication_factor: int = 0
    assignments: tuple[CreatableReplicaAssignment, ...] = ()
    configs: tuple[CreatableTopicConfig, ...] = ()


class CreateTopicsRequest(Message, frozen=True, kw_only=True):
    """CreateTopics (19): KIP-4; `validate_only` and defaults for -1 from v1 (KIP-464 says v4), counts and configs in
    responses from v5 (KIP-525). `timeout_ms` is how long the client waits for the topics to be complete."""

    topics: tuple[CreatableTopic, ...] = ()
    timeout_ms: int = 60000
    validate_only: bool = False  # v1+


class CreatableTopicResult(Outcome, frozen=True, kw_only=True):
    name: str = ""
    topic_id: bytes = ZERO_UUID  # v7+
    topic_config_error_code: int = 0  # v5+, tag 0
    num_partitions: int = -1  # v5+
    replication_factor: int = -1  # v5+
    configs: tuple[DescribeConfigsResourceResult, ...] | None = ()  # v5+


class CreateTopicsResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0  # v2+
    topics: tuple[CreatableTopicResult, ...] = ()


class DeleteTopicsRequest(Message, frozen=True, kw_only=True):
    """DeleteTopics (20): by name, and from v6 by name or id (KIP-516). Topics to delete: `topic_names` up to v5,
    `topics` after."""

    topics: tuple[MetadataRequestTopic, ...] = ()  # v6+
    timeout_ms: int = 0
    topic_names: tuple[str, ...] = ()  # v0 to v5


class DeletableTopicResult(Outcome, frozen=True, kw_only=True):
    """The outcome for one topic; a null name (v6+) if the requested id is unknown."""

    name: str | None = None
    topic_id: bytes = ZERO_UUID  # v6+


class DeleteTopicsResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0  # v1+
    responses: tuple[DeletableTopicResult, ...] = ()


class CreatePartitionsTopic(Message, frozen=True, kw_only=True):
    """A topic and its new total `count`; `assignments` of the new partitions, null if the controller chooses."""

    name: str = ""
    count: int = 0
    assignments: tuple[CreatableReplicaAssignment, ...] | None = None


class CreatePartitionsRequest(Message, frozen=True, kw_only=True):
    """CreatePartitions (37): adds partitions to a topic (KIP-195)."""

    topics: tuple[CreatePartitionsTopic, ...] = ()
    timeout_ms: int = 0
    validate_only: bool = False


class CreatePartitionsTopicResult(Outcome, frozen=True, kw_only=True):
    name: str = ""


class CreatePartitionsResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0
    results: tuple[CreatePartitionsTopicResult, ...] = ()


class TopicRequest(Message, frozen=True, kw_only=True):
    name: str = ""


class Cursor(Message, frozen=True, kw_only=True):
    """The first partition of a page."""

    topic_name: str = ""
    partition_index: int = 0


class DescribeTopicPartitionsRequest(Message, frozen=True, kw_only=True):
    """DescribeTopicPartitions (75): topics page by page (KIP-966). An empty `topics` means all topics."""

    topics: tuple[TopicRequest, ...] = ()
    response_partition_limit: int = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponse(Message, frozen=True, kw_only=True):
    """One page; `next_cursor` is null on the last."""

    topics: tuple[MetadataResponseTopic, ...] = ()
    next_cursor: Cursor | None = None


class TopicPartitions(Message, frozen=True, kw_only=True):
    topic: str = ""
    partitions: tuple[int, ...] = ()


class ElectLeadersRequest(Message, frozen=True, kw_only=True):
    """ElectLeaders (43): elect preferred or unclean leaders (KIP-460)."""

    topic_partitions: tuple[TopicPartitions, ...] | None = ()
    election_type: int = 0


class ElectionPartitionResult(Outcome, frozen=True, kw_only=True):
    partition_id: int = 0


class ReplicaElectionResult(Message, frozen=True, kw_only=True):
    topic: str = ""
    partition_result: tuple[ElectionPartitionResult, ...] = ()


class ElectLeadersResponse(Message, frozen=True, kw_only=True):
    replica_election_results: tuple[ReplicaElectionResult, ...] = ()
    error_code: int = 0


class ReassignablePartition(Message, frozen=True, kw_only=True):
    partition_index: int = 0
    replicas: tuple[int, ...] | None = None


class AlterPartitionReassignmentsRequest(Message, frozen=True, kw_only=True):
    """AlterPartitionReassignments (45): move replicas (KIP-455)."""

    topics: tuple[TopicByName[ReassignablePartition], ...] = ()
    allow_replication_factor_change: bool = True


class ReassignablePartitionResponse(Outcome, frozen=True, kw_only=True):
    partition_index: int = 0


class AlterPartitionReassignmentsResponse(Outcome, frozen=True, kw_only=True):
    responses: tuple[TopicByName[ReassignablePartitionResponse], ...] = ()
    allow_replication_factor_change: bool = True


class ListPartitionReassignmentsTopics(Message, frozen=True, kw_only=True):
    name: str = ""
    partition_indexes: tuple[int, ...] = ()


class ListPartitionReassignmentsRequest(Message, frozen=True, kw_only=True):
    """ListPartitionReassignments (46): ongoing reassignments (KIP-455). A null `topics` means all."""

    topics: tuple[ListPartitionReassignmentsTopics, ...] | None = None


class OngoingPartitionReassignment(Message, frozen=True, kw_only=True):
    partition_index: int = 0
    replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()


class ListPartitionReassignmentsResponse(Message, frozen=True, kw_only=True):
    error_code: int = 0
    topics: tuple[TopicByName[OngoingPartitionReassignment], ...] = ()


ReassignableTopic = TopicByName[ReassignablePartition]
ReassignableTopicResponse = TopicByName[ReassignablePartitionResponse]
OngoingTopicReassignment = TopicByName[OngoingPartitionReassignment]
DeleteTopicState = MetadataRequestTopic
CreatePartitionsAssignment = CreatableReplicaAssignment
