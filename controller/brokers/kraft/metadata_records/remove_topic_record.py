"""`RemoveTopicRecord`. Generated from Kafka's `common/metadata/RemoveTopicRecord.json`."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTopicRecordV0:
    """A `RemoveTopicRecord`; version 0."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 9
    topic_id: bytes = field(metadata={"kafka_type": "uuid"}, default=bytes(16))
    """The topic to remove. All associated partitions will be removed as well."""
