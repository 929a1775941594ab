"""Events about access: SCRAM credentials, ACLs, quotas and refused requests, as the log stores them.

These events concern the whole cluster and belong to no topic. `events.catalog` has the rules for all events.
`principal`, `client_id` and `host` are those of the client that made the change.
"""

from events.names import RequestId
from events.values import Fact


class ScramCredentialSet(Fact, frozen=True, tag=True):
    """A user can log in by SCRAM with a new password (RFC 5802, KIP-554).

    The event does not hold the password, but salt and keys allow guessing it. So salt and keys are secrets, and
    everything that displays events hides them.
    """

    request_id: RequestId
    user: str
    mechanism: str
    """`SCRAM-SHA-256` or `SCRAM-SHA-512`."""
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    principal: str
    """The principal that set the credential."""
    client_id: str | None
    host: str = ""

    def __repr__(self) -> str:
        return f"ScramCredentialSet({self.user!r}, {self.mechanism}, {self.iterations}, secrets hidden)"


class ScramCredentialRemoved(Fact, frozen=True, tag=True):
    """A user can no longer log in by this mechanism."""

    request_id: RequestId
    user: str
    mechanism: str
    principal: str
    """The principal that removed the credential."""
    client_id: str | None
    host: str = ""


class LoginSecretDrawn(Fact, frozen=True, tag=True):
    """A random secret was drawn. Every process that serves logins derives the SCRAM answers to unknown users from it.

    A person who knows it can tell which users exist. The first process that serves such logins draws it, once.
    """

    secret: bytes

    def __repr__(self) -> str:
        return "LoginSecretDrawn(secret hidden)"


class Acl(Fact, frozen=True, order=True):
    """One access control entry on a resource pattern (KIP-11, KIP-290), in the codes of Kafka's protocol.

    `resource_type`: 2 topic, 3 group, 4 cluster, 5 transactional id, 6 delegation token, 7 user. `pattern_type`: 3
    literal, 4 prefixed; a literal `*` is every name. `principal` is `TYPE:NAME`, `User:*` for all users; `host`
    is an IP address, or `*` for all. `operation` as in AclOperation, 2 being all. `permission`: 2 deny, 3 allow.
    """

    resource_type: int
    pattern_type: int
    name: str
    principal: str
    host: str
    operation: int
    permission: int


class AclsCreated(Fact, frozen=True, tag=True):
    """The ACLs in `acls`, sorted, were added, for example by CreateAcls; none of these existed before."""

    request_id: RequestId
    acls: tuple[Acl, ...]
    principal: str
    client_id: str | None
    host: str = ""


class AclsDeleted(Fact, frozen=True, tag=True):
    """The ACLs in `acls`, sorted, were removed, for example by DeleteAcls; all of these existed before."""

    request_id: RequestId
    acls: tuple[Acl, ...]
    principal: str
    client_id: str | None
    host: str = ""


QuotaEntity = tuple[tuple[str, str | None], ...]
"""The entity of a quota: pairs of type (`user`, `client-id`, `ip`) and name, None for the type's default; sorted by
type."""


class QuotasChanged(Fact, frozen=True, tag=True):
    """The quotas of one entity changed (KIP-546): `values` are set, `removed` are deleted."""

    request_id: RequestId
    entity: QuotaEntity
    values: tuple[tuple[str, float], ...]
    removed: tuple[str, ...]
    principal: str
    client_id: str | None
    host: str = ""


class RequestsRefused(Fact, frozen=True, tag=True):
    """Refused requests without an event of their own: repeated refusals, and refused reads.

    One event counts `count` refused requests, so that many refusals cannot fill the disk.
    """

    principal: str
    client_id: str | None
    """The client id of the first request."""
    host: str
    """The client's address of the first request."""
    api: str
    operation: str
    """The operation that the principal lacks, by Kafka's name; empty if the authorizer did not refuse."""
    resource: str
    """`TYPE:NAME`, such as `Topic:pay.orders`; the name is `(others)` if there are too many to tell apart."""
    error_code: int
    rule: str
    count: int
    since_ms: int
    """The arrival time of the first request. The last one arrived at or before the time of this event."""
