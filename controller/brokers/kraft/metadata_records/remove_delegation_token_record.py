"""`RemoveDelegationTokenRecord`. Generated from Kafka's `common/metadata/RemoveDelegationTokenRecord.json`."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveDelegationTokenRecordV0:
    """A `RemoveDelegationTokenRecord`; version 0."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 26
    token_id: str = field(metadata={"kafka_type": "string"}, default="")
    """The tokenID to remove."""
