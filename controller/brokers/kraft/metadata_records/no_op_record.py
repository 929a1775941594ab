"""`NoOpRecord`. Generated from Kafka's `common/metadata/NoOpRecord.json`."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOpRecordV0:
    """A `NoOpRecord`; version 0."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 20
