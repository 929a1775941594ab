"""The state keys that a log stores next to its events, helpers for secondary indexes on them, and the keys of access.

The first byte of a key is its kind:

    t SHARD_KEY           a topic; longer keys have its further partitions (`stored_topics`)
    i TOPIC_ID            the name of the topic with this id
    w SHARD_KEY           the offset of creation of a topic that was never ready
    r BROKER SHARD_KEY    the blocks of a topic's partitions with a replica on this broker (`topic_indexes`)
    x SHARD_KEY           the health of an unhealthy topic (`topic_indexes`)
    b RANGE SHARD_KEY     a topic that was created in this range of offsets (`topic_indexes`)
    y                     counts of partitions by health and broker
    n GROUP               counts of topics and partitions: of all (no GROUP), of a creator, of a prefix of names
    c                     the cluster: settings and brokers (`store`)
    l                     the rules for changes of topics, up to 256 KiB; no key before there were any
    e REQUEST NUL TOPIC   a request for a topic that waits for approval
    u USER NUL MECHANISM  the SCRAM credential of a user
    a ENTRY               an ACL entry (MessagePack of `events.access.Acl`); empty value
    q ENTITY              the quotas of an entity (MessagePack of its types and names, and of keys and values)
    h INVERTED, f …       requests by time, and by their values (`request_index`)
    m …                   the Merkle tree over the events (`tree`)
    p …                   the archived ranges (`events.logs.archive.manifest`)
    k                     over Kafka, the position of a partition in the events topic (`controller.stream.log`)

INVERTED is 2^64 - 1 - offset, of eight bytes: scans run forwards only, so the newest comes first. Rules, held
requests, credentials, ACLs and quotas have one key each, so that a commit writes only the changed ones; `put_access`
and `stored_access` write and read them for `store`.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from controller.machine.access.acls import Acls, acl_changes
from controller.machine.access.bucket_map import differing
from controller.machine.state import Cluster, RulesVersion, ScramCredential
from events.access import Acl, QuotaEntity
from events.catalog import ApprovalRequested
from events.logs.log import StateKeys
from events.names import ShardKey

Puts = dict[bytes, bytes | None]
"""State keys with their new values; None deletes."""
_LAST: Final = 2**64 - 1


def put_entries(puts: Puts, before: Mapping[bytes, bytes], after: Mapping[bytes, bytes]) -> None:
    """Add to `puts` the difference between the index entries before and after a change."""
    for key in before.keys() - after.keys():
        puts[key] = None
    for key, value in after.items():
        if before.get(key) != value:
            puts[key] = value


def shard_keys(log: StateKeys, prefix: bytes, after: str | None = None) -> Iterator[ShardKey]:
    """The shard keys under a prefix, in order; only those after `after`, if given."""
    start = None if after is None else prefix + after.encode("utf-8", "surrogatepass")
    return (ShardKey(key[len(prefix) :].decode()) for key, _ in log.scan(prefix, start))


def inverted(offset: int) -> bytes:
    """An offset as eight bytes that sort in descending order of offsets."""
    return (_LAST - offset).to_bytes(8, "big")


def offset_at_end(key: bytes) -> int:
    """The offset of a key that ends with an inverted offset."""
    return _LAST - int.from_bytes(key[-8:], "big")


RULES, HELD, SCRAM, ACL, QUOTA = b"l", b"e", b"u", b"a", b"q"

_encode = msgspec.msgpack.Encoder().encode
_decode_rules = msgspec.msgpack.Decoder(RulesVersion).decode
_decode_credential = msgspec.msgpack.Decoder(ScramCredential).decode
_decode_held = msgspec.msgpack.Decoder(ApprovalRequested).decode
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
    if after.held is not before.held:
        _put_values(puts, lambda request: HELD + "\0".join(request).encode(), before.held, after.held)


def stored_access(log: StateKeys, cluster: Cluster) -> Cluster:
    """The cluster with the stored rules, held requests, credentials, ACLs and quotas."""
    rules = log.get(RULES)
    return replace(
        cluster,
        rules=None if rules is None else _decode_rules(rules),
        scram={_user_and_mechanism(key): _decode_credential(value) for key, value in log.scan(SCRAM)},
        held={(one.request_id, one.name): one for one in (_decode_held(value) for _, value in log.scan(HELD))},
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
