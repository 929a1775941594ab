"""How partitions stand, counted: of all topics, of each broker, and which topics are not as they should be.

Kept beside the topics and in the same commit, from what a change leaves otherwise: a topic of many partitions costs
what changed of it. So whoever looks at 100,000 topics for the few that want attention reads those alone.

    x SHARD_KEY          a topic with partitions that are under-replicated, without a leader, or with placeholders
                         (MessagePack of `Trouble`)
    y                    the sums of these, and how many replicas and leaders each broker has (`Tallies`)
    z INVERTED           the shard key of the topic created at an offset, which is inverted (`newest_first`)

A log of an earlier release has none of them: they are counted once, when the store is opened, and written with the
next commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from controller.machine.partitions.blocks import differing
from controller.machine.state import Topic
from events.catalog import Partition
from events.logs.log import EventLog
from events.names import NO_LEADER, ShardKey, is_placeholder
from projections.store.access_state import Puts
from projections.store.newest_first import inverted
from projections.store.stored_topics import TOPIC, decode_topic, each_stored

TROUBLE, TALLIES, CREATED = b"x", b"y", b"z"

_encode = msgspec.msgpack.Encoder().encode


class Trouble(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How many partitions have a replica out of sync, and have no leader; how many places wait for a broker."""

    under_replicated: int = 0
    leaderless: int = 0
    placeholders: int = 0

    def plus(self, other: Trouble) -> Trouble:
        """The sums of both."""
        return Trouble(
            self.under_replicated + other.under_replicated,
            self.leaderless + other.leaderless,
            self.placeholders + other.placeholders,
        )


NONE: Final = Trouble()


class Tallies(msgspec.Struct, frozen=True, array_like=True):
    """The sums over all topics; of each broker how many partitions it leads and how many replicas it has."""

    trouble: Trouble = NONE
    brokers: Mapping[int, tuple[int, int]] = {}

    def plus(self, other: Tallies) -> Tallies:
        """The sums of both."""
        loads = dict(self.brokers)
        for broker_id, (leading, holding) in other.brokers.items():
            led, held = loads.get(broker_id, (0, 0))
            loads[broker_id] = (led + leading, held + holding)
        return Tallies(self.trouble.plus(other.trouble), loads)


_decode_trouble = msgspec.msgpack.Decoder(Trouble).decode
_decode_tallies = msgspec.msgpack.Decoder(Tallies).decode


class Standing:
    """Counts for the store of a log. After a failed commit only a new one may go on."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._missing: Puts = {}
        stored = log.get(TALLIES)
        self.durable = Tallies() if stored is None else _decode_tallies(stored)
        """As of the last durable commit."""
        if stored is None:
            for key, values in each_stored(log.scan(TOPIC)):
                self.durable = self._counted(self._missing, self.durable, [(key, None, decode_topic(values))])
        self._written = self.durable

    def changes(self, puts: Puts, changed: Iterable[tuple[ShardKey, Topic | None, Topic | None]]) -> None:
        """Add what the changes of topics put and delete."""
        tallies = self._counted(puts, self._written, changed)
        if tallies != self._written or self._missing:
            puts[TALLIES] = _encode(tallies)
            for key_bytes, value in self._missing.items():
                puts.setdefault(key_bytes, value)
            self._missing = {}
            self._written = tallies

    def became_durable(self) -> None:
        """What was written last may be seen."""
        self.durable = self._written

    def _counted(
        self, puts: Puts, tallies: Tallies, changed: Iterable[tuple[ShardKey, Topic | None, Topic | None]]
    ) -> Tallies:
        """The sums after some topics changed; the very same where no partition did."""
        trouble = tallies.trouble
        all_gone: list[Partition] = []
        all_come: list[Partition] = []
        for key, before, after in changed:
            _put_created(puts, key, before, after)
            gone, come = _changed_partitions(before, after)
            if not gone and not come:
                continue
            all_gone += gone
            all_come += come
            was = self._trouble_of(key) if before is not None else NONE
            more = _trouble(come)
            if was is NONE and more is NONE:
                continue
            here = NONE if after is None else _minus(was, _trouble(gone)).plus(more)
            if here != was:
                puts[TROUBLE + key.encode()] = _encode(here) if here != NONE else None
                trouble = _minus(trouble, was).plus(here)
        if not all_gone and not all_come:
            return tallies
        return Tallies(trouble, _loads(tallies.brokers, all_gone, all_come))

    def _trouble_of(self, key: ShardKey) -> Trouble:
        name = TROUBLE + key.encode()
        value = self._missing[name] if name in self._missing else self._log.get(name)
        return NONE if value is None else _decode_trouble(value)


def tallied(partitions: Iterable[Partition]) -> Tallies:
    """The sums over some partitions."""
    some = tuple(partitions)
    return Tallies(_trouble(some), _loads({}, (), some))


def troubled(log: EventLog, after: str | None = None) -> Iterator[ShardKey]:
    """The shard keys of topics that are not as they should be, in order, after one of them."""
    start = None if after is None else TROUBLE + after.encode()
    return (ShardKey(key[1:].decode()) for key, _ in log.scan(TROUBLE, start))


def newest_created(log: EventLog, before: int) -> Iterator[ShardKey]:
    """The shard keys of topics that were created below an offset, the newest first."""
    return (ShardKey(value.decode()) for _, value in log.scan(CREATED, CREATED + inverted(before)))


def _changed_partitions(before: Topic | None, after: Topic | None) -> tuple[list[Partition], list[Partition]]:
    """The partitions that a topic has no more, and those that it has instead or besides."""
    if before is not None and after is not None and after.partitions is before.partitions:
        return [], []
    if before is None or after is None or len(after.partitions) < len(before.partitions):
        return [] if before is None else list(before.partitions), [] if after is None else list(after.partitions)
    changes = list(differing(before.partitions, after.partitions))
    count = len(before.partitions)
    return [before.partitions[index] for index, _ in changes if index < count], [one for _, one in changes]


def _trouble(partitions: Iterable[Partition]) -> Trouble:
    under_replicated = leaderless = placeholders = 0
    for one in partitions:
        under_replicated += len(one.isr) < len(one.replicas)
        leaderless += one.leader == NO_LEADER
        placeholders += sum(map(is_placeholder, one.replicas))
    if under_replicated or leaderless or placeholders:
        return Trouble(under_replicated, leaderless, placeholders)
    return NONE


def _minus(one: Trouble, other: Trouble) -> Trouble:
    if other is NONE:
        return one
    return one.plus(Trouble(-other.under_replicated, -other.leaderless, -other.placeholders))


def _loads(
    before: Mapping[int, tuple[int, int]], gone: Iterable[Partition], come: Iterable[Partition]
) -> Mapping[int, tuple[int, int]]:
    leads: dict[int, int] = {}
    replicas: dict[int, int] = {}
    for sign, partitions in ((-1, gone), (1, come)):
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


def _put_created(puts: Puts, key: ShardKey, before: Topic | None, after: Topic | None) -> None:
    had = None if before is None else before.created_offset
    has = None if after is None else after.created_offset
    if had == has:
        return
    if had is not None:
        puts[CREATED + inverted(had)] = None
    if has is not None:
        puts[CREATED + inverted(has)] = key.encode()
