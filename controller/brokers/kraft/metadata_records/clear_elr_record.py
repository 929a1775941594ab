"""`ClearElrRecord`. Generated from Kafka's `common/metadata/ClearElrRecord.json`."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearElrRecordV0:
    """A `ClearElrRecord`; version 0."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 28
    topic_name: str = field(metadata={"kafka_type": "string"}, default="")
    """The name of the topic to clear ELRs for, or empty if all ELRs should be cleared."""
