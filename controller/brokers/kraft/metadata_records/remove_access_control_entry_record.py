"""`RemoveAccessControlEntryRecord`. Generated from Kafka's `common/metadata/RemoveAccessControlEntryRecord.json`."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveAccessControlEntryRecordV0:
    """A `RemoveAccessControlEntryRecord`; version 0."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 19
    id: bytes = field(metadata={"kafka_type": "uuid"}, default=bytes(16))
    """The ID of the AccessControlEntry to remove."""
