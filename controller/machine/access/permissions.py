"""Decides on CreateAcls and DeleteAcls (KIP-140, KIP-290), like Kafka's AclControlManager.

The API handler has checked before that the principal may alter the cluster.
"""

from __future__ import annotations

from controller.machine.access import acls as codes
from controller.machine.access.acls import address_range, is_range
from controller.machine.commands.access import CreateAcls, DeleteAcls
from controller.machine.decision import Answer, Decision, Detail
from controller.machine.errors import ErrorCode
from controller.machine.state import State
from events.access import Acl, AclsCreated, AclsDeleted

CLUSTER_NAME = "kafka-cluster"
"""Kafka's name of the only cluster resource."""
CHANGES_PER_REQUEST_MAX = 10_000
"""Kafka's limit on the records of a request (QuorumController.MAX_RECORDS_PER_USER_OP)."""

RANGES_SINCE = 32
"""The metadata.version (4.4-IV1) from which the host of an ACL may be an address range (KIP-1276)."""
RESOURCE_TYPES = range(codes.TOPIC, codes.USER + 1)
OPERATIONS = range(codes.ALL, codes.TWO_PHASE_COMMIT + 1)


def create_acls(state: State, command: CreateAcls) -> Decision:
    """Creates the valid ACLs. Creating an existing ACL succeeds without an event."""
    if len(command.acls) > CHANGES_PER_REQUEST_MAX:
        return _too_many(command, "create")
    held, level = state.cluster.acls, state.cluster.feature("metadata.version")
    has_ranges = level == 0 or level >= RANGES_SINCE  # a level of 0: the brokers are not KRaft brokers
    details = tuple(_wrong_with(acl) or _wrong_with_host(acl.host, has_ranges) or Detail() for acl in command.acls)
    new = {acl for acl, detail in zip(command.acls, details, strict=True) if not detail.code and acl not in held}
    return _decided(command, details, tuple(sorted(new)))


def delete_acls(state: State, command: DeleteAcls) -> Decision:
    """Deletes the ACLs that match the filters; the answer lists the matches of each filter."""
    held = state.cluster.acls
    details = tuple(Detail(acls=tuple(held.matching(each))) for each in command.filters)
    gone = {acl for detail in details for acl in detail.acls}
    if len(gone) > CHANGES_PER_REQUEST_MAX:
        return _too_many(command, "remove")
    return _decided(command, details, tuple(sorted(gone)))


def _decided(command: CreateAcls | DeleteAcls, details: tuple[Detail, ...], changed: tuple[Acl, ...]) -> Decision:
    answer = Answer(command.request_id, command.topic, 0, details=details)
    if not changed:
        return Decision((), (answer,))
    event = AclsCreated if isinstance(command, CreateAcls) else AclsDeleted
    who = (command.principal, command.client_id, command.host)
    return Decision((event(command.request_id, changed, *who),), (answer,))


def _too_many(command: CreateAcls | DeleteAcls, verb: str) -> Decision:
    message = f"Cannot {verb} more than {CHANGES_PER_REQUEST_MAX} acls in a single operation."
    return Decision((), (Answer(command.request_id, command.topic, int(ErrorCode.POLICY_VIOLATION), message),))


def _wrong_with(acl: Acl) -> Detail | None:
    """Returns the error of an invalid ACL, or None. The message is Kafka's if Kafka refuses the ACL too."""
    if acl.resource_type not in RESOURCE_TYPES:
        return _invalid(f"Invalid resourceType {_any_or_unknown(acl.resource_type)}")
    if acl.resource_type == codes.CLUSTER and acl.name != CLUSTER_NAME:
        return _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.name:
        return _invalid("Invalid empty resource name")
    if acl.pattern_type not in (codes.LITERAL, codes.PREFIXED):
        return _invalid(f"Invalid patternType {_PATTERN_WORDS.get(acl.pattern_type, 'UNKNOWN')}")
    if acl.operation not in OPERATIONS:
        return _invalid(f"Invalid operation {_any_or_unknown(acl.operation)}")
    if acl.permission not in (codes.DENY, codes.ALLOW):
        return _invalid(f"Invalid permissionType {_any_or_unknown(acl.permission)}")
    if not all(acl.principal.partition(":")):
        # Kafka accepts such an ACL, and then fails every request for which its authorizer evaluates the ACL.
        return _invalid(f"Invalid principal {acl.principal!r}: it must be TYPE:NAME, such as User:alice or User:*")
    return None


def _wrong_with_host(host: str, has_ranges: bool) -> Detail | None:
    if not host:
        return _invalid("Host pattern cannot be null or empty")
    if not is_range(host):
        return None
    if not has_ranges:
        message = "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher."
        return Detail(int(ErrorCode.UNSUPPORTED_VERSION), message)
    try:
        address_range(host)
    except ValueError as why:
        return _invalid(f"Invalid CIDR notation '{host}': {why}")
    return None


_PATTERN_WORDS = {codes.ANY: "ANY", codes.MATCH: "MATCH"}


def _any_or_unknown(code: int) -> str:
    return "ANY" if code == codes.ANY else "UNKNOWN"


def _invalid(message: str) -> Detail:
    return Detail(int(ErrorCode.INVALID_REQUEST), message)
