"""Secondary indexes on topics for `store` and queries: by broker, health, and offset range of creation.

A commit writes the entries of its topics. The cost depends on the changed partitions, not on the number of all.
`controller.store.keys` lists the keys. In these, BROKER is the broker id plus 2^31 in four bytes, so that the negative
ids of placeholders (KIP-409) come first. RANGE is the offset divided by RANGE_SIZE, in eight bytes. The value of an
entry by broker is a little-endian bitmap: bit N is set if block N of the topic's partitions has a replica on the broker
(`machine.partitions.blocks`).
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from heapq import merge
from itertools import groupby, zip_longest
from types import MappingProxyType
from typing import TypeVar

import msgspec

from controller.machine.configs.topic_configs import MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION
from controller.machine.partitions.blocks import Block, blocks_of, differing
from controller.machine.state import Topic
from controller.store.keys import Puts, shard_keys
from events import catalog
from events.catalog import Partition
from events.logs.log import StateKeys
from events.names import NO_LEADER, BrokerId, ShardKey, TopicName, is_placeholder

UNHEALTHY, TALLIES, REPLICAS, CREATED_IN = b"x", b"y", b"r", b"b"
_ID = struct.Struct(">I")
_ZERO = 1 << 31
_FIRST_BLOCK = b"\1"
RANGE_SIZE = 1 << 16
"""Offsets in a range. A list of topics at a past time reads a snapshot, and the topics created in later ranges."""

_encode = msgspec.msgpack.Encoder().encode
_Key = TypeVar("_Key")

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


def placeholders(log: StateKeys) -> Iterator[BrokerId]:
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


def put_creation(puts: Puts, offset: int, key: str) -> None:
    """Add to `puts` the entry of an event that creates a topic (CREATION_KINDS)."""
    puts[_created_in(offset // RANGE_SIZE) + key.encode()] = b""


def created_keys(log: StateKeys, start: int, end: int, after: str = "") -> Iterator[ShardKey]:
    """The shard keys, in order, whose topics may have been created at offsets from `start` to below `end`.

    With `after`, only those after that shard key.
    """
    ranges = range(start // RANGE_SIZE, -(-end // RANGE_SIZE)) if start < end else range(0)
    return (key for key, _ in groupby(merge(*(shard_keys(log, _created_in(one), after or None) for one in ranges))))


def _created_in(number: int) -> bytes:
    return CREATED_IN + number.to_bytes(8, "big")


# --- by health, with the sums over all topics


class Situation(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The facts about an unhealthy partition that tell why it is so; partitions with equal facts are counted together.

    `awaited` are the brokers that it waits for: without a leader those of the ISR, the eligible replicas, or the last
    leader; else the replicas out of the ISR. `min_isr` and `unclean` are the explicit configs of the topic
    (min.insync.replicas, at most the number of replicas; unclean.leader.election.enable), None for the default.
    """

    awaited: tuple[BrokerId, ...]
    is_offline: bool
    isr: int
    replicas: int
    placeholders: int = 0
    min_isr: int | None = None
    unclean: bool | None = None


Situations = Mapping[Situation, int]
"""The number of partitions in each situation."""
_NO_SITUATIONS: Situations = MappingProxyType({})


class Health(msgspec.Struct, frozen=True, gc=False):
    """The numbers of under-replicated partitions, of offline ones (without a leader), and of placeholders."""

    under_replicated: int = 0
    offline: int = 0
    placeholders: int = 0


class Tallies(msgspec.Struct, frozen=True, array_like=True):
    """For each broker its numbers of led partitions and of replicas; for each situation its numbers of partitions and
    of topics."""

    brokers: Mapping[int, tuple[int, int]] = {}
    situations: Mapping[Situation, tuple[int, int]] = {}

    @property
    def health(self) -> Health:
        under_replicated = offline = placeholders = 0
        for one, (count, _) in self.situations.items():
            under_replicated += count if one.isr < one.replicas else 0
            offline += count if one.is_offline else 0
            placeholders += count * one.placeholders
        return Health(under_replicated, offline, placeholders)

    def plus(self, other: Tallies) -> Tallies:
        """The sums of both, or these sums after the changes `other`."""
        return Tallies(_sums(self.brokers, other.brokers), _sums(self.situations, other.situations))


Moves = dict[Situation, tuple[int, int]]
"""Changes of the numbers of partitions and topics in situations."""


def add_move(moves: Moves, before: Situations, after: Situations) -> None:
    for one in {**before, **after}:
        partitions, topics = moves.get(one, (0, 0))
        added = after.get(one, 0) - before.get(one, 0)
        moves[one] = (partitions + added, topics + (one in after) - (one in before))


def _sums(some: Mapping[_Key, tuple[int, int]], others: Mapping[_Key, tuple[int, int]]) -> dict[_Key, tuple[int, int]]:
    sums = dict(some)
    for key, (first, second) in others.items():
        had = sums.get(key, (0, 0))
        sums[key] = (had[0] + first, had[1] + second)
        if sums[key] == (0, 0):
            del sums[key]
    return sums


class Unhealthy(msgspec.Struct, frozen=True, array_like=True):
    """An entry of the index by health: a topic and the situations of its unhealthy partitions."""

    name: TopicName
    situations: Situations


_decode_unhealthy = msgspec.msgpack.Decoder(Unhealthy).decode
_decode_tallies = msgspec.msgpack.Decoder(Tallies).decode


class HealthIndex:
    """Maintains the index by health and the sums of a log. After a failed commit the caller must create a new one."""

    def __init__(self, log: StateKeys) -> None:
        self._log = log
        stored = log.get(TALLIES)
        self.tallies = Tallies() if stored is None else _decode_tallies(stored)
        """The sums as of the last `changes`."""

    def changes(self, puts: Puts, changed: Iterable[tuple[ShardKey, Topic | None, Topic | None]]) -> None:
        """Add the entries of changed topics, given before and after the change."""
        loads: dict[int, tuple[int, int]] = {}
        moves: Moves = {}
        for key, before, after in changed:
            removed, added = _changed_partitions(before, after)
            if not removed and not added:
                continue
            _add_loads(loads, removed, -1)
            _add_loads(loads, added, 1)
            entry, gained = UNHEALTHY + key.encode(), situations(after, added)
            stored = None if before is None else self._log.get(entry)
            if stored is None and not gained:
                continue
            was = _NO_SITUATIONS if stored is None else _decode_unhealthy(stored).situations
            counts = Counter(was)
            counts.subtract(situations(before, removed))
            counts.update(gained)
            now = {one: count for one, count in counts.items() if count}
            if now != was:
                puts[entry] = _encode(Unhealthy(after.name, now)) if after is not None and now else None
                add_move(moves, was, now)
        if not moves and not any(load != (0, 0) for load in loads.values()):
            return
        tallies = self.tallies.plus(Tallies(loads, moves))
        if tallies != self.tallies:
            puts[TALLIES] = _encode(tallies)
            self.tallies = tallies


def tallied(topics: Iterable[Topic]) -> Tallies:
    loads: dict[int, tuple[int, int]] = {}
    moves: Moves = {}
    for topic in topics:
        _add_loads(loads, topic.partitions, 1)
        add_move(moves, {}, situations(topic))
    return Tallies(loads, moves)


def situations(topic: Topic | None, among: Iterable[Partition] | None = None) -> Situations:
    """The situations of the unhealthy partitions of a topic, or of those among some."""
    if topic is None:
        return _NO_SITUATIONS
    partitions = topic.partitions if among is None else among
    unhealthy = [one for one in partitions if len(one.isr) < len(one.replicas) or one.leader == NO_LEADER]
    if not unhealthy:
        return _NO_SITUATIONS
    explicit_isr, explicit_unclean = _configs(topic)
    min_isr = int(explicit_isr) if explicit_isr is not None and explicit_isr.isdecimal() else None
    unclean = None if explicit_unclean is None else explicit_unclean.lower() == "true"
    return Counter(_situation(one, min_isr, unclean) for one in unhealthy)


def unhealthy(log: StateKeys) -> Iterator[Unhealthy]:
    """The topics with unhealthy partitions, by shard key. They may have the changes of a commit in progress."""
    return (_decode_unhealthy(value) for _, value in log.scan(UNHEALTHY))


def _changed_partitions(before: Topic | None, after: Topic | None) -> tuple[Sequence[Partition], Sequence[Partition]]:
    """The partitions before their change, and after it: all if the configs changed that situations have."""
    if before is None or after is None or _configs(before) != _configs(after):
        return () if before is None else before.partitions, () if after is None else after.partitions
    if after.partitions is before.partitions:
        return (), ()
    if len(after.partitions) < len(before.partitions):
        return before.partitions, after.partitions
    changes = list(differing(before.partitions, after.partitions))
    count = len(before.partitions)
    return [before.partitions[index] for index, _ in changes if index < count], [one for _, one in changes]


def _configs(topic: Topic) -> tuple[str | None, str | None]:
    if not topic.configs:
        return None, None
    configs = dict(topic.configs)
    return configs.get(MIN_INSYNC_REPLICAS), configs.get(UNCLEAN_ELECTION)


def _situation(one: Partition, min_isr: int | None, unclean: bool | None) -> Situation:
    is_offline, replicas = one.leader == NO_LEADER, len(one.replicas)
    metadata = one.replica_metadata
    if is_offline:
        awaited = one.isr or (metadata and (metadata.elr or metadata.last_known_elr)) or one.replicas
    else:
        awaited = tuple([replica for replica in one.replicas if replica not in one.isr])
    brokers = tuple(sorted([replica for replica in awaited if replica >= 0]))
    placeholders = sum(map(is_placeholder, one.replicas))
    least = None if min_isr is None else min(min_isr, replicas)
    return Situation(brokers, is_offline, len(one.isr), replicas, placeholders, least, unclean)


def _add_loads(loads: dict[int, tuple[int, int]], partitions: Iterable[Partition], sign: int) -> None:
    for one in partitions:
        if one.leader >= 0:
            leading, holding = loads.get(one.leader, (0, 0))
            loads[one.leader] = (leading + sign, holding)
        for replica in one.replicas:
            if replica >= 0:
                leading, holding = loads.get(replica, (0, 0))
                loads[replica] = (leading, holding + sign)
