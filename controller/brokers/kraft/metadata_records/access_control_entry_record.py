"""`AccessControlEntryRecord`. Generated from Kafka's `common/metadata/AccessControlEntryRecord.json`."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessControlEntryRecordV0:
    """A `AccessControlEntryRecord`; version 0."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 18
    id: bytes = field(metadata={"kafka_type": "uuid"}, default=bytes(16))
    """The unique ID of this ACL."""
    resource_type: int = field(metadata={"kafka_type": "int8"}, default=0)
    """The resource type."""
    resource_name: str = field(metadata={"kafka_type": "string"}, default="")
    """The resource name."""
    pattern_type: int = field(metadata={"kafka_type": "int8"}, default=0)
    """The resource name pattern type."""
    principal: str = field(metadata={"kafka_type": "string"}, default="")
    """The principal name."""
    host: str = field(metadata={"kafka_type": "string"}, default="")
    """The host name."""
    operation: int = field(metadata={"kafka_type": "int8"}, default=0)
    """The AclOperation."""
    permission_type: int = field(metadata={"kafka_type": "int8"}, default=0)
    """The AclPermissionType."""
