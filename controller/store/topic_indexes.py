"""Secondary indexes on topics for `store` and queries: by broker, health, and offset range of creation.

A commit writes the entries of its topics. The cost depends on the changed partitions, not on the number of all.
`controller.store.keys` lists the keys. In these, BROKER is the broker id plus 2^31 in four bytes, so that the negative
ids of placeholders (KIP-409) come first. RANGE is the offset divided by RANGE_SIZE, in eight bytes. The value of an
entry by broker is a little-endian bitmap: bit N is set if block N of the topic's partitions has a replica on the broker
(`machine.partitions.blocks`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from heapq import merge
from itertools import groupby, zip_longest
from typing import Final

import msgspec

from controller.machine.partitions.blocks import Block, blocks_of, differing
from controller.machine.state import Topic
from controller.store.keys import Puts, shard_keys
from events import catalog
from events.catalog import Partition
from events.logs.log import EventLog, StateKeys
from events.names import NO_LEADER, BrokerId, ShardKey, is_placeholder

UNHEALTHY, TALLIES, REPLICAS, CREATED_IN = b"x", b"y", b"r", b"b"
_ID = struct.Struct(">I")
_ZERO = 1 << 31
_FIRST_BLOCK = b"\1"
RANGE_SIZE = 1 << 16
"""Offsets in a range. A list of topics at a past time reads a snapshot, and the topics created in later ranges."""

_encode = msgspec.msgpack.Encoder().encode

# --- by broker


def put_replicas(puts: Puts, log: StateKeys, key: ShardKey, before: Topic | None, after: Topic | None) -> None:
    """Add to `puts` the entries by broker of a changed topic. `log` has the entries before."""
    if before is not None and after is not None and before.partitions is after.partitions:
        return
    name = key.encode()
    old: tuple[Block, ...] = () if before is None else blocks_of(before.partitions)
    new: tuple[Block, ...] = () if after is None else blocks_of(after.partitions)
    if len(old) < 2 and len(new) < 2:
        replicas = _brokers(*new)
        for broker_id in _brokers(*old) ^ replicas:
            puts[of_broker(broker_id) + name] = _FIRST_BLOCK if broker_id in replicas else None
        return
    toggled: dict[BrokerId, int] = {}
    for number, (had, has) in enumerate(zip_longest(old, new, fillvalue=())):
        if had is not has:
            for broker_id in _brokers(had) ^ _brokers(has):
                toggled[broker_id] = toggled.get(broker_id, 0) | 1 << number
    for broker_id, blocks in toggled.items():
        entry = of_broker(broker_id) + name
        stored = None if before is None else log.get(entry)
        now = blocks if stored is None else blocks ^ int.from_bytes(stored, "little")
        puts[entry] = now.to_bytes(-(-now.bit_length() // 8), "little") or None


def blocks_with(log: StateKeys, broker_id: BrokerId) -> Iterator[tuple[ShardKey, int]]:
    """The shard keys of topics with a replica on a broker, in order, each with the bitmap of its blocks with one."""
    prefix = of_broker(broker_id)
    pairs = log.scan(prefix)
    return ((ShardKey(key[len(prefix) :].decode()), int.from_bytes(value, "little")) for key, value in pairs)


def placeholders(log: EventLog) -> Iterator[BrokerId]:
    """The ids of placeholders that topics have, in order (KIP-409)."""
    last = b""
    while found := next(log.scan(REPLICAS, last), None):
        broker_id = _ID.unpack_from(found[0], 1)[0] - _ZERO
        if broker_id >= 0:
            return
        yield BrokerId(broker_id)
        last = of_broker(broker_id) + b"\xff"  # after every name


@lru_cache(maxsize=4096)
def of_broker(broker_id: int) -> bytes:
    """The prefix of the entries of a broker."""
    return REPLICAS + _ID.pack(broker_id + _ZERO)


def _brokers(block: Block = ()) -> set[BrokerId]:
    return set().union(*[one.replicas for one in block])  # a list is faster than a generator


# --- by the range of offsets of their creation

CREATION_KINDS = (catalog.TopicCreated, catalog.TopicDiscovered)
CREATION_TYPES = tuple(kind.__name__ for kind in CREATION_KINDS)


def put_creation(puts: Puts, offset: int, key: ShardKey) -> None:
    """Add to `puts` the entry of an event that creates a topic (CREATION_KINDS)."""
    puts[_created_in(offset // RANGE_SIZE) + key.encode()] = b""


def created_keys(log: EventLog, start: int, end: int, after: str = "") -> Iterator[ShardKey]:
    """The shard keys, in order, whose topics may have been created at offsets from `start` to below `end`.

    With `after`, only those after that shard key.
    """
    ranges = range(start // RANGE_SIZE, -(-end // RANGE_SIZE)) if start < end else range(0)
    return (key for key, _ in groupby(merge(*(shard_keys(log, _created_in(one), after or None) for one in ranges))))


def creation_offsets(log: EventLog, before: int) -> Iterator[int]:
    """The offsets, the highest first, of all ranges in which a topic was created."""
    while before > 0:
        number = (before - 1) // RANGE_SIZE
        start = number * RANGE_SIZE
        if next(shard_keys(log, _created_in(number)), None) is not None:
            yield from range(before - 1, start - 1, -1)
        before = start


def _created_in(number: int) -> bytes:
    return CREATED_IN + number.to_bytes(8, "big")


# --- by health, with the sums over all topics


class Health(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The numbers of under-replicated partitions, of offline ones (without a leader), and of placeholders."""

    under_replicated: int = 0
    offline: int = 0
    placeholders: int = 0

    def plus(self, other: Health, sign: int = 1) -> Health:
        """The sums of both; with `sign` -1 the differences."""
        return Health(
            self.under_replicated + sign * other.under_replicated,
            self.offline + sign * other.offline,
            self.placeholders + sign * other.placeholders,
        )


HEALTHY: Final = Health()


class Tallies(msgspec.Struct, frozen=True, array_like=True):
    """The health of all topics; for each broker its numbers of led partitions and of replicas."""

    health: Health = HEALTHY
    brokers: Mapping[int, tuple[int, int]] = {}

    def leads(self, broker_id: int) -> bool:
        return self.brokers.get(broker_id, (0, 0))[0] > 0

    def has_replicas(self, broker_id: int) -> bool:
        return broker_id in self.brokers

    def plus(self, other: Tallies) -> Tallies:
        """The sums of both."""
        loads = dict(self.brokers)
        for broker_id, (leading, holding) in other.brokers.items():
            led, held = loads.get(broker_id, (0, 0))
            loads[broker_id] = (led + leading, held + holding)
        return Tallies(self.health.plus(other.health), loads)


_decode_health = msgspec.msgpack.Decoder(Health).decode
_decode_tallies = msgspec.msgpack.Decoder(Tallies).decode


class HealthIndex:
    """Maintains the index by health and the sums of a log. After a failed commit the caller must create a new one."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        stored = log.get(TALLIES)
        self.tallies = Tallies() if stored is None else _decode_tallies(stored)
        """The sums as of the last `changes`."""

    def changes(self, puts: Puts, changed: Iterable[tuple[ShardKey, Topic | None, Topic | None]]) -> None:
        """Add the entries of changed topics, given before and after the change."""
        health = self.tallies.health
        all_removed: list[Partition] = []
        all_added: list[Partition] = []
        for key, before, after in changed:
            removed, added = _changed_partitions(before, after)
            if not removed and not added:
                continue
            all_removed += removed
            all_added += added
            entry, gained = UNHEALTHY + key.encode(), _health(added)
            stored = None if before is None else self._log.get(entry)
            if stored is None and gained is HEALTHY:
                continue
            was = HEALTHY if stored is None else _decode_health(stored)
            now = HEALTHY if after is None else was.plus(_health(removed), -1).plus(gained)
            if now != was:
                puts[entry] = _encode(now) if now != HEALTHY else None
                health = health.plus(was, -1).plus(now)
        if not all_removed and not all_added:
            return
        tallies = Tallies(health, _loads(self.tallies.brokers, all_removed, all_added))
        if tallies != self.tallies:
            puts[TALLIES] = _encode(tallies)
            self.tallies = tallies


def tallied(partitions: Iterable[Partition]) -> Tallies:
    """The sums over some partitions."""
    some = tuple(partitions)
    return Tallies(_health(some), _loads({}, (), some))


def _changed_partitions(before: Topic | None, after: Topic | None) -> tuple[list[Partition], list[Partition]]:
    """The partitions before their change, and after it."""
    if before is not None and after is not None and after.partitions is before.partitions:
        return [], []
    if before is None or after is None or len(after.partitions) < len(before.partitions):
        return [] if before is None else list(before.partitions), [] if after is None else list(after.partitions)
    changes = list(differing(before.partitions, after.partitions))
    count = len(before.partitions)
    return [before.partitions[index] for index, _ in changes if index < count], [one for _, one in changes]


def _health(partitions: Iterable[Partition]) -> Health:
    under_replicated = offline = placeholders = 0
    for one in partitions:
        under_replicated += len(one.isr) < len(one.replicas)
        offline += one.leader == NO_LEADER
        placeholders += sum(map(is_placeholder, one.replicas))
    if under_replicated or offline or placeholders:
        return Health(under_replicated, offline, placeholders)
    return HEALTHY


def _loads(
    before: Mapping[int, tuple[int, int]], removed: Iterable[Partition], added: Iterable[Partition]
) -> Mapping[int, tuple[int, int]]:
    leads: dict[int, int] = {}
    replicas: dict[int, int] = {}
    for sign, partitions in ((-1, removed), (1, added)):
        for one in partitions:
            leads[one.leader] = leads.get(one.leader, 0) + sign
            for replica in one.replicas:
                replicas[replica] = replicas.get(replica, 0) + sign
    ids = leads.keys() | replicas.keys()
    changed = [broker_id for broker_id in ids if broker_id >= 0 and (leads.get(broker_id) or replicas.get(broker_id))]
    if not changed:
        return before
    loads = dict(before)
    for broker_id in changed:
        leading, holding = loads.get(broker_id, (0, 0))
        loads[broker_id] = (leading + leads.get(broker_id, 0), holding + replicas.get(broker_id, 0))
        if loads[broker_id] == (0, 0):
            del loads[broker_id]
    return loads
