"""ElectLeaders (43): elect preferred or unclean leaders (KIP-460)."""

from controller.kafka.messages.message import Message


class TopicPartitions(Message, frozen=True, kw_only=True):
    topic: str = ""
    partitions: tuple[int, ...] = ()


class ElectLeadersRequest(Message, frozen=True, kw_only=True):
    topic_partitions: tuple[TopicPartitions, ...] | None = ()
    timeout_ms: int = 60000
    election_type: int = 0


class PartitionResult(Message, frozen=True, kw_only=True):
    partition_id: int = 0
    error_code: int = 0
    error_message: str | None = None


class ReplicaElectionResult(Message, frozen=True, kw_only=True):
    topic: str = ""
    partition_result: tuple[PartitionResult, ...] = ()


class ElectLeadersResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0
    replica_election_results: tuple[ReplicaElectionResult, ...] = ()
    error_code: int = 0
