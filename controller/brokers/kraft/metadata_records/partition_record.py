"""`PartitionRecord`. Generated from Kafka's `common/metadata/PartitionRecord.json`."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecordV0:
    """A `PartitionRecord`; version 0."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 3
    partition_id: int = field(metadata={"kafka_type": "int32"}, default=-1)
    """The partition id."""
    topic_id: bytes = field(metadata={"kafka_type": "uuid"}, default=bytes(16))
    """The unique ID of this topic."""
    replicas: tuple[int, ...] = field(metadata={"kafka_type": "int32"}, default=())
    """The replicas of this partition, sorted by preferred order."""
    isr: tuple[int, ...] = field(metadata={"kafka_type": "int32"}, default=())
    """The in-sync replicas of this partition"""
    removing_replicas: tuple[int, ...] = field(metadata={"kafka_type": "int32"}, default=())
    """The replicas that we are in the process of removing."""
    adding_replicas: tuple[int, ...] = field(metadata={"kafka_type": "int32"}, default=())
    """The replicas that we are in the process of adding."""
    leader: int = field(metadata={"kafka_type": "int32"}, default=-1)
    """The lead replica, or -1 if there is no leader."""
    leader_recovery_state: int = field(metadata={"kafka_type": "int8", "tag": 0}, default=0)
    """1 if the partition is recovering from an unclean leader election; 0 otherwise."""
    leader_epoch: int = field(metadata={"kafka_type": "int32"}, default=-1)
    """The epoch of the partition leader."""
    partition_epoch: int = field(metadata={"kafka_type": "int32"}, default=-1)
    """An epoch that gets incremented each time we change anything in the partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecordV1:
    """A `PartitionRecord`; version 1."""

    __version__: ClassVar[int] = 1
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 3
    partition_id: int = field(metadata={"kafka_type": "int32"}, default=-1)
    """The partition id."""
    topic_id: bytes = field(metadata={"kafka_type": "uuid"}, default=bytes(16))
    """The unique ID of this topic."""
    replicas: tuple[int, ...] = field(metadata={"kafka_type": "int32"}, default=())
    """The replicas of this partition, sorted by preferred order."""
    isr: tuple[int, ...] = field(metadata={"kafka_type": "int32"}, default=())
    """The in-sync replicas of this partition"""
    removing_replicas: tuple[int, ...] = field(metadata={"kafka_type": "int32"}, default=())
    """The replicas that we are in the process of removing."""
    adding_replicas: tuple[int, ...] = field(metadata={"kafka_type": "int32"}, default=())
    """The replicas that we are in the process of adding."""
    leader: int = field(metadata={"kafka_type": "int32"}, default=-1)
    """The lead replica, or -1 if there is no leader."""
    leader_recovery_state: int = field(metadata={"kafka_type": "int8", "tag": 0}, default=0)
    """1 if the partition is recovering from an unclean leader election; 0 otherwise."""
    leader_epoch: int = field(metadata={"kafka_type": "int32"}, default=-1)
    """The epoch of the partition leader."""
    partition_epoch: int = field(metadata={"kafka_type": "int32"}, default=-1)
    """An epoch that gets incremented each time we change anything in the partition."""
    directories: tuple[bytes, ...] = field(metadata={"kafka_type": "uuid"}, default=())
    """The log directory hosting each replica, sorted in the same exact order as the Replicas field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecordV2:
    """A `PartitionRecord`; version 2."""

    __version__: ClassVar[int] = 2
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 3
    partition_id: int = field(metadata={"kafka_type": "int32"}, default=-1)
    """The partition id."""
    topic_id: bytes = field(metadata={"kafka_type": "uuid"}, default=bytes(16))
    """The unique ID of this topic."""
    replicas: tuple[int, ...] = field(metadata={"kafka_type": "int32"}, default=())
    """The replicas of this partition, sorted by preferred order."""
    isr: tuple[int, ...] = field(metadata={"kafka_type": "int32"}, default=())
    """The in-sync replicas of this partition"""
    removing_replicas: tuple[int, ...] = field(metadata={"kafka_type": "int32"}, default=())
    """The replicas that we are in the process of removing."""
    adding_replicas: tuple[int, ...] = field(metadata={"kafka_type": "int32"}, default=())
    """The replicas that we are in the process of adding."""
    leader: int = field(metadata={"kafka_type": "int32"}, default=-1)
    """The lead replica, or -1 if there is no leader."""
    leader_recovery_state: int = field(metadata={"kafka_type": "int8", "tag": 0}, default=0)
    """1 if the partition is recovering from an unclean leader election; 0 otherwise."""
    leader_epoch: int = field(metadata={"kafka_type": "int32"}, default=-1)
    """The epoch of the partition leader."""
    partition_epoch: int = field(metadata={"kafka_type": "int32"}, default=-1)
    """An epoch that gets incremented each time we change anything in the partition."""
    directories: tuple[bytes, ...] = field(metadata={"kafka_type": "uuid"}, default=())
    """The log directory hosting each replica, sorted in the same exact order as the Replicas field."""
    eligible_leader_replicas: tuple[int, ...] | None = field(metadata={"kafka_type": "int32", "tag": 1}, default=None)
    """The eligible leader replicas of this partition."""
    last_known_elr: tuple[int, ...] | None = field(metadata={"kafka_type": "int32", "tag": 2}, default=None)
    """The last known eligible leader replicas of this partition."""
