"""UnregisterBroker (64): forget a broker that will not return (KIP-746)."""

from controller.kafka.messages.message import Message


class UnregisterBrokerRequest(Message, frozen=True, kw_only=True):
    broker_id: int = 0


class UnregisterBrokerResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
