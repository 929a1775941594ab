"""`topicwright acls` and `topicwright quotas`: list, add and remove ACLs and client quotas of a running service, or of
any Kafka.

In front of a cluster with `ClusterAcls`, the service forwards requests about ACLs, so that these are the cluster's.
"""

import argparse
from collections.abc import Mapping

from msgspec.structs import astuple

from controller.apis.access import CREATION_FIELDS, FILTER_FIELDS
from controller.cli.arguments import Negative
from controller.cli.output import show
from controller.cli.work.admin import call, check
from controller.kafka.messages import access
from controller.machine.access.acls import ALLOW, ANY, DENY, LITERAL, MATCH, PREFIXED
from controller.machine.access.requests import CLIENT_ID, IP, USER
from events.access import Acl
from events.errors import UserError
from projections.text.wording import DEFAULT_ENTITY, OPERATIONS, RESOURCE_TYPES, acl_text, entity_text

EXACT, DEFAULT = 0, 1
"""Kafka's match types of quota entities."""
PERMISSIONS, PATTERNS = {DENY: "deny", ALLOW: "allow"}, {LITERAL: "literal", PREFIXED: "prefixed"}
ENTITY_TYPES = (USER, CLIENT_ID, IP)


def list_acls(options: argparse.Namespace) -> int:
    resource_type, name = (ANY, None) if options.resource is None else _resource(options.resource)
    request = access.DescribeAclsRequest(
        resource_type_filter=resource_type,
        resource_name_filter=name,
        pattern_type_filter=ANY if name is None else MATCH,
        principal_filter=options.principal,
        operation=ANY,
        permission_type=ANY,
    )
    answer = call(options, request)
    check(answer)
    found = sorted(
        Acl(of.resource_type, of.pattern_type, of.resource_name, *astuple(one))
        for of in answer.resources
        for one in of.acls
    )
    header = ("PRINCIPAL", "PERMISSION", "OPERATION", "RESOURCE", "PATTERN", "HOST")
    rows = [
        (one.principal, PERMISSIONS[one.permission], OPERATIONS.get(one.operation, one.operation),
         f"{RESOURCE_TYPES.get(one.resource_type, one.resource_type)}:{one.name}", PATTERNS[one.pattern_type], one.host)
        for one in found
    ]  # fmt: skip
    view = {"acls": [dict(zip(map(str.lower, header), row, strict=True)) for row in rows]}
    empty = "There are no ACLs."
    return show(options, view, lambda style: style.table(header, rows, empty), lambda: map(acl_text, found))


def add_acl(options: argparse.Namespace) -> None:
    acl = _acl(options)
    creation = access.AclCreation(**dict(zip(CREATION_FIELDS, astuple(acl), strict=True)))
    request = access.CreateAclsRequest(creations=(creation,))
    check(*call(options, request).results)
    print(acl_text(acl))


def remove_acl(options: argparse.Namespace) -> None:
    acl = _acl(options)
    wanted = access.DeleteAclsFilter(**dict(zip(FILTER_FIELDS, astuple(acl), strict=True)))
    (found,) = call(options, access.DeleteAclsRequest(filters=(wanted,))).filter_results
    check(found, *found.matching_acls)
    if not found.matching_acls:
        raise Negative(f"there is no such ACL: {acl_text(acl)}")
    print(f"removed: {acl_text(acl)}")


def _acl(options: argparse.Namespace) -> Acl:
    resource_type, name = _resource(options.resource)
    operation = _code(OPERATIONS, options.operation, "operation")
    permission = DENY if options.deny else ALLOW
    pattern = PREFIXED if options.prefixed else LITERAL
    return Acl(resource_type, pattern, name, options.principal, options.host, operation, permission)


def _resource(text: str) -> tuple[int, str]:
    kind, colon, name = text.partition(":")
    if not colon or not name:
        raise UserError(f"{text!r} is not TYPE:NAME, as in Topic:pay.orders or Cluster:kafka-cluster")
    return _code(RESOURCE_TYPES, kind, "resource type"), name


def _code(names: Mapping[int, str], text: str, what: str) -> int:
    codes = {name.lower(): code for code, name in names.items()}
    if text.lower() not in codes:
        raise UserError(f"unknown {what} {text!r}; allowed: {', '.join(names.values())}")
    return codes[text.lower()]


# --- quotas


def list_quotas(options: argparse.Namespace) -> int:
    components = tuple(
        access.ComponentData(entity_type=kind, match_type=DEFAULT if name is None else EXACT, match=name)
        for kind, name in _entity(options.entity or "")
    )
    answer = call(options, access.DescribeClientQuotasRequest(components=components))
    check(answer)
    rows = sorted(
        (entity_text((part.entity_type, part.entity_name) for part in entry.entity), value.key, f"{value.value:.17g}")
        for entry in answer.entries or ()
        for value in entry.values
    )
    header, empty = ("ENTITY", "QUOTA", "VALUE"), "There are no quotas."
    view = {"quotas": [{"entity": entity, "quota": key, "value": float(value)} for entity, key, value in rows]}
    entities = dict.fromkeys(entity for entity, _, _ in rows)
    return show(options, view, lambda style: style.table(header, rows, empty), lambda: entities)


def add_quotas(options: argparse.Namespace) -> None:
    given = [one.partition("=") for one in options.values]
    try:
        ops = tuple(access.OpData(key=key, value=float(text)) for key, _, text in given)
    except ValueError:
        raise UserError(f"{' '.join(options.values)!r} is not KEY=NUMBER, as in controller_mutation_rate=5") from None
    _alter(options, ops, "set")


def remove_quotas(options: argparse.Namespace) -> None:
    _alter(options, tuple(access.OpData(key=key, remove=True) for key in options.values), "removed")


def _alter(options: argparse.Namespace, ops: tuple[access.OpData, ...], done: str) -> None:
    entity = _entity(options.entity)
    parts = tuple(access.EntityData(entity_type=kind, entity_name=name) for kind, name in entity)
    request = access.AlterClientQuotasRequest(entries=(access.EntryData(entity=parts, ops=ops),))
    check(*call(options, request).entries)
    print(f"{done} {', '.join(op.key for op in ops)} of {entity_text(entity)}")


def _entity(text: str) -> tuple[tuple[str, str | None], ...]:
    parts = [part.partition("=") for part in text.split(",") if part]
    for kind, _, name in parts:
        if kind not in ENTITY_TYPES or not name:
            example = f"user=ann, client-id=app, ip=10.0.0.7, user=ann,client-id=app; {DEFAULT_ENTITY} is the default"
            raise UserError(f"{text!r} is not an entity of quotas; allowed: {example}")
    return tuple((kind, None if name == DEFAULT_ENTITY else name) for kind, _, name in parts)
