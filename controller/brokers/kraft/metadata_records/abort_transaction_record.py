"""`AbortTransactionRecord`. Generated from Kafka's `common/metadata/AbortTransactionRecord.json`."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortTransactionRecordV0:
    """A `AbortTransactionRecord`; version 0."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 25
    reason: str | None = field(metadata={"kafka_type": "string", "tag": 0}, default=None)
    """An optional textual description of why the transaction was aborted."""
