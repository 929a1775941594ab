"""`ConfigRecord`. Generated from Kafka's `common/metadata/ConfigRecord.json`."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRecordV0:
    """A `ConfigRecord`; version 0."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 4
    resource_type: int = field(metadata={"kafka_type": "int8"}, default=0)
    """The type of resource this configuration applies to."""
    resource_name: str = field(metadata={"kafka_type": "string"}, default="")
    """The name of the resource this configuration applies to."""
    name: str = field(metadata={"kafka_type": "string"}, default="")
    """The name of the configuration key."""
    value: str | None = field(metadata={"kafka_type": "string"}, default="")
    """The value of the configuration, or null if the it should be deleted."""
