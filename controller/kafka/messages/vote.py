"""Vote (52): a controller that stands for leader collects votes (KIP-595), or first sounds them out (KIP-996)."""

from controller.kafka.messages.message import ZERO_UUID, Message


class RequestPartitionData(Message, frozen=True, kw_only=True):
    """`replica_*` is who stands, `voter_directory_id` (v1+) who is to vote; `last_*` is the end of the former's log."""

    partition_index: int = 0
    replica_epoch: int = 0
    replica_id: int = 0
    replica_directory_id: bytes = ZERO_UUID  # v1+
    voter_directory_id: bytes = ZERO_UUID
    last_offset_epoch: int = 0
    last_offset: int = 0
    pre_vote: bool = False  # v2+


class RequestTopicData(Message, frozen=True, kw_only=True):
    topic_name: str = ""
    partitions: tuple[RequestPartitionData, ...] = ()


class VoteRequest(Message, frozen=True, kw_only=True):
    cluster_id: str | None = None
    voter_id: int = -1  # v1+
    topics: tuple[RequestTopicData, ...] = ()


class ResponsePartitionData(Message, frozen=True, kw_only=True):
    partition_index: int = 0
    error_code: int = 0
    leader_id: int = 0
    leader_epoch: int = 0
    vote_granted: bool = False


class ResponseTopicData(Message, frozen=True, kw_only=True):
    topic_name: str = ""
    partitions: tuple[ResponsePartitionData, ...] = ()


class NodeEndpoint(Message, frozen=True, kw_only=True):
    node_id: int = 0
    host: str = ""
    port: int = 0


class VoteResponse(Message, frozen=True, kw_only=True):
    error_code: int = 0
    topics: tuple[ResponseTopicData, ...] = ()
    node_endpoints: tuple[NodeEndpoint, ...] = ()  # v1+
