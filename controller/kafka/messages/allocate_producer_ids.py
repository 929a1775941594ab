"""AllocateProducerIds (67): a block of producer ids for a broker (KIP-730)."""

from controller.kafka.messages.message import Message


class AllocateProducerIdsRequest(Message, frozen=True, kw_only=True):
    broker_id: int = 0
    broker_epoch: int = -1


class AllocateProducerIdsResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id_start: int = 0
    producer_id_len: int = 0
