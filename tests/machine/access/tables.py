"""Verbs of the text tables for ACLs, quotas, SCRAM credentials and counted refusals."""

from typing import Any

from controller.machine.commands import access, commands
from controller.machine.commands.commands import AnyCommand
from controller.machine.state import ScramCredential
from events.access import Acl, RequestsRefused
from tests.machine.partitions.real_tables import Fields
from tests.machine.rig import Rig

_TYPES = {"any": 1, "topic": 2, "group": 3, "cluster": 4, "unknown": 9}
_OPERATIONS = {"any": 1, "all": 2, "read": 3, "write": 4, "create": 5, "describe": 8, "unknown": 99}
_PERMISSIONS = {"any": 1, "deny": 2, "allow": 3}
_NAMES = {"''": "", "*": "*"}


def acl(word: str) -> Acl:
    principal, permission, operation, kind, name, *host = word.split("/")
    pattern = 4 if name.endswith("…") else 2 if name.startswith("~") else 3
    return Acl(
        _TYPES[kind],
        pattern,
        _NAMES.get(name, name.strip("…~")),
        principal if ":" in principal else f"User:{principal}" if principal else "",
        "/".join(host).strip("-") if host else "*",
        _OPERATIONS[operation],
        _PERMISSIONS[permission],
    )


def acl_filter(word: str) -> access.AclFilter:
    kind, pattern, name, principal, operation = word.split("/")
    return access.AclFilter(
        _TYPES[kind],
        {"any": 1, "match": 2, "literal": 3, "prefixed": 4}[pattern],
        None if name == "-" else name,
        None if principal == "-" else f"User:{principal}",
        None,
        _OPERATIONS[operation],
        1,
    )


def _alteration(word: str) -> access.QuotaAlteration:
    entity, _, ops = word.partition("/")
    parts = [part.split(":", 1) for part in entity.split("+") if part]
    pairs = [op.split("=") for op in ops.split(";") if op]
    return access.QuotaAlteration(
        tuple((kind, None if name == "<default>" else name) for kind, name in parts),
        tuple((key, None if value == "-" else float(value)) for key, value in pairs),
    )


def _create_acls(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`acls PRINCIPAL/allow|deny/OPERATION/TYPE/NAME[/HOST] …`: a final `…` makes a prefix, HOST `-` is empty."""
    return {**_BY, "client_id": "table", "acls": tuple(map(acl, words))}


def _delete_acls(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`unacls TYPE/literal|prefixed|match|any/NAME/PRINCIPAL/OPERATION …`: `-` matches any."""
    return {**_BY, "client_id": "table", "filters": tuple(map(acl_filter, words))}


def _quotas(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`quotas TYPE:NAME[+TYPE:NAME]/KEY=VALUE|KEY=-[;…] … [dry]`: `<default>` is the default entity of a type."""
    alterations = tuple(_alteration(word) for word in words if word != "dry")
    return {**_BY, "alterations": alterations, "validate_only": "dry" in words}


def _credential(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`credential set|remove USER`."""
    verb, user = words
    if verb == "remove":
        return {**_BY, "changes": (commands.ScramChange(user, 2),)}
    secret = bytes(range(64))
    return {**_BY, "changes": (commands.ScramChange(user, 2, ScramCredential(4096, secret[:16], secret, secret)),)}


def _refusals(rig: Rig, words: list[str], options: dict[str, str]) -> dict[str, Any]:
    """`refusals COUNT`."""
    (count,) = words
    who = "User:bob", "table", "10.0.0.7", "Metadata", "Describe", "Topic:t"
    return {"refusals": (RequestsRefused(*who, 29, "authorizer", int(count), rig.now_ms),)}


_BY = {"principal": "User:admin"}
ACCESS_VERBS: dict[str, tuple[type[AnyCommand], Fields]] = {
    "acls": (access.CreateAcls, _create_acls),
    "unacls": (access.DeleteAcls, _delete_acls),
    "quotas": (access.AlterClientQuotas, _quotas),
    "credential": (commands.AlterUserScramCredentials, _credential),
    "refusals": (access.RecordRefusals, _refusals),
    "secret": (access.DrawLoginSecret, lambda rig, words, options: {"secret": words[0].encode()}),
}
