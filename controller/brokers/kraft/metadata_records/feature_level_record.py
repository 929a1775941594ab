"""`FeatureLevelRecord`. Generated from Kafka's `common/metadata/FeatureLevelRecord.json`."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevelRecordV0:
    """A `FeatureLevelRecord`; version 0."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 12
    name: str = field(metadata={"kafka_type": "string"}, default="")
    """The feature name."""
    feature_level: int = field(metadata={"kafka_type": "int16"}, default=0)
    """The current finalized feature level of this feature for the cluster, a value of 0 means feature not supported."""
