"""Who may do what: the port through which permissions are checked (KIP-4 rule 3, KIP-11), and the authorizer that
answers by access control entries as Kafka's StandardAuthorizer does.

APIs and HTTP check before a command is made and stamp the answer on it, so that a refusal is decided, answered and
logged like any other.

Rules of the standard authorizer:
- super users may do everything;
- the entries that count are those of all patterns over the resource: its name, `*`, prefixes of its name;
- of these, the ones for the principal or for `User:*`, from the client's address, in whatever form it is written, from
  a range of addresses that contains it (KIP-1276), or from `*`;
- one that denies the operation, or all, wins over every one that allows it;
- whoever may read, write, delete or alter may describe; whoever may alter configs may describe them;
- a resource without any entry is closed, or open with `allow.everyone.if.no.acl.found`.

A check costs some microseconds however many entries there are: patterns are found by look-ups, and where a pattern has
many entries they are found by principal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Literal, Protocol

from controller.kafka.session import normal_host
from controller.machine import acls as codes
from controller.machine.access.cidr import in_range, is_range
from controller.machine.acls import Acls, Entries, Pattern
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
ResourceType = Literal["Cluster", "Topic", "Group"]

OPERATION_CODES: Final[dict[Operation, int]] = {
    "Read": codes.READ,
    "Write": codes.WRITE,
    "Create": codes.CREATE,
    "Delete": codes.DELETE,
    "Alter": codes.ALTER,
    "Describe": codes.DESCRIBE,
    "ClusterAction": codes.CLUSTER_ACTION,
    "DescribeConfigs": codes.DESCRIBE_CONFIGS,
    "AlterConfigs": codes.ALTER_CONFIGS,
    "IdempotentWrite": codes.IDEMPOTENT_WRITE,
}
"""Kafka's numbers (AclOperation)."""

_RESOURCE_CODES: Final[dict[ResourceType, int]] = {
    "Cluster": codes.CLUSTER,
    "Topic": codes.TOPIC,
    "Group": codes.GROUP,
}
_EVERYBODY: Final = "User:*"
_ALLOWED_BY: Final = {operation: frozenset({codes.ALL, operation}) for operation in OPERATION_CODES.values()} | {
    codes.DESCRIBE: frozenset({codes.ALL, codes.DESCRIBE, codes.READ, codes.WRITE, codes.DELETE, codes.ALTER}),
    codes.DESCRIBE_CONFIGS: frozenset({codes.ALL, codes.DESCRIBE_CONFIGS, codes.ALTER_CONFIGS}),
}
"""By operation, what an entry must allow for it to be allowed."""
_LOOKED_THROUGH_MAX: Final = 16
"""Entries of one pattern that are looked through one by one; more are found by principal."""


class Requester(Protocol):
    """Who sends a request: `principal` is `TYPE:NAME`, `host` the address it comes from, `api` the request by Kafka's
    name."""

    @property
    def principal(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def client_id(self) -> str | None: ...
    @property
    def api(self) -> str: ...


class Authorizer(Protocol):
    """Who may do what."""

    def allows(self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether the requester may do this to the resource."""
        ...

    def allows_some(self, requester: Requester, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether there may be a resource of the type that the requester may do this to (KIP-679)."""
        ...


class AllowAll:
    """No authorizer: everybody may do everything, as in Kafka without `authorizer.class.name`."""

    def allows(self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether it is allowed: it is."""
        return True

    def allows_some(self, requester: Requester, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether it is allowed: it is."""
        return True


class StandardAuthorizer:
    """Answers by the entries that `acls` gives: those of the last durable commit. It may be used in any thread."""

    def __init__(
        self, acls: Callable[[], Acls], *, super_users: Iterable[str] = (), allow_everyone_if_no_acl_found: bool = False
    ) -> None:
        self._acls = acls
        self._super_users = frozenset(super_users)
        self._open_without_acl = allow_everyone_if_no_acl_found
        self._by_principal: dict[Pattern, tuple[Entries, dict[str, list[Acl]]]] = {}
        """Of patterns with many entries, those entries by principal."""
        self._held = Acls()
        """The entries that these are of."""

    def allows(self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether the entries allow it."""
        principal = requester.principal
        if principal in self._super_users:
            return True
        code, host = OPERATION_CODES[operation], normal_host(requester.host)
        is_allowed = has_entries = False
        for pattern, entries in self._newest().over(_RESOURCE_CODES[resource_type], name):
            has_entries = True
            for acl in self._entries_for(principal, pattern, entries):
                if not _is_from(host, acl):
                    continue
                if acl.permission == codes.DENY:
                    if acl.operation in (codes.ALL, code):
                        return False
                elif acl.operation in _ALLOWED_BY[code]:
                    is_allowed = True
        return is_allowed or (not has_entries and self._open_without_acl)

    def allows_some(self, requester: Requester, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether an entry allows it, whatever others deny: False only where everything of the type is closed."""
        if requester.principal in self._super_users or self._open_without_acl:
            return True
        allowed_by, host = _ALLOWED_BY[OPERATION_CODES[operation]], normal_host(requester.host)
        return any(
            acl.permission == codes.ALLOW
            and acl.principal in (requester.principal, _EVERYBODY)
            and acl.operation in allowed_by
            and _is_from(host, acl)
            for pattern, entries in self._acls().by_pattern.items()
            if pattern[0] == _RESOURCE_CODES[resource_type]
            for acl in entries
        )

    def _newest(self) -> Acls:
        """The entries that hold; what is kept of those that do not is let go."""
        held = self._acls()
        if held is not self._held:
            self._held, now = held, held.by_pattern
            kept = list(self._by_principal.items())  # at once: other threads add to it
            self._by_principal = {pattern: known for pattern, known in kept if now.get(pattern) is known[0]}
        return held

    def _entries_for(self, principal: str, pattern: Pattern, entries: Entries) -> Iterable[Acl]:
        if len(entries) <= _LOOKED_THROUGH_MAX:
            return [acl for acl in entries if acl.principal in (principal, _EVERYBODY)]
        known = self._by_principal.get(pattern)
        if known is None or known[0] is not entries:  # another thread may be at older ones
            known = self._by_principal[pattern] = entries, _by_principal(entries)
        found = known[1].get(principal, [])
        return found if principal == _EVERYBODY else found + known[1].get(_EVERYBODY, [])


def _is_from(host: str, acl: Acl) -> bool:
    """True if an entry is for clients at an address, which is normal."""
    if acl.host in ("*", host):
        return True
    return in_range(host, acl.host) if is_range(acl.host) else normal_host(acl.host) == host


def _by_principal(entries: Entries) -> dict[str, list[Acl]]:
    found: dict[str, list[Acl]] = {}
    for acl in entries:
        found.setdefault(acl.principal, []).append(acl)
    return found
