"""`PartitionChangeRecord`. Generated from Kafka's `common/metadata/PartitionChangeRecord.json`."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChangeRecordV0:
    """A `PartitionChangeRecord`; version 0."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 5
    partition_id: int = field(metadata={"kafka_type": "int32"}, default=-1)
    """The partition id."""
    topic_id: bytes = field(metadata={"kafka_type": "uuid"}, default=bytes(16))
    """The unique ID of this topic."""
    isr: tuple[int, ...] | None = field(metadata={"kafka_type": "int32", "tag": 0}, default=None)
    """null if the ISR didn't change; the new in-sync replicas otherwise."""
    leader: int = field(metadata={"kafka_type": "int32", "tag": 1}, default=-2)
    """-1 if there is now no leader; -2 if the leader didn't change; the new leader otherwise."""
    replicas: tuple[int, ...] | None = field(metadata={"kafka_type": "int32", "tag": 2}, default=None)
    """null if the replicas didn't change; the new replicas otherwise."""
    removing_replicas: tuple[int, ...] | None = field(metadata={"kafka_type": "int32", "tag": 3}, default=None)
    """null if the removing replicas didn't change; the new removing replicas otherwise."""
    adding_replicas: tuple[int, ...] | None = field(metadata={"kafka_type": "int32", "tag": 4}, default=None)
    """null if the adding replicas didn't change; the new adding replicas otherwise."""
    leader_recovery_state: int = field(metadata={"kafka_type": "int8", "tag": 5}, default=-1)
    """-1 if it didn't change; 0 if the leader was elected from the ISR or recovered from an unclean election; 1 if
    the leader that was elected using unclean leader election and it is still recovering."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChangeRecordV1:
    """A `PartitionChangeRecord`; version 1."""

    __version__: ClassVar[int] = 1
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 5
    partition_id: int = field(metadata={"kafka_type": "int32"}, default=-1)
    """The partition id."""
    topic_id: bytes = field(metadata={"kafka_type": "uuid"}, default=bytes(16))
    """The unique ID of this topic."""
    isr: tuple[int, ...] | None = field(metadata={"kafka_type": "int32", "tag": 0}, default=None)
    """null if the ISR didn't change; the new in-sync replicas otherwise."""
    leader: int = field(metadata={"kafka_type": "int32", "tag": 1}, default=-2)
    """-1 if there is now no leader; -2 if the leader didn't change; the new leader otherwise."""
    replicas: tuple[int, ...] | None = field(metadata={"kafka_type": "int32", "tag": 2}, default=None)
    """null if the replicas didn't change; the new replicas otherwise."""
    removing_replicas: tuple[int, ...] | None = field(metadata={"kafka_type": "int32", "tag": 3}, default=None)
    """null if the removing replicas didn't change; the new removing replicas otherwise."""
    adding_replicas: tuple[int, ...] | None = field(metadata={"kafka_type": "int32", "tag": 4}, default=None)
    """null if the adding replicas didn't change; the new adding replicas otherwise."""
    leader_recovery_state: int = field(metadata={"kafka_type": "int8", "tag": 5}, default=-1)
    """-1 if it didn't change; 0 if the leader was elected from the ISR or recovered from an unclean election; 1 if
    the leader that was elected using unclean leader election and it is still recovering."""
    directories: tuple[bytes, ...] | None = field(metadata={"kafka_type": "uuid", "tag": 8}, default=None)
    """null if the log dirs didn't change; the new log directory for each replica otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChangeRecordV2:
    """A `PartitionChangeRecord`; version 2."""

    __version__: ClassVar[int] = 2
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 5
    partition_id: int = field(metadata={"kafka_type": "int32"}, default=-1)
    """The partition id."""
    topic_id: bytes = field(metadata={"kafka_type": "uuid"}, default=bytes(16))
    """The unique ID of this topic."""
    isr: tuple[int, ...] | None = field(metadata={"kafka_type": "int32", "tag": 0}, default=None)
    """null if the ISR didn't change; the new in-sync replicas otherwise."""
    leader: int = field(metadata={"kafka_type": "int32", "tag": 1}, default=-2)
    """-1 if there is now no leader; -2 if the leader didn't change; the new leader otherwise."""
    replicas: tuple[int, ...] | None = field(metadata={"kafka_type": "int32", "tag": 2}, default=None)
    """null if the replicas didn't change; the new replicas otherwise."""
    removing_replicas: tuple[int, ...] | None = field(metadata={"kafka_type": "int32", "tag": 3}, default=None)
    """null if the removing replicas didn't change; the new removing replicas otherwise."""
    adding_replicas: tuple[int, ...] | None = field(metadata={"kafka_type": "int32", "tag": 4}, default=None)
    """null if the adding replicas didn't change; the new adding replicas otherwise."""
    leader_recovery_state: int = field(metadata={"kafka_type": "int8", "tag": 5}, default=-1)
    """-1 if it didn't change; 0 if the leader was elected from the ISR or recovered from an unclean election; 1 if
    the leader that was elected using unclean leader election and it is still recovering."""
    directories: tuple[bytes, ...] | None = field(metadata={"kafka_type": "uuid", "tag": 8}, default=None)
    """null if the log dirs didn't change; the new log directory for each replica otherwise."""
    eligible_leader_replicas: tuple[int, ...] | None = field(metadata={"kafka_type": "int32", "tag": 6}, default=None)
    """null if the ELR didn't change; the new eligible leader replicas otherwise."""
    last_known_elr: tuple[int, ...] | None = field(metadata={"kafka_type": "int32", "tag": 7}, default=None)
    """null if the LastKnownElr didn't change; the last known eligible leader replicas otherwise."""
