"""`BeginTransactionRecord`. Generated from Kafka's `common/metadata/BeginTransactionRecord.json`."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginTransactionRecordV0:
    """A `BeginTransactionRecord`; version 0."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 23
    name: str | None = field(metadata={"kafka_type": "string", "tag": 0}, default=None)
    """An optional textual description of this transaction."""
