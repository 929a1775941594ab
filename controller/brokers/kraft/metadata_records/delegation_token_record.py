"""`DelegationTokenRecord`. Generated from Kafka's `common/metadata/DelegationTokenRecord.json`."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationTokenRecordV0:
    """A `DelegationTokenRecord`; version 0."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 10
    owner: str = field(metadata={"kafka_type": "string"}, default="")
    """The delegation token owner."""
    requester: str = field(metadata={"kafka_type": "string"}, default="")
    """The delegation token requester."""
    renewers: tuple[str, ...] = field(metadata={"kafka_type": "string"}, default=())
    """The principals which can renew this token."""
    issue_timestamp: int = field(metadata={"kafka_type": "int64"}, default=0)
    """The time at which this timestamp was issued."""
    max_timestamp: int = field(metadata={"kafka_type": "int64"}, default=0)
    """The time at which this token cannot be renewed any more."""
    expiration_timestamp: int = field(metadata={"kafka_type": "int64"}, default=0)
    """The next time at which this token must be renewed."""
    token_id: str = field(metadata={"kafka_type": "string"}, default="")
    """The token id."""
