"""`ClientQuotaRecord`. Generated from Kafka's `common/metadata/ClientQuotaRecord.json`."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityDataV0:
    """Part of `ClientQuotaRecord`; version 0."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    entity_type: str = field(metadata={"kafka_type": "string"}, default="")
    """The entity type."""
    entity_name: str | None = field(metadata={"kafka_type": "string"}, default="")
    """The name of the entity, or null if the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuotaRecordV0:
    """A `ClientQuotaRecord`; version 0."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 14
    entity: tuple[EntityDataV0, ...] = field(metadata={}, default=())
    """The quota entity to alter."""
    key: str = field(metadata={"kafka_type": "string"}, default="")
    """The quota configuration key."""
    value: float = field(metadata={"kafka_type": "float64"}, default=0.0)
    """The value to set, otherwise ignored if the value is to be removed."""
    remove: bool = field(metadata={"kafka_type": "bool"}, default=False)
    """Whether the quota configuration value should be removed, otherwise set."""
