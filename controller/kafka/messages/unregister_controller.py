"""UnregisterController (94): remove the registration of a controller that will not return (KIP-1312)."""

from controller.kafka.messages.message import Message


class UnregisterControllerRequest(Message, frozen=True, kw_only=True):
    controller_id: int = 0


class UnregisterControllerResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
