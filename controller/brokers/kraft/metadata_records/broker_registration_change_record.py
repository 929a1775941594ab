"""`BrokerRegistrationChangeRecord`. Generated from Kafka's `common/metadata/BrokerRegistrationChangeRecord.json`."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationChangeRecordV0:
    """A `BrokerRegistrationChangeRecord`; version 0."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 17
    broker_id: int = field(metadata={"kafka_type": "int32"}, default=0)
    """The broker id."""
    broker_epoch: int = field(metadata={"kafka_type": "int64"}, default=0)
    """The broker epoch assigned by the controller."""
    fenced: int = field(metadata={"kafka_type": "int8", "tag": 0}, default=0)
    """-1 if the broker has been unfenced, 0 if no change, 1 if the broker has been fenced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationChangeRecordV1:
    """A `BrokerRegistrationChangeRecord`; version 1."""

    __version__: ClassVar[int] = 1
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 17
    broker_id: int = field(metadata={"kafka_type": "int32"}, default=0)
    """The broker id."""
    broker_epoch: int = field(metadata={"kafka_type": "int64"}, default=0)
    """The broker epoch assigned by the controller."""
    fenced: int = field(metadata={"kafka_type": "int8", "tag": 0}, default=0)
    """-1 if the broker has been unfenced, 0 if no change, 1 if the broker has been fenced."""
    in_controlled_shutdown: int = field(metadata={"kafka_type": "int8", "tag": 1}, default=0)
    """0 if no change, 1 if the broker is in controlled shutdown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationChangeRecordV2:
    """A `BrokerRegistrationChangeRecord`; version 2."""

    __version__: ClassVar[int] = 2
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 17
    broker_id: int = field(metadata={"kafka_type": "int32"}, default=0)
    """The broker id."""
    broker_epoch: int = field(metadata={"kafka_type": "int64"}, default=0)
    """The broker epoch assigned by the controller."""
    fenced: int = field(metadata={"kafka_type": "int8", "tag": 0}, default=0)
    """-1 if the broker has been unfenced, 0 if no change, 1 if the broker has been fenced."""
    in_controlled_shutdown: int = field(metadata={"kafka_type": "int8", "tag": 1}, default=0)
    """0 if no change, 1 if the broker is in controlled shutdown."""
    log_dirs: tuple[bytes, ...] = field(metadata={"kafka_type": "uuid", "tag": 2}, default=())
    """Log directories configured in this broker which are available."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationChangeRecordV3:
    """A `BrokerRegistrationChangeRecord`; version 3."""

    __version__: ClassVar[int] = 3
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 17
    broker_id: int = field(metadata={"kafka_type": "int32"}, default=0)
    """The broker id."""
    broker_epoch: int = field(metadata={"kafka_type": "int64"}, default=0)
    """The broker epoch assigned by the controller."""
    fenced: int = field(metadata={"kafka_type": "int8", "tag": 0}, default=0)
    """-1 if the broker has been unfenced, 0 if no change, 1 if the broker has been fenced."""
    in_controlled_shutdown: int = field(metadata={"kafka_type": "int8", "tag": 1}, default=0)
    """0 if no change, 1 if the broker is in controlled shutdown."""
    log_dirs: tuple[bytes, ...] = field(metadata={"kafka_type": "uuid", "tag": 2}, default=())
    """Log directories configured in this broker which are available."""
    cordoned_log_dirs: tuple[bytes, ...] | None = field(metadata={"kafka_type": "uuid", "tag": 3}, default=None)
    """Log directories that are cordoned or null if no change."""
