"""`EndTransactionRecord`. Generated from Kafka's `common/metadata/EndTransactionRecord.json`."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionRecordV0:
    """A `EndTransactionRecord`; version 0."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 24
