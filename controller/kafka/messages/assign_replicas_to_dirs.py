"""AssignReplicasToDirs (73): a broker reports in which of its log directories replicas lie (KIP-858)."""

from controller.kafka.messages.message import ZERO_UUID, Message


class RequestPartitionData(Message, frozen=True, kw_only=True):
    partition_index: int = 0


class RequestTopicData(Message, frozen=True, kw_only=True):
    topic_id: bytes = ZERO_UUID
    partitions: tuple[RequestPartitionData, ...] = ()


class RequestDirectoryData(Message, frozen=True, kw_only=True):
    id_: bytes = ZERO_UUID
    topics: tuple[RequestTopicData, ...] = ()


class AssignReplicasToDirsRequest(Message, frozen=True, kw_only=True):
    broker_id: int = 0
    broker_epoch: int = -1
    directories: tuple[RequestDirectoryData, ...] = ()


class ResponsePartitionData(Message, frozen=True, kw_only=True):
    partition_index: int = 0
    error_code: int = 0


class ResponseTopicData(Message, frozen=True, kw_only=True):
    topic_id: bytes = ZERO_UUID
    partitions: tuple[ResponsePartitionData, ...] = ()


class ResponseDirectoryData(Message, frozen=True, kw_only=True):
    id_: bytes = ZERO_UUID
    topics: tuple[ResponseTopicData, ...] = ()


class AssignReplicasToDirsResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0
    error_code: int = 0
    directories: tuple[ResponseDirectoryData, ...] = ()
