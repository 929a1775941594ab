"""Stores rules, credentials, ACLs and quotas as state keys next to the events, for `store`: one key for each, so that a
commit writes only the changed ones.

    l                      the rules for changes of topics, up to 256 KiB; no key before there were any
    u USER NUL MECHANISM   the SCRAM credential of a user
    a ENTRY                an ACL entry (MessagePack of `events.access.Acl`); empty value
    q ENTITY               the quotas of an entity (MessagePack of its types and names, and of keys and values)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from controller.machine.access.acls import Acls, acl_changes
from controller.machine.access.bucket_map import differing
from controller.machine.state import Cluster, RulesVersion, ScramCredential
from controller.store.keys import Puts
from events.access import Acl, QuotaEntity
from events.logs.log import EventLog

RULES, SCRAM, ACL, QUOTA = b"l", b"u", b"a", b"q"

_encode = msgspec.msgpack.Encoder().encode
_decode_rules = msgspec.msgpack.Decoder(RulesVersion).decode
_decode_credential = msgspec.msgpack.Decoder(ScramCredential).decode
_decode_acl = msgspec.msgpack.Decoder(Acl).decode
_decode_entity = msgspec.msgpack.Decoder(QuotaEntity).decode
_decode_values = msgspec.msgpack.Decoder(tuple[tuple[str, float], ...]).decode

_Key = TypeVar("_Key")


def put_access(puts: Puts, before: Cluster, after: Cluster) -> None:
    """Add to `puts` the state keys that differ between two states of the cluster."""
    if after.rules is not before.rules:
        puts[RULES] = _encode(after.rules)
    if after.acls is not before.acls:
        removed, added = acl_changes(before.acls, after.acls)
        puts.update((ACL + _encode(acl), None) for acl in removed)
        puts.update((ACL + _encode(acl), b"") for acl in added)
    if after.quotas is not before.quotas:
        _put_values(puts, lambda entity: QUOTA + _encode(entity), before.quotas, after.quotas)
    if after.scram is not before.scram:
        _put_values(puts, lambda user: SCRAM + "\0".join(user).encode(), before.scram, after.scram)


def stored_access(log: EventLog, cluster: Cluster) -> Cluster:
    """The cluster with the stored rules, credentials, ACLs and quotas."""
    rules = log.get(RULES)
    return replace(
        cluster,
        rules=None if rules is None else _decode_rules(rules),
        scram={_user_and_mechanism(key): _decode_credential(value) for key, value in log.scan(SCRAM)},
        acls=Acls().with_all(_decode_acl(key[1:]) for key, _ in log.scan(ACL)),
        quotas={_decode_entity(key[1:]): _decode_values(value) for key, value in log.scan(QUOTA)},
    )


def _put_values(
    puts: Puts, key_of: Callable[[_Key], bytes], old: Mapping[_Key, object], new: Mapping[_Key, object]
) -> None:
    for one in differing(old, new):
        value = new.get(one)
        puts[key_of(one)] = None if value is None else _encode(value)


def _user_and_mechanism(key: bytes) -> tuple[str, str]:
    user, _, mechanism = key[1:].decode().rpartition("\0")
    return user, mechanism
