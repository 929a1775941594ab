"""`RemoveUserScramCredentialRecord`. Generated from Kafka's `common/metadata/RemoveUserScramCredentialRecord.json`."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveUserScramCredentialRecordV0:
    """A `RemoveUserScramCredentialRecord`; version 0."""

    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = 22
    name: str = field(metadata={"kafka_type": "string"}, default="")
    """The user name."""
    mechanism: int = field(metadata={"kafka_type": "int8"}, default=0)
    """The SCRAM mechanism."""
