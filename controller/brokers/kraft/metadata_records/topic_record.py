"""`TopicRecord`. Generated from Kafka's `common/metadata/TopicRecord.json`."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecordV0:
    """A `TopicRecord`; version 0."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 2
    name: str = field(metadata={"kafka_type": "string"}, default="")
    """The topic name."""
    topic_id: bytes = field(metadata={"kafka_type": "uuid"}, default=bytes(16))
    """The unique ID of this topic."""
