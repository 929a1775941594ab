"""Decides on requests about access, as Kafka's controllers do: CreateAcls and DeleteAcls (KIP-140, KIP-290),
AlterUserScramCredentials (KIP-554), AlterClientQuotas (KIP-546, KIP-599, KIP-612).

The API handler has checked before that the principal may alter the cluster. It derives the keys of a SCRAM credential
from the client's salted password; only these keys are in the command and the log. If a request names a user twice, none
of that user's changes are made; those of other users are.

All of Kafka's quotas are stored and described; only mutation quotas (KIP-599) are enforced here, by
`controller.access.mutation_quotas`.
"""

import re
from collections import Counter
from collections.abc import Mapping
from math import isfinite
from typing import Final

from controller.machine.access import acls as codes
from controller.machine.access.acls import address_range, is_range
from controller.machine.commands import commands
from controller.machine.commands.access import AlterClientQuotas, CreateAcls, DeleteAcls, QuotaAlteration
from controller.machine.decision import Decision, Detail, answered, topic_named
from controller.machine.errors import ErrorCode
from controller.machine.state import Cluster, State
from controller.machine.validation import RECORDS_PER_REQUEST_MAX
from events.access import (
    Acl,
    AclsCreated,
    AclsDeleted,
    QuotaEntity,
    QuotasChanged,
    ScramCredentialRemoved,
    ScramCredentialSet,
)
from events.catalog import PartitionsAdded, TopicCreated

# ACLs

CLUSTER_NAME = "kafka-cluster"
"""Kafka's name of the only cluster resource."""

RANGES_SINCE = 32
"""The metadata.version (4.4-IV1) from which the host of an ACL may be an address range (KIP-1276)."""
RESOURCE_TYPES = range(codes.TOPIC, codes.USER + 1)
OPERATIONS = range(codes.ALL, codes.TWO_PHASE_COMMIT + 1)


def create_acls(state: State, command: CreateAcls) -> Decision:
    """Creates the valid ACLs. Creating an existing ACL succeeds without an event."""
    if len(command.acls) > RECORDS_PER_REQUEST_MAX:
        return _too_many(command, "create")
    held, level = state.cluster.acls, state.cluster.feature("metadata.version")
    has_ranges = level == 0 or level >= RANGES_SINCE  # a level of 0: the brokers are not KRaft brokers
    details = tuple(_wrong_with(acl) or _wrong_with_host(acl.host, has_ranges) or Detail() for acl in command.acls)
    new = {acl for acl, detail in zip(command.acls, details, strict=True) if not detail.code and acl not in held}
    return _acls_changed(command, details, tuple(sorted(new)))


def delete_acls(state: State, command: DeleteAcls) -> Decision:
    held = state.cluster.acls
    details = tuple(Detail(acls=tuple(held.matching(each))) for each in command.filters)
    gone = {acl for detail in details for acl in detail.acls}
    if len(gone) > RECORDS_PER_REQUEST_MAX:
        return _too_many(command, "remove")
    return _acls_changed(command, details, tuple(sorted(gone)))


def _acls_changed(command: CreateAcls | DeleteAcls, details: tuple[Detail, ...], changed: tuple[Acl, ...]) -> Decision:
    if not changed:
        return answered(command, details=details)
    event = AclsCreated if isinstance(command, CreateAcls) else AclsDeleted
    who = (command.principal, command.client_id, command.host)
    return answered(command, event(command.request_id, changed, *who), details=details)


def _too_many(command: CreateAcls | DeleteAcls, verb: str) -> Decision:
    message = f"Cannot {verb} more than {RECORDS_PER_REQUEST_MAX} acls in a single operation."
    return answered(command, code=ErrorCode.POLICY_VIOLATION, message=message)


def _wrong_with(acl: Acl) -> Detail | None:
    """Returns the error of an invalid ACL, or None. The message is Kafka's if Kafka refuses the ACL too."""
    if acl.resource_type not in RESOURCE_TYPES:
        return _invalid_acl(f"Invalid resourceType {_WORDS.get(acl.resource_type, 'UNKNOWN')}")
    if acl.resource_type == codes.CLUSTER and acl.name != CLUSTER_NAME:
        return _invalid_acl(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.name:
        return _invalid_acl("Invalid empty resource name")
    if acl.pattern_type not in (codes.LITERAL, codes.PREFIXED):
        return _invalid_acl(f"Invalid patternType {_WORDS.get(acl.pattern_type, 'UNKNOWN')}")
    if acl.operation not in OPERATIONS:
        return _invalid_acl(f"Invalid operation {_WORDS.get(acl.operation, 'UNKNOWN')}")
    if acl.permission not in (codes.DENY, codes.ALLOW):
        return _invalid_acl(f"Invalid permissionType {_WORDS.get(acl.permission, 'UNKNOWN')}")
    if not all(acl.principal.partition(":")):
        # Kafka accepts such an ACL, and then fails every request for which its authorizer evaluates the ACL.
        return _invalid_acl(f"Invalid principal {acl.principal!r}: it must be TYPE:NAME, such as User:alice or User:*")
    return None


def _wrong_with_host(host: str, has_ranges: bool) -> Detail | None:
    if not host:
        return _invalid_acl("Host pattern cannot be null or empty")
    if not is_range(host):
        return None
    if not has_ranges:
        message = "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."
        return Detail(int(ErrorCode.UNSUPPORTED_VERSION), message)
    try:
        address_range(host)
    except ValueError as why:
        return _invalid_acl(f"Invalid CIDR notation '{host}': {why}")
    return None


_WORDS = {codes.ANY: "ANY", codes.MATCH: "MATCH"}
"""Kafka's words for codes that only filters may have."""


def _invalid_acl(message: str) -> Detail:
    return Detail(int(ErrorCode.INVALID_REQUEST), message)


# SCRAM credentials

MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""SCRAM mechanisms by Kafka's numbers."""
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384

_TWICE = Detail(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")


def alter_credentials(state: State, command: commands.AlterUserScramCredentials) -> Decision:
    outcomes: dict[str, Detail] = {}
    for change in command.changes:
        before = outcomes.get(change.user)
        if before is None:
            outcomes[change.user] = _wrong_with_credential(state.cluster, change)
        elif not before.code:
            outcomes[change.user] = _TWICE
    events = (_credential_event(command, change) for change in command.changes if not outcomes[change.user].code)
    return answered(command, *events, details=tuple(outcomes[change.user] for change in command.changes))


def _wrong_with_credential(cluster: Cluster, change: commands.ScramChange) -> Detail:
    if not change.user:
        return Detail(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in MECHANISMS:
        return Detail(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if change.credential is None:
        if (change.user, MECHANISMS[change.mechanism]) not in cluster.scram:
            return Detail(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    elif not ITERATIONS_MIN <= change.credential.iterations <= ITERATIONS_MAX:
        how = "few" if change.credential.iterations < ITERATIONS_MIN else "many"
        return Detail(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too {how} iterations")
    return Detail()


def _credential_event(
    command: commands.AlterUserScramCredentials, change: commands.ScramChange
) -> ScramCredentialSet | ScramCredentialRemoved:
    mechanism, who = MECHANISMS[change.mechanism], (command.principal, command.client_id, command.host)
    if (new := change.credential) is None:
        return ScramCredentialRemoved(command.request_id, change.user, mechanism, *who)
    keys = (new.iterations, new.salt, new.stored_key, new.server_key)
    return ScramCredentialSet(command.request_id, change.user, mechanism, *keys, *who)


# Quotas

USER, CLIENT_ID, IP = "user", "client-id", "ip"
"""Kafka's types of quota entities."""
MUTATION_RATE: Final = "controller_mutation_rate"
"""The quota on partitions created and deleted per second (KIP-599)."""

_IP = re.compile(r"(?:\d{1,3}\.){3}\d{1,3}|[0-9a-fA-F]*:[0-9a-fA-F:.]*")
_LONG_MAX, _INT_MAX = 2**63 - 1, 2**31 - 1
_USER_KEYS: Mapping[str, int | None] = {
    "producer_byte_rate": _LONG_MAX,
    "consumer_byte_rate": _LONG_MAX,
    "request_percentage": None,
    MUTATION_RATE: None,
}
"""Quota keys of users and client ids. A key with a number takes whole numbers up to it; other keys take any."""
_IP_KEYS: Mapping[str, int | None] = {"connection_creation_rate": _INT_MAX}


def alter_client_quotas(state: State, command: AlterClientQuotas) -> Decision:
    """Changes the quotas of each entity independently. An entity that is named twice is refused, as in Kafka."""
    details: list[Detail] = []
    events: list[QuotasChanged] = []
    seen: set[QuotaEntity] = set()
    for alteration in command.alterations:
        entity = canonical_entity(alteration.entity)
        wrong = _duplicate_quota(entity, seen, alteration) or _wrong_with_entity(alteration.entity)
        values = (_wrong_with_value(entity, key, value) for key, value in alteration.ops if value is not None)
        wrong = wrong or next(filter(None, values), "")
        details.append(Detail(int(ErrorCode.INVALID_REQUEST), wrong) if wrong else Detail())
        seen.add(entity)
        if not wrong:
            event = _quota_changes(state.cluster.quotas.get(entity, ()), entity, alteration, command)
            events += [] if event is None else [event]
    return answered(command, *([] if command.validate_only else events), details=tuple(details))


def mutations(state: State, command: commands.TopicCommand, decision: Decision) -> int:
    """Returns the number of partitions that a decision creates or deletes, or in a dry run would create or delete.
    Mutation quotas count them."""
    if decision.refusal is not None or decision.needs_approval:
        return 0
    for event in decision.events:
        if isinstance(event, TopicCreated | PartitionsAdded):
            return len(event.partitions)
    if isinstance(command, commands.AlterTopicConfigs) or not decision.answers or decision.answers[0].topic is None:
        return 0
    count = len(decision.answers[0].topic.partitions)
    before = topic_named(state, command.topic) if isinstance(command, commands.CreatePartitions) else None
    return count - (len(before.partitions) if before is not None else 0)


def canonical_entity(entity: QuotaEntity) -> QuotaEntity:
    """Returns the entity with its (type, name) parts sorted, so that equal entities compare as equal."""
    return tuple(sorted(entity, key=lambda part: (part[0], part[1] or "")))


def after_quotas(values: tuple[tuple[str, float], ...], event: QuotasChanged) -> tuple[tuple[str, float], ...]:
    """Returns the quotas of an entity after an event, sorted by key."""
    kept = {key: value for key, value in values if key not in event.removed}
    return tuple(sorted({**kept, **dict(event.values)}.items()))


def _duplicate_quota(entity: QuotaEntity, seen: set[QuotaEntity], alteration: QuotaAlteration) -> str:
    """Returns the error for an entity or key that a request names twice, or "" if there is none."""
    if entity in seen:
        return f"Ignoring duplicate entity {_entity_text(entity)}"
    for key, times in Counter(key for key, _ in alteration.ops).items():
        if times > 1:
            return f"Duplicate quota key {key} not updating quota for this entity {_entity_text(entity)}"
    return ""


def _entity_text(entity: QuotaEntity) -> str:
    return "ClientQuotaEntity(entries={" + ", ".join(f"{kind}={name or '<default>'}" for kind, name in entity) + "})"


def _wrong_with_entity(entity: QuotaEntity) -> str:
    if not entity:
        return "Invalid empty client quota entity"
    types = [kind for kind, _ in entity]
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            return f"Unhandled client quota entity type: {kind}"
        if types.count(kind) > 1:
            return f"Invalid client quota entity, duplicate entity entry {kind}"
        if name == "":
            return f"Empty {kind} not supported"
        if kind == IP and len(entity) > 1:
            return "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
        if kind == IP and name is not None and not _IP.fullmatch(name):
            return f"{name} is not a valid IP; host names are not resolved."
    return ""


def _wrong_with_value(entity: QuotaEntity, key: str, value: float) -> str:
    keys = _IP_KEYS if entity[0][0] == IP else _USER_KEYS
    if key not in keys:
        return f"Invalid configuration key {key}; allowed: {', '.join(sorted(keys))}"
    if not isfinite(value):
        return f"Quota {key} must be a finite number"
    if value <= 0:
        return f"Quota {key} must be greater than 0"
    largest = keys[key]
    if largest is None:
        return ""
    if value > float(largest):  # as in Java: Long.MAX_VALUE (no limit) is sent as the nearest double
        return f"Proposed value for {key} is too large for {'an INT' if largest == _INT_MAX else 'a LONG'}."
    return f"{key} cannot be a fractional value." if abs(value % 1.0) > 1e-6 else ""


def _quota_changes(
    held: tuple[tuple[str, float], ...], entity: QuotaEntity, alteration: QuotaAlteration, command: AlterClientQuotas
) -> QuotasChanged | None:
    before = dict(held)
    ops = sorted(alteration.ops, key=lambda op: op[0])
    values = tuple((key, value) for key, value in ops if value is not None and before.get(key) != value)
    removed = tuple(key for key, value in ops if value is None and key in before)
    if not values and not removed:
        return None
    who = (command.principal, command.client_id, command.host)
    return QuotasChanged(command.request_id, entity, values, removed, *who)
