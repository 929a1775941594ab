"""`ProducerIdsRecord`. Generated from Kafka's `common/metadata/ProducerIdsRecord.json`."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsRecordV0:
    """A `ProducerIdsRecord`; version 0."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 15
    broker_id: int = field(metadata={"kafka_type": "int32"}, default=0)
    """The ID of the requesting broker"""
    broker_epoch: int = field(metadata={"kafka_type": "int64"}, default=-1)
    """The epoch of the requesting broker"""
    next_producer_id: int = field(metadata={"kafka_type": "int64"}, default=0)
    """The next producerId that will be assigned (i.e. the first producerId in the next assigned block)"""
