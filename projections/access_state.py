"""Access control entries and quotas in the log's state keys: one key for each, so that a change writes what it changes,
however many there are.

    a ENTRY     an access control entry (MessagePack of `events.catalog.Acl`), without a value
    q ENTITY    the quotas of an entity (MessagePack of its types and names, and of keys and values)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from controller.machine.acls import Acls, Entries
from controller.machine.state import Cluster
from events.access import Acl, QuotaEntity
from events.log import EventLog

ACL, QUOTA = b"a", b"q"

_encode = msgspec.msgpack.Encoder().encode
_decode_acl = msgspec.msgpack.Decoder(Acl).decode
_decode_entity = msgspec.msgpack.Decoder(QuotaEntity).decode
_decode_values = msgspec.msgpack.Decoder(tuple[tuple[str, float], ...]).decode

_NONE: Final[Entries] = {}


def put_access(puts: dict[bytes, bytes | None], before: Cluster, after: Cluster) -> None:
    """Add what changed between two states of the cluster."""
    if after.acls is not before.acls:
        old, new = before.acls.by_pattern, after.acls.by_pattern
        changed = [pattern for pattern, entries in new.items() if entries is not old.get(pattern)]
        changed += [pattern for pattern in old if pattern not in new]
        for pattern in changed:
            _put_entries(puts, old.get(pattern, _NONE), new.get(pattern, _NONE))
    if after.quotas is not before.quotas:
        _put_quotas(puts, before.quotas, after.quotas)


def stored_access(log: EventLog, cluster: Cluster) -> Cluster:
    """The cluster with the entries and quotas that the log has."""
    return replace(
        cluster,
        acls=Acls().with_all(_decode_acl(key[1:]) for key, _ in log.scan(ACL)),
        quotas={_decode_entity(key[1:]): _decode_values(value) for key, value in log.scan(QUOTA)},
    )


def _put_entries(puts: dict[bytes, bytes | None], old: Entries, new: Entries) -> None:
    for acl in old:
        if acl not in new:
            puts[ACL + _encode(acl)] = None
    for acl in new:
        if acl not in old:
            puts[ACL + _encode(acl)] = b""


def _put_quotas(
    puts: dict[bytes, bytes | None],
    old: Mapping[QuotaEntity, tuple[tuple[str, float], ...]],
    new: Mapping[QuotaEntity, tuple[tuple[str, float], ...]],
) -> None:
    for entity in {**old, **new}:
        values = new.get(entity)
        if values != old.get(entity):
            puts[QUOTA + _encode(entity)] = None if values is None else _encode(values)
