"""`FenceBrokerRecord`. Generated from Kafka's `common/metadata/FenceBrokerRecord.json`."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceBrokerRecordV0:
    """A `FenceBrokerRecord`; version 0."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 7
    id: int = field(metadata={"kafka_type": "int32"}, default=0)
    """The broker ID to fence. It will be removed from all ISRs."""
    epoch: int = field(metadata={"kafka_type": "int64"}, default=0)
    """The epoch of the broker to fence."""
