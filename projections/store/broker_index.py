"""Which topics have a replica on a broker: so that a broker which comes or goes does not have all topics looked at.

Kept for real brokers only, beside the topics and in the same commit: a state key `r BROKER SHARD_KEY` without a value
for each broker of a topic. Placeholders (KIP-409), which any broker may fill, stand under their negative ids, before
all brokers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import takewhile

from controller.machine.partitions.blocks import differing
from controller.machine.state import Topic
from events.catalog import Partition
from events.logs.log import EventLog
from events.names import BrokerId, ShardKey
from projections.store.access_state import Puts

REPLICAS = b"r"
_ID = struct.Struct(">I")
_ZERO = 1 << 31
"""Ids are shifted by this, so that their bytes are in the order of their numbers."""


def index_changes(puts: Puts, key: ShardKey, before: Topic | None, after: Topic | None) -> None:
    """Add the index keys that a topic's change puts and deletes."""
    if before is not None and after is not None and _same_brokers(before, after):
        return
    had, has = _brokers(before), _brokers(after)
    for broker_id in had ^ has:
        puts[_prefix(broker_id) + key.encode()] = b"" if broker_id in has else None


def topics_of(log: EventLog, broker_id: BrokerId, after: ShardKey | None = None) -> Iterator[ShardKey]:
    """The shard keys of the topics with a replica on a broker, in order, after one of them."""
    prefix = _prefix(broker_id)
    start = None if after is None else prefix + after.encode()
    return (ShardKey(key[len(prefix) :].decode()) for key, _ in log.scan(prefix, start))


def topics_with_placeholders(log: EventLog) -> Iterator[ShardKey]:
    """The shard keys of the topics with a placeholder; one with several comes several times."""
    keys = takewhile(lambda key: _ID.unpack_from(key, 1)[0] < _ZERO, (key for key, _ in log.scan(REPLICAS)))
    return (ShardKey(key[1 + _ID.size :].decode()) for key in keys)


def _prefix(broker_id: int) -> bytes:
    return REPLICAS + _ID.pack(broker_id + _ZERO)


def _same_brokers(before: Topic, after: Topic) -> bool:
    """Whether what changed of a topic's partitions stands under the same brokers: quick however many there are."""
    if len(before.partitions) != len(after.partitions):
        return False
    changes = list(differing(before.partitions, after.partitions))
    return _under([before.partitions[index] for index, _ in changes]) == _under([one for _, one in changes])


def _brokers(topic: Topic | None) -> set[BrokerId]:
    return set() if topic is None else _under(topic.partitions)


def _under(partitions: Iterable[Partition]) -> set[BrokerId]:
    """The brokers that partitions stand under: none while they are those of simulated brokers."""
    return {replica for one in partitions if one.replica_metadata is not None for replica in one.replicas}
