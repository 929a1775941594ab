"""`RegisterControllerRecord`. Generated from Kafka's `common/metadata/RegisterControllerRecord.json`."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerEndpointV0:
    """Part of `RegisterControllerRecord`; version 0."""

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
class ControllerFeatureV0:
    """Part of `RegisterControllerRecord`; version 0."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    name: str = field(metadata={"kafka_type": "string"}, default="")
    """The feature name."""
    min_supported_version: int = field(metadata={"kafka_type": "int16"}, default=0)
    """The minimum supported feature level."""
    max_supported_version: int = field(metadata={"kafka_type": "int16"}, default=0)
    """The maximum supported feature level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterControllerRecordV0:
    """A `RegisterControllerRecord`; version 0."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 27
    controller_id: int = field(metadata={"kafka_type": "int32"}, default=0)
    """The controller id."""
    incarnation_id: bytes = field(metadata={"kafka_type": "uuid"}, default=bytes(16))
    """The incarnation ID of the controller process"""
    zk_migration_ready: bool = field(metadata={"kafka_type": "bool"}, default=False)
    """Set if the required configurations for ZK migration are present."""
    end_points: tuple[ControllerEndpointV0, ...] = field(metadata={}, default=())
    """The endpoints that can be used to communicate with this controller."""
    features: tuple[ControllerFeatureV0, ...] = field(metadata={}, default=())
    """The features on this controller"""
