"""AlterPartitionReassignments (45): move replicas (KIP-455)."""

from controller.kafka.messages.message import Message


class ReassignablePartition(Message, frozen=True, kw_only=True):
    partition_index: int = 0
    replicas: tuple[int, ...] | None = None


class ReassignableTopic(Message, frozen=True, kw_only=True):
    name: str = ""
    partitions: tuple[ReassignablePartition, ...] = ()


class AlterPartitionReassignmentsRequest(Message, frozen=True, kw_only=True):
    timeout_ms: int = 60000
    topics: tuple[ReassignableTopic, ...] = ()
    allow_replication_factor_change: bool = True


class ReassignablePartitionResponse(Message, frozen=True, kw_only=True):
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None


class ReassignableTopicResponse(Message, frozen=True, kw_only=True):
    name: str = ""
    partitions: tuple[ReassignablePartitionResponse, ...] = ()


class AlterPartitionReassignmentsResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    responses: tuple[ReassignableTopicResponse, ...] = ()
    allow_replication_factor_change: bool = True
