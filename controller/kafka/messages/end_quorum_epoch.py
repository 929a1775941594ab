"""EndQuorumEpoch (54): a leader resigns, and names who is to stand first (KIP-595)."""

from controller.kafka.messages.message import ZERO_UUID, Message


class ReplicaInfo(Message, frozen=True, kw_only=True):
    candidate_id: int = 0
    candidate_directory_id: bytes = ZERO_UUID


class RequestPartitionData(Message, frozen=True, kw_only=True):
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = 0
    preferred_successors: tuple[int, ...] = ()  # v0
    preferred_candidates: tuple[ReplicaInfo, ...] = ()  # v1+


class RequestTopicData(Message, frozen=True, kw_only=True):
    topic_name: str = ""
    partitions: tuple[RequestPartitionData, ...] = ()


class LeaderEndpoint(Message, frozen=True, kw_only=True):
    name: str = ""
    host: str = ""
    port: int = 0


class EndQuorumEpochRequest(Message, frozen=True, kw_only=True):
    cluster_id: str | None = None
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


class EndQuorumEpochResponse(Message, frozen=True, kw_only=True):
    error_code: int = 0
    topics: tuple[ResponseTopicData, ...] = ()
    node_endpoints: tuple[NodeEndpoint, ...] = ()  # v1+
