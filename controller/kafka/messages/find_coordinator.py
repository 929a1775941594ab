"""FindCoordinator (10): which broker coordinates a group, or the transactions of a producer."""

from controller.kafka.messages.message import Message


class FindCoordinatorRequest(Message, frozen=True, kw_only=True):
    key: str = ""  # to v3
    key_type: int = 0  # v1+
    coordinator_keys: tuple[str, ...] = ()  # v4+


class Coordinator(Message, frozen=True, kw_only=True):
    key: str = ""
    node_id: int = 0
    host: str = ""
    port: int = 0
    error_code: int = 0
    error_message: str | None = None


class FindCoordinatorResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0
    error_code: int = 0  # to v3, as what follows
    error_message: str | None = None
    node_id: int = 0
    host: str = ""
    port: int = 0
    coordinators: tuple[Coordinator, ...] = ()  # v4+
