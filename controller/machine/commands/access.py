"""Commands for rules, ACLs, quotas and SCRAM credentials. API handlers create them for `decide`."""

from typing import ClassVar

import msgspec

from controller.machine.commands import NO_TOPIC, Command
from events.access import Acl, QuotaEntity, RequestsRefused
from events.names import RequestId, TopicName


class ClusterCommand(Command, frozen=True, kw_only=True, gc=False):
    """Base of client requests that do not concern one topic: one command per request, with one detail per part.

    Permission is checked before the command is made.
    """

    principal: str = "User:ANONYMOUS"
    client_id: str | None = None
    host: str = ""
    topic: ClassVar[TopicName] = NO_TOPIC


class CreateAcls(ClusterCommand, frozen=True, kw_only=True, gc=False):
    """Create ACLs; each invalid ACL is answered separately."""

    acls: tuple[Acl, ...]


class ApplyRules(ClusterCommand, frozen=True, kw_only=True, gc=False):
    """Replace the rules for changes of topics by this text; an empty one removes them.

    `is_file` is set if the controller applies the rules file of its settings. `after` is the version that the requester
    has read (0 for none); if another version was applied since, the command is refused. None applies the rules anyway.
    """

    text: str
    is_file: bool = False
    after: int | None = None


class EndApprovals(ClusterCommand, frozen=True, kw_only=True, gc=False):
    """Deny held requests, each given by its request id and topic. Without any, end those that have expired."""

    held: tuple[tuple[RequestId, TopicName], ...] = ()
    reason: str = ""


class AclFilter(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A filter of ACLs, in Kafka's codes. The code 1 (ANY) and None match everything.

    With `pattern_type` 2 (match) a name matches all patterns that cover the resource with this name (KIP-290).
    """

    resource_type: int = 1
    pattern_type: int = 1
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: int = 1
    permission: int = 1


class DeleteAcls(ClusterCommand, frozen=True, kw_only=True, gc=False):
    """Delete the ACLs that match any of these filters."""

    filters: tuple[AclFilter, ...]


class QuotaAlteration(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Quota changes of one entity; None removes a key. `entity` is in the client's order of parts."""

    entity: QuotaEntity
    ops: tuple[tuple[str, float | None], ...]


class AlterClientQuotas(ClusterCommand, frozen=True, kw_only=True, gc=False):
    """Change quotas (KIP-546), each entity independently."""

    alterations: tuple[QuotaAlteration, ...]
    validate_only: bool = False


class DrawLoginSecret(Command, frozen=True, kw_only=True, gc=False):
    """Set the secret from which fake credentials of unknown users are derived, unless the secret is already set."""

    secret: bytes

    def __repr__(self) -> str:
        return "DrawLoginSecret(secret hidden)"


class RecordRefusals(Command, frozen=True, kw_only=True, gc=False):
    """Record refusals that were only counted so far, so that equal ones do not each get an event."""

    refusals: tuple[RequestsRefused, ...]
