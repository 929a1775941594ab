"""Messages of producers and consumers, which Topicwright answers with errors or passes to the brokers."""

from controller.kafka.messages.message import OPERATIONS_OMITTED, ZERO_UUID, LeaderIdAndEpoch, Message, NodeEndpoint

# Produce (0): advertised, because old clients hang without it, but rejected.


class PartitionProduceData(Message, frozen=True, kw_only=True):
    index: int = 0
    records: bytes | None = None


class TopicProduceData(Message, frozen=True, kw_only=True):
    """Records for one topic, named by id from v13 on."""

    topic_id: bytes = ZERO_UUID  # v13+
    partition_data: tuple[PartitionProduceData, ...] = ()
    name: str = ""  # v3 to v12


class ProduceRequest(Message, frozen=True, kw_only=True):
    """`acks`: 0 for no response, 1 for the leader, -1 for all in sync."""

    transactional_id: str | None = None
    acks: int = 0
    timeout_ms: int = 0
    topic_data: tuple[TopicProduceData, ...] = ()


class BatchIndexAndErrorMessage(Message, frozen=True, kw_only=True):
    """A record that caused its batch to be rejected (KIP-467)."""

    batch_index: int = 0  # v8+
    batch_index_error_message: str | None = None  # v8+


class PartitionProduceResponse(Message, frozen=True, kw_only=True):
    """The outcome for one partition. `log_append_time_ms` is -1 unless the topic stamps records on append."""

    index: int = 0
    error_code: int = 0
    base_offset: int = 0
    log_append_time_ms: int = -1
    log_start_offset: int = -1  # v5+
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = ()  # v8+
    error_message: str | None = None  # v8+
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()  # v10+, tag 0


class TopicProduceResponse(Message, frozen=True, kw_only=True):
    topic_id: bytes = ZERO_UUID  # v13+
    partition_responses: tuple[PartitionProduceResponse, ...] = ()
    name: str = ""  # v3 to v12


class ProduceResponse(Message, frozen=True, kw_only=True):
    responses: tuple[TopicProduceResponse, ...] = ()
    throttle_time_ms: int = 0
    node_endpoints: tuple[NodeEndpoint, ...] = ()  # v10+, tag 0


# ListOffsets (2): offsets of partitions by timestamp. Topicwright also sends it, to probe whether brokers lead.


class ListOffsetsPartition(Message, frozen=True, kw_only=True):
    partition_index: int = 0
    current_leader_epoch: int = -1
    timestamp: int = 0


class ListOffsetsTopic(Message, frozen=True, kw_only=True):
    name: str = ""
    partitions: tuple[ListOffsetsPartition, ...] = ()


class ListOffsetsRequest(Message, frozen=True, kw_only=True):
    replica_id: int = 0
    isolation_level: int = 0
    topics: tuple[ListOffsetsTopic, ...] = ()
    timeout_ms: int = 0


class ListOffsetsPartitionResponse(Message, frozen=True, kw_only=True):
    partition_index: int = 0
    error_code: int = 0
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


class ListOffsetsTopicResponse(Message, frozen=True, kw_only=True):
    name: str = ""
    partitions: tuple[ListOffsetsPartitionResponse, ...] = ()


class ListOffsetsResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0
    topics: tuple[ListOffsetsTopicResponse, ...] = ()


# OffsetFetch (9): the committed offsets of a group.


class OffsetFetchRequestTopic(Message, frozen=True, kw_only=True):
    name: str = ""
    partition_indexes: tuple[int, ...] = ()


class OffsetFetchRequest(Message, frozen=True, kw_only=True):
    group_id: str = ""
    topics: tuple[OffsetFetchRequestTopic, ...] | None = None
    require_stable: bool = False


class OffsetFetchResponsePartition(Message, frozen=True, kw_only=True):
    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    metadata: str | None = None
    error_code: int = 0


class OffsetFetchResponseTopic(Message, frozen=True, kw_only=True):
    name: str = ""
    partitions: tuple[OffsetFetchResponsePartition, ...] = ()


class OffsetFetchResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0
    topics: tuple[OffsetFetchResponseTopic, ...] = ()
    error_code: int = 0


# FindCoordinator (10): the broker that coordinates a group or the transactions of a producer.


class FindCoordinatorRequest(Message, frozen=True, kw_only=True):
    key: str = ""  # to v3
    key_type: int = 0  # v1+
    coordinator_keys: tuple[str, ...] = ()  # v4+


class Coordinator(Message, frozen=True, kw_only=True):
    key: str = ""
    node_id: int = 0
    host: str = ""
    port: int = 0
    error_code: int = 0
    error_message: str | None = None


class FindCoordinatorResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0
    error_code: int = 0  # to v3, as what follows
    error_message: str | None = None
    node_id: int = 0
    host: str = ""
    port: int = 0
    coordinators: tuple[Coordinator, ...] = ()  # v4+


# DescribeGroups (15): the state and the members of groups.


class DescribeGroupsRequest(Message, frozen=True, kw_only=True):
    groups: tuple[str, ...] = ()
    include_authorized_operations: bool = False


class DescribedGroupMember(Message, frozen=True, kw_only=True):
    member_id: str = ""
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""


class DescribedGroup(Message, frozen=True, kw_only=True):
    error_code: int = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: tuple[DescribedGroupMember, ...] = ()
    authorized_operations: int = OPERATIONS_OMITTED


class DescribeGroupsResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0
    groups: tuple[DescribedGroup, ...] = ()


# ListGroups (16): the groups that a broker coordinates.


class ListGroupsRequest(Message, frozen=True, kw_only=True):
    states_filter: tuple[str, ...] = ()
    types_filter: tuple[str, ...] = ()


class ListedGroup(Message, frozen=True, kw_only=True):
    group_id: str = ""
    protocol_type: str = ""
    group_state: str = ""
    group_type: str = ""


class ListGroupsResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0
    error_code: int = 0
    groups: tuple[ListedGroup, ...] = ()


# DescribeLogDirs (35): the log directories of a broker and their replicas.


class DescribableLogDirTopic(Message, frozen=True, kw_only=True):
    topic: str = ""
    partitions: tuple[int, ...] = ()


class DescribeLogDirsRequest(Message, frozen=True, kw_only=True):
    topics: tuple[DescribableLogDirTopic, ...] | None = None


class DescribeLogDirsPartition(Message, frozen=True, kw_only=True):
    partition_index: int = 0
    partition_size: int = 0
    offset_lag: int = 0
    is_future_key: bool = False


class DescribeLogDirsTopic(Message, frozen=True, kw_only=True):
    name: str = ""
    partitions: tuple[DescribeLogDirsPartition, ...] = ()


class DescribeLogDirsResult(Message, frozen=True, kw_only=True):
    error_code: int = 0
    log_dir: str = ""
    topics: tuple[DescribeLogDirsTopic, ...] = ()
    total_bytes: int = -1
    usable_bytes: int = -1
    is_cordoned: bool = False


class DescribeLogDirsResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0
    error_code: int = 0
    results: tuple[DescribeLogDirsResult, ...] = ()
