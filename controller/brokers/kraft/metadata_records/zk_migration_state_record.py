"""`ZkMigrationStateRecord`. Generated from Kafka's `common/metadata/ZkMigrationStateRecord.json`."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class ZkMigrationStateRecordV0:
    """A `ZkMigrationStateRecord`; version 0."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 21
    zk_migration_state: int = field(metadata={"kafka_type": "int8"}, default=0)
    """One of the possible migration states."""
