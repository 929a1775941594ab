"""AssignReplicasToDirs (73): a broker tells in which of its log directories replicas lie (KIP-858)."""

from controller.kafka.messages.message import ZERO_UUID, Message


class RequestPartitionData(Message, frozen=True, kw_only=True):
    """Request partition data."""

    partition_index: int = 0


class RequestTopicData(Message, frozen=True, kw_only=True):
    """Request topic data."""

    topic_id: bytes = ZERO_UUID
    partitions: tuple[RequestPartitionData, ...] = ()


class RequestDirectoryData(Message, frozen=True, kw_only=True):
    """Request directory data."""

    id_: bytes = ZERO_UUID
    topics: tuple[RequestTopicData, ...] = ()


class AssignReplicasToDirsRequest(Message, frozen=True, kw_only=True):
    """The request."""

    broker_id: int = 0
    broker_epoch: int = -1
    directories: tuple[RequestDirectoryData, ...] = ()


class ResponsePartitionData(Message, frozen=True, kw_only=True):
    """Response partition data."""

    partition_index: int = 0
    error_code: int = 0


class ResponseTopicData(Message, frozen=True, kw_only=True):
    """Response topic data."""

    topic_id: bytes = ZERO_UUID
    partitions: tuple[ResponsePartitionData, ...] = ()


class ResponseDirectoryData(Message, frozen=True, kw_only=True):
    """Response directory data."""

    id_: bytes = ZERO_UUID
    topics: tuple[ResponseTopicData, ...] = ()


class AssignReplicasToDirsResponse(Message, frozen=True, kw_only=True):
    """The answer."""

    throttle_time_ms: int = 0
    error_code: int = 0
    directories: tuple[ResponseDirectoryData, ...] = ()
