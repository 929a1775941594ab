"""DescribeQuorum (55): who votes and who follows, and how far they are (KIP-836)."""

from controller.kafka.messages.message import ZERO_UUID, Message


class RequestPartitionData(Message, frozen=True, kw_only=True):
    partition_index: int = 0


class RequestTopicData(Message, frozen=True, kw_only=True):
    topic_name: str = ""
    partitions: tuple[RequestPartitionData, ...] = ()


class DescribeQuorumRequest(Message, frozen=True, kw_only=True):
    topics: tuple[RequestTopicData, ...] = ()


class ReplicaState(Message, frozen=True, kw_only=True):
    replica_id: int = 0
    log_end_offset: int = 0
    last_fetch_timestamp: int = -1
    last_caught_up_timestamp: int = -1
    replica_directory_id: bytes = ZERO_UUID


class ResponsePartitionData(Message, frozen=True, kw_only=True):
    partition_index: int = 0
    error_code: int = 0
    leader_id: int = 0
    leader_epoch: int = 0
    high_watermark: int = 0
    current_voters: tuple[ReplicaState, ...] = ()
    observers: tuple[ReplicaState, ...] = ()
    error_message: str | None = None


class ResponseTopicData(Message, frozen=True, kw_only=True):
    topic_name: str = ""
    partitions: tuple[ResponsePartitionData, ...] = ()


class Listener(Message, frozen=True, kw_only=True):
    name: str = ""
    host: str = ""
    port: int = 0


class Node(Message, frozen=True, kw_only=True):
    node_id: int = 0
    listeners: tuple[Listener, ...] = ()


class DescribeQuorumResponse(Message, frozen=True, kw_only=True):
    error_code: int = 0
    topics: tuple[ResponseTopicData, ...] = ()
    error_message: str | None = None
    nodes: tuple[Node, ...] = ()
