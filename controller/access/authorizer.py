"""Authorization with ACLs (KIP-4 rule 3, KIP-11), like Kafka's StandardAuthorizer.

The handlers of Kafka APIs and HTTP check permissions before they submit a command, which carries the result (`denied`).
The state machine then rejects, answers and logs a denied command like any other rejection.

Rules of the standard authorizer:
- super users may do everything;
- ACLs apply if their pattern covers the resource: its name, `*`, or a prefix of its name;
- and if they name the principal or `User:*`, and the client's address, a range with that address (KIP-1276) or `*`;
different notations of an address are equal;
- an ACL that denies the operation, or all operations, overrides all that allow it;
- Read, Write, Delete and Alter imply Describe; AlterConfigs implies DescribeConfigs;
- a role of the client's token (`ROLES`) allows its operations on all resources;
- a resource without ACLs is closed, or open with `allow.everyone.if.no.acl.found`.

A check takes a few microseconds for any number of ACLs: it looks up the patterns, and in each the ACLs of the
principal.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Literal, Protocol, get_args

import msgspec

from controller.kafka.handling import ANONYMOUS, normal_host
from controller.machine.access import acls as codes
from controller.machine.access.acls import Acls, in_range, is_range
from controller.machine.commands.commands import HTTP
from controller.machine.state import Cluster
from events.access import Acl

Operation = Literal[
    "Read",
    "Write",
    "Create",
    "Delete",
    "Alter",
    "Describe",
    "ClusterAction",
    "DescribeConfigs",
    "AlterConfigs",
    "IdempotentWrite",
]
"""In the order of Kafka's codes (AclOperation)."""
ResourceType = Literal["Cluster", "Topic", "Group"]

OPERATION_CODES: Final[dict[Operation, int]] = dict(
    zip(get_args(Operation), range(codes.READ, codes.CREATE_TOKENS), strict=True)
)

_RESOURCE_CODES: Final[dict[ResourceType, int]] = {"Cluster": codes.CLUSTER, "Topic": codes.TOPIC, "Group": codes.GROUP}
_READ: Final[frozenset[Operation]] = frozenset({"Describe", "DescribeConfigs"})
_CHANGE: Final[frozenset[Operation]] = frozenset({"Create", "Delete", "Alter", "AlterConfigs"})
_EVERYTHING: Final = frozenset(OPERATION_CODES) - {"ClusterAction"}
ROLES: Final[dict[str, dict[ResourceType, frozenset[Operation]]]] = {
    "viewer": {"Cluster": _READ, "Topic": _READ, "Group": _READ},
    "approver": {"Cluster": _READ, "Topic": _READ, "Group": _READ},
    "operator": {"Cluster": _READ, "Topic": _READ | _CHANGE, "Group": _READ},
    "admin": dict.fromkeys(get_args(ResourceType), _EVERYTHING),
}
"""The operations that each role may do, by type of resource. ClusterAction is for brokers and controllers."""
_EVERYBODY: Final = "User:*"
_ALLOWED_BY: Final = {operation: frozenset({codes.ALL, operation}) for operation in OPERATION_CODES.values()} | {
    codes.DESCRIBE: frozenset({codes.ALL, codes.DESCRIBE, codes.READ, codes.WRITE, codes.DELETE, codes.ALTER}),
    codes.DESCRIBE_CONFIGS: frozenset({codes.ALL, codes.DESCRIBE_CONFIGS, codes.ALTER_CONFIGS}),
}
"""For each requested operation, the operations of ACLs that allow the requested one."""


class Requester(Protocol):
    """The sender of a request. `principal` is `TYPE:NAME`, `roles` those of its token, `host` the client's address,
    `api` Kafka's name of the request."""

    @property
    def principal(self) -> str: ...
    @property
    def roles(self) -> frozenset[str]: ...
    @property
    def host(self) -> str: ...
    @property
    def client_id(self) -> str | None: ...
    @property
    def api(self) -> str: ...


class Caller(msgspec.Struct, frozen=True):
    """A requester outside Kafka's protocol, over HTTP unless `api` says otherwise. `client_id` is None without one."""

    principal: str = ANONYMOUS
    host: str = ""
    client_id: str | None = None
    api: str = HTTP
    roles: frozenset[str] = frozenset()


class StandardAuthorizer:
    """Authorizes by the ACLs that `acls` returns: of the last durable commit, or of a target cluster. Then
    `of_cluster` puts that cluster's ACLs, users and quotas in place of those of a state. Thread-safe."""

    def __init__(
        self,
        acls: Callable[[], Acls],
        *,
        super_users: Iterable[str] = (),
        allow_everyone_if_no_acl_found: bool = False,
        of_cluster: Callable[[Cluster], Awaitable[Cluster]] | None = None,
    ) -> None:
        self._acls, self.of_cluster = acls, of_cluster
        self._super_users = frozenset(super_users)
        self._open_without_acl = allow_everyone_if_no_acl_found

    def allows(self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """True if an ACL or a role allows the operation and no ACL denies it, as Kafka's StandardAuthorizer decides.
        Without any ACL on the resource, `allow.everyone.if.no.acl.found` decides."""
        principal = requester.principal
        if principal in self._super_users:
            return True
        code, host = OPERATION_CODES[operation], normal_host(requester.host)
        is_allowed, has_acls = _may_by_role(requester, operation, resource_type), False
        for entries in self._acls().covering(_RESOURCE_CODES[resource_type], name):
            has_acls = True
            for acl in (*entries.get(principal, ()), *entries.get(_EVERYBODY, ())):
                if not _is_from(host, acl):
                    continue
                if acl.permission == codes.DENY:
                    if acl.operation in (codes.ALL, code):
                        return False
                elif acl.operation in _ALLOWED_BY[code]:
                    is_allowed = True
        return is_allowed or (not has_acls and self._open_without_acl)

    def allows_any(self, requester: Requester, operation: Operation, resource_type: ResourceType) -> bool:
        """True if there may be a resource of the type on which the requester may perform the operation (KIP-679): some
        ACL allows it, whatever others deny."""
        if requester.principal in self._super_users or self._open_without_acl:
            return True
        if _may_by_role(requester, operation, resource_type):
            return True
        allowed_by, host = _ALLOWED_BY[OPERATION_CODES[operation]], normal_host(requester.host)
        return any(
            acl.permission == codes.ALLOW and acl.operation in allowed_by and _is_from(host, acl)
            for pattern, entries in self._acls().by_pattern.items()
            if pattern[0] == _RESOURCE_CODES[resource_type]
            for acl in (*entries.get(requester.principal, ()), *entries.get(_EVERYBODY, ()))
        )


def _may_by_role(requester: Requester, operation: Operation, resource_type: ResourceType) -> bool:
    return any(operation in ROLES[role].get(resource_type, ()) for role in requester.roles)


def _is_from(host: str, acl: Acl) -> bool:
    """True if the ACL covers the address, which is in normal form."""
    if acl.host in ("*", host):
        return True
    return in_range(host, acl.host) if is_range(acl.host) else normal_host(acl.host) == host
