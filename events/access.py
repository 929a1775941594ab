"""Events about who may come in, what they may do, and how much: credentials, access control entries, quotas, refusals.

They concern the whole cluster and belong to no topic. `events.catalog` has the others, and says what holds of all.
"""

from __future__ import annotations

from events.names import RequestId
from events.values import Fact


class ScramCredentialSet(Fact, frozen=True, tag=True):
    """A user can log in by SCRAM with a new password (RFC 5802, KIP-554).

    The password is not here and cannot be worked out from what is, but by trying; so the salt and the keys are secrets
    all the same, which everything that shows events hides.
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
    """Who set it."""
    client_id: str | None
    host: str = ""
    """The client's address; empty in events of earlier releases."""

    def __repr__(self) -> str:
        return f"ScramCredentialSet({self.user!r}, {self.mechanism}, {self.iterations}, secrets hidden)"


class ScramCredentialRemoved(Fact, frozen=True, tag=True):
    """A user cannot log in by this mechanism any more."""

    request_id: RequestId
    user: str
    mechanism: str
    principal: str
    """Who removed it."""
    client_id: str | None
    host: str = ""
    """The client's address; empty in events of earlier releases."""


class LoginSecretDrawn(Fact, frozen=True, tag=True):
    """What a SCRAM login of a user that is not there is shown is made up from this, for good and by all that answer
    logins: whoever knows it can tell which users there are. It is drawn once, by the first that takes such logins."""

    secret: bytes

    def __repr__(self) -> str:
        return "LoginSecretDrawn(secret hidden)"


class Acl(Fact, frozen=True, order=True):
    """One access control entry on a resource pattern (KIP-11, KIP-290), in the codes of Kafka's protocol.

    `resource_type`: 2 topic, 3 group, 4 cluster, 5 transactional id, 6 delegation token, 7 user. `pattern_type`: 3
    literal, 4 prefixed; a literal `*` is every name. `principal` is `TYPE:NAME`, `User:*` everybody; `host` an IP
    address, `*` every one. `operation` as in AclOperation, 2 being all. `permission`: 2 deny, 3 allow.
    """

    resource_type: int
    pattern_type: int
    name: str
    principal: str
    host: str
    operation: int
    permission: int


class AclsCreated(Fact, frozen=True, tag=True):
    """These access control entries hold from here on; none of them did before. Sorted."""

    request_id: RequestId
    acls: tuple[Acl, ...]
    principal: str
    client_id: str | None
    host: str = ""
    """The client's address; empty in events of earlier releases."""


class AclsDeleted(Fact, frozen=True, tag=True):
    """These access control entries, which held, hold no more. Sorted."""

    request_id: RequestId
    acls: tuple[Acl, ...]
    principal: str
    client_id: str | None
    host: str = ""
    """The client's address; empty in events of earlier releases."""


QuotaEntity = tuple[tuple[str, str | None], ...]
"""Whom a quota is for: type (`user`, `client-id`, `ip`) and name, None for the default of the type; sorted by type."""


class QuotasChanged(Fact, frozen=True, tag=True):
    """The quotas of one entity are changed (KIP-546): those in `values` have these values, `removed` are gone."""

    request_id: RequestId
    entity: QuotaEntity
    values: tuple[tuple[str, float], ...]
    removed: tuple[str, ...]
    principal: str
    client_id: str | None
    host: str = ""
    """The client's address; empty in events of earlier releases."""


class RequestsRefused(Fact, frozen=True, tag=True):
    """Requests were refused that have no record of their own, because a first one has, or because they only wanted to
    see something. One event stands for `count` of them, so that a storm of refusals cannot fill the disk."""

    principal: str
    client_id: str | None
    """The client id of the first of them."""
    host: str
    """Where the first of them came from."""
    api: str
    operation: str
    """What the principal may not do, by Kafka's name; empty where the refusal was not the authorizer's."""
    resource: str
    """`TYPE:NAME`, such as `Topic:pay.orders`; the name is `(others)` where they are too many to tell apart."""
    error_code: int
    rule: str
    count: int
    since_ms: int
    """When the first of them arrived; the last arrived at or before the time of this event."""
