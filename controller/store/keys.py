"""The state keys that a log stores next to its events, and helpers for secondary indexes on them.

The first byte of a key is its kind:

    t SHARD_KEY           a topic; longer keys have its further partitions (`stored_topics`)
    i TOPIC_ID            the name of the topic with this id
    w SHARD_KEY           the offset of creation of a topic that was never ready
    z INVERTED            the shard key of the topic that was created at this offset
    r BROKER SHARD_KEY    a topic with a replica on this broker (`topic_indexes`)
    x SHARD_KEY           the health of an unhealthy topic (`topic_indexes`)
    b RANGE SHARD_KEY     a topic that was created in this range of offsets (`topic_indexes`)
    y, n                  counts of partitions by health and broker; counts of topics and partitions
    c                     the cluster: settings and brokers (`store`)
    l                     the rules for changes of topics (`access_state`)
    u, a, q               credentials, ACLs and quotas (`access_state`)
    h INVERTED, f …       requests by time, and by their values (`request_index`)
    m …                   the Merkle tree over the events (`tree`)
    p …                   the archived ranges (`events.logs.archive.manifest`)
    k                     over Kafka, the position of a partition in the events topic (`controller.stream.log`)

INVERTED is 2^64 - 1 - offset, of eight bytes: scans run forwards only, so the newest comes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

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
