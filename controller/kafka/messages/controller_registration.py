"""ControllerRegistration (70): a controller shows the leader its endpoints and features (KIP-919)."""

from controller.kafka.messages.message import ZERO_UUID, Message


class Listener(Message, frozen=True, kw_only=True):
    name: str = ""
    host: str = ""
    port: int = 0
    security_protocol: int = 0


class Feature(Message, frozen=True, kw_only=True):
    name: str = ""
    min_supported_version: int = 0
    max_supported_version: int = 0


class ControllerRegistrationRequest(Message, frozen=True, kw_only=True):
    controller_id: int = 0
    incarnation_id: bytes = ZERO_UUID
    zk_migration_ready: bool = False
    listeners: tuple[Listener, ...] = ()
    features: tuple[Feature, ...] = ()


class ControllerRegistrationResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
