"""Messages of producers and consumers, which Topicwright answers with errors or passes to the brokers."""

from controller.kafka.messages.message import ZERO_UUID, Message, Outcome, TopicByName


class PartitionProduceData(Message, frozen=True, kw_only=True):
    index: int = 0


class TopicProduceData(Message, frozen=True, kw_only=True):
    """Records for one topic, named by id from v13 on."""

    topic_id: bytes = ZERO_UUID  # v13+
    partition_data: tuple[PartitionProduceData, ...] = ()
    name: str = ""  # v3 to v12


class ProduceRequest(Message, frozen=True, kw_only=True):
    """Produce (0): advertised, because old clients hang without it, but rejected. `acks`: 0 for no response, 1 for the
    leader, -1 for all in sync."""

    acks: int = 0
    topic_data: tuple[TopicProduceData, ...] = ()


class PartitionProduceResponse(Outcome, frozen=True, kw_only=True):
    index: int = 0
    base_offset: int = 0


class TopicProduceResponse(Message, frozen=True, kw_only=True):
    topic_id: bytes = ZERO_UUID  # v13+
    partition_responses: tuple[PartitionProduceResponse, ...] = ()
    name: str = ""  # v3 to v12


class ProduceResponse(Message, frozen=True, kw_only=True):
    responses: tuple[TopicProduceResponse, ...] = ()


class ListOffsetsPartition(Message, frozen=True, kw_only=True):
    partition_index: int = 0
    current_leader_epoch: int = -1
    timestamp: int = 0


class ListOffsetsRequest(Message, frozen=True, kw_only=True):
    """ListOffsets (2): offsets of partitions by timestamp. Topicwright also sends it, to probe whether brokers lead."""

    replica_id: int = 0
    topics: tuple[TopicByName[ListOffsetsPartition], ...] = ()


class ListOffsetsPartitionResponse(Message, frozen=True, kw_only=True):
    partition_index: int = 0
    error_code: int = 0
    offset: int = -1
    leader_epoch: int = -1


class ListOffsetsResponse(Message, frozen=True, kw_only=True):
    topics: tuple[TopicByName[ListOffsetsPartitionResponse], ...] = ()


class OffsetFetchRequestTopic(Message, frozen=True, kw_only=True):
    name: str = ""
    partition_indexes: tuple[int, ...] = ()


class OffsetFetchRequest(Message, frozen=True, kw_only=True):
    """OffsetFetch (9): the committed offsets of a group."""

    group_id: str = ""
    topics: tuple[OffsetFetchRequestTopic, ...] | None = None


class OffsetFetchResponsePartition(Message, frozen=True, kw_only=True):
    partition_index: int = 0
    committed_offset: int = 0
    metadata: str | None = None
    error_code: int = 0


class OffsetFetchResponse(Message, frozen=True, kw_only=True):
    topics: tuple[TopicByName[OffsetFetchResponsePartition], ...] = ()
    error_code: int = 0


class FindCoordinatorRequest(Message, frozen=True, kw_only=True):
    """FindCoordinator (10): the broker that coordinates a group or the transactions of a producer."""

    key: str = ""  # to v3
    key_type: int = 0  # v1+
    coordinator_keys: tuple[str, ...] = ()  # v4+


class Coordinator(Message, frozen=True, kw_only=True):
    key: str = ""
    node_id: int = 0
    host: str = ""
    port: int = 0
    error_code: int = 0


class FindCoordinatorResponse(Message, frozen=True, kw_only=True):
    error_code: int = 0  # to v3, as what follows
    node_id: int = 0
    host: str = ""
    port: int = 0
    coordinators: tuple[Coordinator, ...] = ()  # v4+


class DescribeGroupsRequest(Message, frozen=True, kw_only=True):
    """DescribeGroups (15): the state and the members of groups."""

    groups: tuple[str, ...] = ()


class DescribedGroup(Outcome, frozen=True, kw_only=True):
    group_id: str = ""
    group_state: str = ""


class DescribeGroupsResponse(Message, frozen=True, kw_only=True):
    groups: tuple[DescribedGroup, ...] = ()


# ListGroups (16): the groups that a broker coordinates.

ListGroupsRequest = ListGroupsResponse = Message


class DescribeLogDirsRequest(Message, frozen=True, kw_only=True):
    """DescribeLogDirs (35): the log directories of a broker and their replicas."""

    topics: tuple[Message, ...] | None = None


class DescribeLogDirsResult(Message, frozen=True, kw_only=True):
    error_code: int = 0
    log_dir: str = ""
    is_cordoned: bool = False


class DescribeLogDirsResponse(Message, frozen=True, kw_only=True):
    error_code: int = 0
    results: tuple[DescribeLogDirsResult, ...] = ()


ListOffsetsTopic = TopicByName[ListOffsetsPartition]
ListOffsetsTopicResponse = TopicByName[ListOffsetsPartitionResponse]
OffsetFetchResponseTopic = TopicByName[OffsetFetchResponsePartition]
