"""Access control entries, quotas and refusals in words, by Kafka's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from events.access import Acl, AsksRefused, QuotaEntity, QuotasChanged
from projections.text.names import error_name

RESOURCE_TYPES: Final[Mapping[int, str]] = {
    2: "Topic",
    3: "Group",
    4: "Cluster",
    5: "TransactionalId",
    6: "DelegationToken",
    7: "User",
}
OPERATIONS: Final[Mapping[int, str]] = {
    2: "All",
    3: "Read",
    4: "Write",
    5: "Create",
    6: "Delete",
    7: "Alter",
    8: "Describe",
    9: "ClusterAction",
    10: "DescribeConfigs",
    11: "AlterConfigs",
    12: "IdempotentWrite",
    13: "CreateTokens",
    14: "DescribeTokens",
    15: "TwoPhaseCommit",
}
DEFAULT_ENTITY: Final = "<default>"
"""Stands for an entity without a name, as in Kafka's tools."""

_PREFIXED, _DENY = 4, 2
_SHOWN_MAX = 5
"""How many entries are shown one by one."""


def acl_in_words(acl: Acl) -> str:
    """What an entry says: `User:bob may Create Topic:pay.* (prefixed) from 10.0.0.7`."""
    verb = "may not" if acl.permission == _DENY else "may"
    operation = OPERATIONS.get(acl.operation, str(acl.operation))
    resource = f"{RESOURCE_TYPES.get(acl.resource_type, acl.resource_type)}:{acl.name}"
    prefixed = " (prefixed)" if acl.pattern_type == _PREFIXED else ""
    host = "" if acl.host == "*" else f" from {acl.host}"
    return f"{acl.principal} {verb} {operation} {resource}{prefixed}{host}"


def acls_in_words(acls: Sequence[Acl]) -> str:
    """The first of some entries, and how many more there are."""
    shown = "; ".join(acl_in_words(acl) for acl in acls[:_SHOWN_MAX])
    return f"{shown}; and {len(acls) - _SHOWN_MAX} more" if len(acls) > _SHOWN_MAX else shown


def entity_in_words(entity: QuotaEntity) -> str:
    """Whom a quota is for: `user alice, client-id <default>`."""
    return ", ".join(f"{kind} {DEFAULT_ENTITY if name is None else name}" for kind, name in entity)


def quotas_in_words(event: QuotasChanged) -> str:
    """What became of the quotas of an entity."""
    steps = [f"{key}={value:g}" for key, value in event.values] + [f"no {key}" for key in event.removed]
    return f"quotas of {entity_in_words(event.entity)}: {', '.join(steps)}"


def refusals_in_words(event: AsksRefused) -> str:
    """How often who was refused what."""
    times = "once" if event.count == 1 else f"{event.count} times"
    wanted = f"{event.operation} on {event.resource}" if event.operation else event.resource
    error = error_name(event.error_code)
    return f"{event.principal} is refused {event.api}, {wanted}, {times} with {error} by {event.rule}"
