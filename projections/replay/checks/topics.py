"""Checks of a topic's life: what may happen while it is there, and what must have happened before it is ready.

`Lives` looks up, for each event of a shard, how the topic stood before it: its life (the creation or deletion last
seen), its partition count, its factor, its `min.insync.replicas`, and the brokers that know it.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from projections.replay.checks.arrays import NONE, NOWHERE, Bools, Ids, at, judged_by_row, powers
from projections.replay.checks.check import Check, Place, listed, others, shown
from projections.replay.checks.share import Share

_OF_A_TOPIC = (
    "PartitionsAdded", "TopicDeleted", "TopicConfigsChanged", "PartitionChanged", "MetadataPropagated", "TopicReady",
    "TopicVanished", "CreationRefused",
)  # fmt: skip
_OF_A_PARTITION = "PartitionChanged"
ENDS = ("TopicDeleted", "TopicVanished", "CreationRefused")
"""What ends a topic's life."""


class Lives:
    """How the topic of each event's shard stood before it."""

    def __init__(self, share: Share) -> None:
        self.share = share
        created, discovered, ends = share.of("TopicCreated"), share.of("TopicDiscovered"), share.of(*ENDS)
        in_shard = share.in_shard
        birth = in_shard.last(created | ends)
        self.born = np.where(np.append(created, False)[birth], birth, NOWHERE)
        """The row of the creation of the topic that lives; NOWHERE where none does that was created here."""
        seen = in_shard.last(discovered | ends)
        seen = np.where(np.append(discovered, False)[seen], seen, NOWHERE)
        self.standing = at(share.topic, np.where(self.born != NOWHERE, self.born, seen), NOWHERE)
        """The topic that stands under the shard key: created here, or found in the cluster that carries decisions
        out."""
        counted = np.where(share.of("PartitionsAdded"), share["first"] + share["added"], share["added"])
        self.count = at(counted, in_shard.last(created | discovered | share.of("PartitionsAdded")))
        configured = created | discovered | share.of("TopicConfigsChanged")
        self.min_isr = at(share["own_min_isr"], in_shard.last(configured))
        moved = share.of("PartitionChanged") & (share["partition"] == 0)
        self.placed_factor = np.where(moved, share.lists.sizes(share.replicas), NONE)
        """How many replicas an event gives to the first partition that it places."""
        firsts = share.created.place == 0
        self.placed_factor[share.created.event[firsts]] = share.lists.sizes(share.created.replicas[firsts])
        self.factor = at(self.placed_factor, in_shard.last(created | discovered | moved))
        """How many replicas the topic's first partition has."""

    @cached_property
    def heard(self) -> Bools:
        """Whether an event says which brokers have applied the topic's metadata."""
        return self.share.of("MetadataPropagated") & self.its_own

    def known_by(self, row: int) -> Ids:
        """The brokers that have applied the metadata of the topic that lives, by the events before one."""
        rows = np.flatnonzero(self.heard[self.born[row] : row]) + self.born[row]
        every = (one for code in self.share.brokers[rows].tolist() for one in self.share.lists.ids(code))
        return tuple(sorted(set(every)))

    @property
    def readied(self) -> Bools:
        """Whether an event says that the topic, which was created here, is ready."""
        return self.share.of("TopicReady") & self.its_own & (self.born != NOWHERE)

    @property
    def lives(self) -> Bools:
        """Whether a topic stands there."""
        return self.standing != NOWHERE

    @property
    def its_own(self) -> Bools:
        """Whether it is the topic of the event."""
        return self.standing == self.share.topic

    def stands(self, row: int) -> str:
        """The topic that stands there, for people."""
        return self.share.name(int(self.standing[row]))

    def kind(self, row: int) -> str:
        """The type of an event."""
        return self.share.type_name(row)

    def place(self, row: int) -> Place:
        """Where an event stands."""
        return self.share.place(row)


def _not_there(lives: Lives) -> Bools:
    partition = lives.share["partition"]
    there = (partition >= 0) & (partition < lives.count)
    return lives.share.of(_OF_A_PARTITION) & lives.its_own & ~there


def _wrongly_added(lives: Lives) -> Bools:
    follows = lives.share["first"] == lives.count
    return lives.share.of("PartitionsAdded") & lives.its_own & (~follows | (lives.share["added"] == 0))


def _ready_again(lives: Lives) -> Bools:
    ready = lives.share.of("TopicReady")
    is_new = (lives.born != NOWHERE) & (lives.share.in_shard.last(ready) < lives.born)
    return ready & lives.its_own & ~is_new


def _ready_and_unknown(lives: Lives) -> Bools:
    share = lives.share
    weights = np.where(lives.heard, powers(len(share.lists) + 1)[share.brokers], np.uint64(0))
    sums = np.cumsum(weights)
    heard_since_birth = (sums - sums[lives.born]).view(np.int64)  # the same number for the same lists of brokers

    def is_unknown(row: int) -> bool:
        return bool(others(share.lists.ids(int(share.live[row])), lives.known_by(row)))

    return judged_by_row(lives.readied, is_unknown, heard_since_birth, share.live)


LIFE_CHECKS = (
    Check[Lives](
        "one-creation-per-life",
        lambda lives: lives.share.of("TopicCreated") & lives.lives,
        lambda lives, row: f"created while {lives.stands(row)} exists",
        lambda lives, row: "no topic under this shard key",
    ),
    Check[Lives](
        "one-creation-per-life",
        lambda lives: lives.share.of("TopicDiscovered") & lives.lives & ~lives.its_own,
        lambda lives, row: f"discovered while {lives.stands(row)} exists",
        lambda lives, row: "no other topic under this shard key",
    ),
    Check[Lives](
        "topic-exists",
        lambda lives: lives.share.of(*_OF_A_TOPIC) & ~lives.its_own,
        lambda lives, row: f"{lives.kind(row)} while there is {lives.stands(row)}",
        lambda lives, row: "the topic",
    ),
    Check[Lives](
        "topic-exists",
        _not_there,
        lambda lives, row: f"{lives.kind(row)} of partition {shown(lives.share['partition'][row])}",
        lambda lives, row: f"a partition below {shown(lives.count[row])}",
    ),
    Check[Lives](
        "partitions-never-fall",
        _wrongly_added,
        lambda lives, row: (
            f"{shown(lives.share['added'][row])} partitions added from {shown(lives.share['first'][row])}"
        ),
        lambda lives, row: f"some, from {shown(lives.count[row])}",
    ),
    Check[Lives](
        "ready-is-true", _ready_again, lambda lives, row: "ready again", lambda lives, row: "once in a topic's life"
    ),
    Check[Lives](
        "ready-is-true",
        _ready_and_unknown,
        lambda lives, row: f"ready, and known by {listed(lives.known_by(row))}",
        lambda lives, row: f"known by all live brokers {listed(lives.share.lists[int(lives.share.live[row])])}",
    ),
)
"""What follows from how a topic stood before an event."""
