"""What may be asked about who comes in and who may do what: access control entries, quotas, SCRAM credentials."""

from __future__ import annotations

import msgspec

from controller.machine.asking import ClusterAsk, Command
from events.access import Acl, AsksRefused, QuotaEntity


class CreateAcls(ClusterAsk, frozen=True, kw_only=True, gc=False):
    """Let these access control entries hold; what is wrong with one is told of it alone."""

    acls: tuple[Acl, ...]


class AclFilter(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Which access control entries are meant, in Kafka's codes: 1 is any of a kind, None any name.

    With `pattern_type` 2 (match) a name stands for all patterns that cover the resource of this name (KIP-290).
    """

    resource_type: int = 1
    pattern_type: int = 1
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: int = 1
    permission: int = 1


class DeleteAcls(ClusterAsk, frozen=True, kw_only=True, gc=False):
    """Let the access control entries that any of these filters finds hold no more."""

    filters: tuple[AclFilter, ...]


class QuotaAlteration(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Changes of the quotas of one entity: key and value, None to remove the key. `entity` as the client wrote it."""

    entity: QuotaEntity
    ops: tuple[tuple[str, float | None], ...]


class AlterClientQuotas(ClusterAsk, frozen=True, kw_only=True, gc=False):
    """Change quotas (KIP-546), each entity for itself."""

    alterations: tuple[QuotaAlteration, ...]
    validate_only: bool = False


class ScramRemoval(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A SCRAM credential to remove; `mechanism` is Kafka's number."""

    user: str
    mechanism: int


class ScramUpsert(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A SCRAM credential to set: keys derived from a salted password, never the password (RFC 5802)."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"ScramUpsert({self.user!r}, {self.mechanism}, {self.iterations}, secrets hidden)"


class AlterUserScramCredentials(ClusterAsk, frozen=True, kw_only=True, gc=False):
    """Remove and set SCRAM credentials (KIP-554), each user for itself."""

    removals: tuple[ScramRemoval, ...] = ()
    upserts: tuple[ScramUpsert, ...] = ()


class RecordRefusals(Command, frozen=True, kw_only=True, gc=False):
    """Record refusals that were only counted until now."""

    refusals: tuple[AsksRefused, ...]
