"""`RegisterBrokerRecord`. Generated from Kafka's `common/metadata/RegisterBrokerRecord.json`."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEndpointV0:
    """Part of `RegisterBrokerRecord`; version 0."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    name: str = field(metadata={"kafka_type": "string"}, default="")
    """The name of the endpoint."""
    host: str = field(metadata={"kafka_type": "string"}, default="")
    """The hostname."""
    port: int = field(metadata={"kafka_type": "uint16"}, default=0)
    """The port."""
    security_protocol: int = field(metadata={"kafka_type": "int16"}, default=0)
    """The security protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFeatureV0:
    """Part of `RegisterBrokerRecord`; version 0."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    name: str = field(metadata={"kafka_type": "string"}, default="")
    """The feature name."""
    min_supported_version: int = field(metadata={"kafka_type": "int16"}, default=0)
    """The minimum supported feature level."""
    max_supported_version: int = field(metadata={"kafka_type": "int16"}, default=0)
    """The maximum supported feature level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRecordV0:
    """A `RegisterBrokerRecord`; version 0."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 0
    broker_id: int = field(metadata={"kafka_type": "int32"}, default=0)
    """The broker id."""
    incarnation_id: bytes = field(metadata={"kafka_type": "uuid"}, default=bytes(16))
    """The incarnation ID of the broker process"""
    broker_epoch: int = field(metadata={"kafka_type": "int64"}, default=0)
    """The broker epoch assigned by the controller."""
    end_points: tuple[BrokerEndpointV0, ...] = field(metadata={}, default=())
    """The endpoints that can be used to communicate with this broker."""
    features: tuple[BrokerFeatureV0, ...] = field(metadata={}, default=())
    """The features on this broker"""
    rack: str | None = field(metadata={"kafka_type": "string"}, default="")
    """The broker rack."""
    fenced: bool = field(metadata={"kafka_type": "bool"}, default=True)
    """True if the broker is fenced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEndpointV1:
    """Part of `RegisterBrokerRecord`; version 1."""

    __version__: ClassVar[int] = 1
    __flexible__: ClassVar[bool] = True
    name: str = field(metadata={"kafka_type": "string"}, default="")
    """The name of the endpoint."""
    host: str = field(metadata={"kafka_type": "string"}, default="")
    """The hostname."""
    port: int = field(metadata={"kafka_type": "uint16"}, default=0)
    """The port."""
    security_protocol: int = field(metadata={"kafka_type": "int16"}, default=0)
    """The security protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFeatureV1:
    """Part of `RegisterBrokerRecord`; version 1."""

    __version__: ClassVar[int] = 1
    __flexible__: ClassVar[bool] = True
    name: str = field(metadata={"kafka_type": "string"}, default="")
    """The feature name."""
    min_supported_version: int = field(metadata={"kafka_type": "int16"}, default=0)
    """The minimum supported feature level."""
    max_supported_version: int = field(metadata={"kafka_type": "int16"}, default=0)
    """The maximum supported feature level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRecordV1:
    """A `RegisterBrokerRecord`; version 1."""

    __version__: ClassVar[int] = 1
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 0
    broker_id: int = field(metadata={"kafka_type": "int32"}, default=0)
    """The broker id."""
    incarnation_id: bytes = field(metadata={"kafka_type": "uuid"}, default=bytes(16))
    """The incarnation ID of the broker process"""
    broker_epoch: int = field(metadata={"kafka_type": "int64"}, default=0)
    """The broker epoch assigned by the controller."""
    end_points: tuple[BrokerEndpointV1, ...] = field(metadata={}, default=())
    """The endpoints that can be used to communicate with this broker."""
    features: tuple[BrokerFeatureV1, ...] = field(metadata={}, default=())
    """The features on this broker"""
    rack: str | None = field(metadata={"kafka_type": "string"}, default="")
    """The broker rack."""
    fenced: bool = field(metadata={"kafka_type": "bool"}, default=True)
    """True if the broker is fenced."""
    in_controlled_shutdown: bool = field(metadata={"kafka_type": "bool"}, default=False)
    """True if the broker is in controlled shutdown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEndpointV2:
    """Part of `RegisterBrokerRecord`; version 2."""

    __version__: ClassVar[int] = 2
    __flexible__: ClassVar[bool] = True
    name: str = field(metadata={"kafka_type": "string"}, default="")
    """The name of the endpoint."""
    host: str = field(metadata={"kafka_type": "string"}, default="")
    """The hostname."""
    port: int = field(metadata={"kafka_type": "uint16"}, default=0)
    """The port."""
    security_protocol: int = field(metadata={"kafka_type": "int16"}, default=0)
    """The security protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFeatureV2:
    """Part of `RegisterBrokerRecord`; version 2."""

    __version__: ClassVar[int] = 2
    __flexible__: ClassVar[bool] = True
    name: str = field(metadata={"kafka_type": "string"}, default="")
    """The feature name."""
    min_supported_version: int = field(metadata={"kafka_type": "int16"}, default=0)
    """The minimum supported feature level."""
    max_supported_version: int = field(metadata={"kafka_type": "int16"}, default=0)
    """The maximum supported feature level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRecordV2:
    """A `RegisterBrokerRecord`; version 2."""

    __version__: ClassVar[int] = 2
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 0
    broker_id: int = field(metadata={"kafka_type": "int32"}, default=0)
    """The broker id."""
    is_migrating_zk_broker: bool = field(metadata={"kafka_type": "bool"}, default=False)
    """True if the broker is a ZK broker in migration mode. Otherwise, false"""
    incarnation_id: bytes = field(metadata={"kafka_type": "uuid"}, default=bytes(16))
    """The incarnation ID of the broker process"""
    broker_epoch: int = field(metadata={"kafka_type": "int64"}, default=0)
    """The broker epoch assigned by the controller."""
    end_points: tuple[BrokerEndpointV2, ...] = field(metadata={}, default=())
    """The endpoints that can be used to communicate with this broker."""
    features: tuple[BrokerFeatureV2, ...] = field(metadata={}, default=())
    """The features on this broker"""
    rack: str | None = field(metadata={"kafka_type": "string"}, default="")
    """The broker rack."""
    fenced: bool = field(metadata={"kafka_type": "bool"}, default=True)
    """True if the broker is fenced."""
    in_controlled_shutdown: bool = field(metadata={"kafka_type": "bool"}, default=False)
    """True if the broker is in controlled shutdown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEndpointV3:
    """Part of `RegisterBrokerRecord`; version 3."""

    __version__: ClassVar[int] = 3
    __flexible__: ClassVar[bool] = True
    name: str = field(metadata={"kafka_type": "string"}, default="")
    """The name of the endpoint."""
    host: str = field(metadata={"kafka_type": "string"}, default="")
    """The hostname."""
    port: int = field(metadata={"kafka_type": "uint16"}, default=0)
    """The port."""
    security_protocol: int = field(metadata={"kafka_type": "int16"}, default=0)
    """The security protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFeatureV3:
    """Part of `RegisterBrokerRecord`; version 3."""

    __version__: ClassVar[int] = 3
    __flexible__: ClassVar[bool] = True
    name: str = field(metadata={"kafka_type": "string"}, default="")
    """The feature name."""
    min_supported_version: int = field(metadata={"kafka_type": "int16"}, default=0)
    """The minimum supported feature level."""
    max_supported_version: int = field(metadata={"kafka_type": "int16"}, default=0)
    """The maximum supported feature level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRecordV3:
    """A `RegisterBrokerRecord`; version 3."""

    __version__: ClassVar[int] = 3
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 0
    broker_id: int = field(metadata={"kafka_type": "int32"}, default=0)
    """The broker id."""
    is_migrating_zk_broker: bool = field(metadata={"kafka_type": "bool"}, default=False)
    """True if the broker is a ZK broker in migration mode. Otherwise, false"""
    incarnation_id: bytes = field(metadata={"kafka_type": "uuid"}, default=bytes(16))
    """The incarnation ID of the broker process"""
    broker_epoch: int = field(metadata={"kafka_type": "int64"}, default=0)
    """The broker epoch assigned by the controller."""
    end_points: tuple[BrokerEndpointV3, ...] = field(metadata={}, default=())
    """The endpoints that can be used to communicate with this broker."""
    features: tuple[BrokerFeatureV3, ...] = field(metadata={}, default=())
    """The features on this broker"""
    rack: str | None = field(metadata={"kafka_type": "string"}, default="")
    """The broker rack."""
    fenced: bool = field(metadata={"kafka_type": "bool"}, default=True)
    """True if the broker is fenced."""
    in_controlled_shutdown: bool = field(metadata={"kafka_type": "bool"}, default=False)
    """True if the broker is in controlled shutdown."""
    log_dirs: tuple[bytes, ...] = field(metadata={"kafka_type": "uuid", "tag": 0}, default=())
    """Log directories configured in this broker which are available."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEndpointV4:
    """Part of `RegisterBrokerRecord`; version 4."""

    __version__: ClassVar[int] = 4
    __flexible__: ClassVar[bool] = True
    name: str = field(metadata={"kafka_type": "string"}, default="")
    """The name of the endpoint."""
    host: str = field(metadata={"kafka_type": "string"}, default="")
    """The hostname."""
    port: int = field(metadata={"kafka_type": "uint16"}, default=0)
    """The port."""
    security_protocol: int = field(metadata={"kafka_type": "int16"}, default=0)
    """The security protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFeatureV4:
    """Part of `RegisterBrokerRecord`; version 4."""

    __version__: ClassVar[int] = 4
    __flexible__: ClassVar[bool] = True
    name: str = field(metadata={"kafka_type": "string"}, default="")
    """The feature name."""
    min_supported_version: int = field(metadata={"kafka_type": "int16"}, default=0)
    """The minimum supported feature level."""
    max_supported_version: int = field(metadata={"kafka_type": "int16"}, default=0)
    """The maximum supported feature level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRecordV4:
    """A `RegisterBrokerRecord`; version 4."""

    __version__: ClassVar[int] = 4
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 0
    broker_id: int = field(metadata={"kafka_type": "int32"}, default=0)
    """The broker id."""
    is_migrating_zk_broker: bool = field(metadata={"kafka_type": "bool"}, default=False)
    """True if the broker is a ZK broker in migration mode. Otherwise, false"""
    incarnation_id: bytes = field(metadata={"kafka_type": "uuid"}, default=bytes(16))
    """The incarnation ID of the broker process"""
    broker_epoch: int = field(metadata={"kafka_type": "int64"}, default=0)
    """The broker epoch assigned by the controller."""
    end_points: tuple[BrokerEndpointV4, ...] = field(metadata={}, default=())
    """The endpoints that can be used to communicate with this broker."""
    features: tuple[BrokerFeatureV4, ...] = field(metadata={}, default=())
    """The features on this broker"""
    rack: str | None = field(metadata={"kafka_type": "string"}, default="")
    """The broker rack."""
    fenced: bool = field(metadata={"kafka_type": "bool"}, default=True)
    """True if the broker is fenced."""
    in_controlled_shutdown: bool = field(metadata={"kafka_type": "bool"}, default=False)
    """True if the broker is in controlled shutdown."""
    log_dirs: tuple[bytes, ...] = field(metadata={"kafka_type": "uuid", "tag": 0}, default=())
    """Log directories configured in this broker which are available."""
    cordoned_log_dirs: tuple[bytes, ...] | None = field(metadata={"kafka_type": "uuid", "tag": 1}, default=None)
    """Log directories that are cordoned. This is initially null before the broker starts sending the value via its
    heartbeats."""
