"""BeginQuorumEpoch (53): a new leader makes itself known to those who vote (KIP-595)."""

from controller.kafka.messages.message import ZERO_UUID, Message


class RequestPartitionData(Message, frozen=True, kw_only=True):
    partition_index: int = 0
    voter_directory_id: bytes = ZERO_UUID  # v1+
    leader_id: int = 0
    leader_epoch: int = 0


class RequestTopicData(Message, frozen=True, kw_only=True):
    topic_name: str = ""
    partitions: tuple[RequestPartitionData, ...] = ()


class LeaderEndpoint(Message, frozen=True, kw_only=True):
    name: str = ""
    host: str = ""
    port: int = 0


class BeginQuorumEpochRequest(Message, frozen=True, kw_only=True):
    cluster_id: str | None = None
    voter_id: int = -1  # v1+
    topics: tuple[RequestTopicData, ...] = ()
    leader_endpoints: tuple[LeaderEndpoint, ...] = ()  # v1+


class ResponsePartitionData(Message, frozen=True, kw_only=True):
    partition_index: int = 0
    error_code: int = 0
    leader_id: int = 0
    leader_epoch: int = 0


class ResponseTopicData(Message, frozen=True, kw_only=True):
    topic_name: str = ""
    partitions: tuple[ResponsePartitionData, ...] = ()


class NodeEndpoint(Message, frozen=True, kw_only=True):
    node_id: int = 0
    host: str = ""
    port: int = 0


class BeginQuorumEpochResponse(Message, frozen=True, kw_only=True):
    error_code: int = 0
    topics: tuple[ResponseTopicData, ...] = ()
    node_endpoints: tuple[NodeEndpoint, ...] = ()  # v1+
