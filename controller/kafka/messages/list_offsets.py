"""ListOffsets (2): offsets of partitions at a time. Brokers are sent it too, to see whether they serve as leaders."""

from controller.kafka.messages.message import Message


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
