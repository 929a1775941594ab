"""Commands about who comes in and who may do what: access control entries, quotas, SCRAM credentials."""

from __future__ import annotations

import msgspec

from controller.machine.commands import NO_TOPIC, Command
from events.access import Acl, QuotaEntity, RequestsRefused
from events.names import TopicName


class ClusterCommand(Command, frozen=True, kw_only=True, gc=False):
    """Base of a client's requests that concern no topic: one command a request, answered with details.

    Who lacks permission is turned away before there is a command.
    """

    principal: str = "User:ANONYMOUS"
    client_id: str | None = None
    host: str = ""
    """The client's address."""

    @property
    def topic(self) -> TopicName:
        """`NO_TOPIC`."""
        return NO_TOPIC


class CreateAcls(ClusterCommand, frozen=True, kw_only=True, gc=False):
    """Let these access control entries hold; what is wrong with one is answered for it alone."""

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


class DeleteAcls(ClusterCommand, frozen=True, kw_only=True, gc=False):
    """Let the access control entries that any of these filters finds hold no more."""

    filters: tuple[AclFilter, ...]


class QuotaAlteration(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Changes of the quotas of one entity: key and value, None to remove the key. `entity` as the client wrote it."""

    entity: QuotaEntity
    ops: tuple[tuple[str, float | None], ...]


class AlterClientQuotas(ClusterCommand, frozen=True, kw_only=True, gc=False):
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


class AlterUserScramCredentials(ClusterCommand, frozen=True, kw_only=True, gc=False):
    """Remove and set SCRAM credentials (KIP-554), each user for itself."""

    removals: tuple[ScramRemoval, ...] = ()
    upserts: tuple[ScramUpsert, ...] = ()


class DrawLoginSecret(Command, frozen=True, kw_only=True, gc=False):
    """Make up what logins of unknown users are shown from this, unless there is such a secret already."""

    secret: bytes

    def __repr__(self) -> str:
        return "DrawLoginSecret(secret hidden)"


class RecordRefusals(Command, frozen=True, kw_only=True, gc=False):
    """Record refusals that were only counted until now."""

    refusals: tuple[RequestsRefused, ...]
