"""BrokerHeartbeat (63): a broker lives, and reports how far it has applied the metadata (KIP-631)."""

from controller.kafka.messages.message import Message


class BrokerHeartbeatRequest(Message, frozen=True, kw_only=True):
    broker_id: int = 0
    broker_epoch: int = -1
    current_metadata_offset: int = 0
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: tuple[bytes, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] | None = None


class BrokerHeartbeatResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0
    error_code: int = 0
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False
