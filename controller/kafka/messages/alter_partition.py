"""AlterPartition (56): a leader reports its in-sync set (KIP-497)."""

from controller.kafka.messages.message import ZERO_UUID, Message


class BrokerState(Message, frozen=True, kw_only=True):
    broker_id: int = 0
    broker_epoch: int = -1


class RequestPartitionData(Message, frozen=True, kw_only=True):
    partition_index: int = 0
    leader_epoch: int = 0
    new_isr: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    partition_epoch: int = 0
    new_isr_with_epochs: tuple[BrokerState, ...] = ()


class RequestTopicData(Message, frozen=True, kw_only=True):
    topic_id: bytes = ZERO_UUID
    partitions: tuple[RequestPartitionData, ...] = ()


class AlterPartitionRequest(Message, frozen=True, kw_only=True):
    broker_id: int = 0
    broker_epoch: int = -1
    topics: tuple[RequestTopicData, ...] = ()


class ResponsePartitionData(Message, frozen=True, kw_only=True):
    partition_index: int = 0
    error_code: int = 0
    leader_id: int = 0
    leader_epoch: int = 0
    isr: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    partition_epoch: int = 0


class ResponseTopicData(Message, frozen=True, kw_only=True):
    topic_id: bytes = ZERO_UUID
    partitions: tuple[ResponsePartitionData, ...] = ()


class AlterPartitionResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0
    error_code: int = 0
    topics: tuple[ResponseTopicData, ...] = ()
