"""BrokerRegistration (62): a broker reports in (KIP-631)."""

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


class BrokerRegistrationRequest(Message, frozen=True, kw_only=True):
    broker_id: int = 0
    cluster_id: str = ""
    incarnation_id: bytes = ZERO_UUID
    listeners: tuple[Listener, ...] = ()
    features: tuple[Feature, ...] = ()
    rack: str | None = None
    is_migrating_zk_broker: bool = False
    log_dirs: tuple[bytes, ...] = ()
    previous_broker_epoch: int = -1


class BrokerRegistrationResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0
    error_code: int = 0
    broker_epoch: int = -1
