"""`UnfenceBrokerRecord`. Generated from Kafka's `common/metadata/UnfenceBrokerRecord.json`."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfenceBrokerRecordV0:
    """A `UnfenceBrokerRecord`; version 0."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 8
    id: int = field(metadata={"kafka_type": "int32"}, default=0)
    """The broker ID to unfence."""
    epoch: int = field(metadata={"kafka_type": "int64"}, default=0)
    """The epoch of the broker to unfence."""
