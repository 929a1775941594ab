"""`UnregisterBrokerRecord`. Generated from Kafka's `common/metadata/UnregisterBrokerRecord.json`."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBrokerRecordV0:
    """A `UnregisterBrokerRecord`; version 0."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 1
    broker_id: int = field(metadata={"kafka_type": "int32"}, default=0)
    """The broker id."""
    broker_epoch: int = field(metadata={"kafka_type": "int64"}, default=0)
    """The broker epoch."""
