"""Checks of a topic's life and of the requests that made it.

`Lives` looks up, for each event of a shard, how the topic stood before it: its life (the creation or deletion last
seen), its partition count, its `min.insync.replicas`. `Asks` has the events of each create request for each topic, and
looks up what was recorded of it so far. A topic's TopicReady and TopicDeleted name no request; its life tells whose
topic it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np

from projections.replay.checks_arrays import NONE, NOWHERE, Bools, Groups, Ints, at, combined, judged
from projections.replay.checks_share import Chosen, Share
from projections.replay.checks_told import Check, Place, Violation, found, listed, others, shown

_OF_A_TOPIC = (
    "PartitionsAdded", "TopicDeleted", "TopicConfigsChanged", "LeaderElected", "IsrChanged", "PlaceholderFilled",
    "PartitionChanged", "MetadataPropagated", "TopicReady", "TopicVanished", "CreationRefused",
)  # fmt: skip
_OF_A_PARTITION = ("LeaderElected", "IsrChanged", "PlaceholderFilled", "PartitionChanged")
_OF_A_REQUEST = (
    "CreateRequested", "CreateRejected", "TopicCreated", "TopicReady", "TopicDeleted", "CreateAnswered",
    "TopicVanished", "CreationRefused",
)  # fmt: skip
ENDS = ("TopicDeleted", "TopicVanished", "CreationRefused")
"""What ends a topic's life."""
_TIMED_OUT = 7


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
    return lives.share.of(*_OF_A_PARTITION) & lives.its_own & ~there


def _wrongly_added(lives: Lives) -> Bools:
    follows = lives.share["first"] == lives.count
    return lives.share.of("PartitionsAdded") & lives.its_own & (~follows | (lives.share["added"] == 0))


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
)
"""What follows from how a topic stood before an event."""


class Asks(Chosen):
    """The events of create requests, request by request; a row here is the event `event[row]` of the share."""

    def __init__(self, lives: Lives, ends: Mapping[int, int]) -> None:
        share = lives.share
        self.lives, self._ends = lives, ends
        named_by_life = share.of("TopicReady", *ENDS) & (lives.born != NOWHERE) & lives.its_own
        request = np.where(named_by_life, at(share.request, lives.born, NOWHERE), share.request)
        event = np.flatnonzero(share.of(*_OF_A_REQUEST, "PartitionsAdded") & (request != NOWHERE))
        keys = combined([share.shard[event], share.topic[event], request[event]])
        order = np.argsort(keys, kind="stable")
        super().__init__(share, event[order])
        self._groups = Groups(keys[order])
        asked = self._groups.first(self.of("CreateRequested"))
        self.asked: Ints = at(self.event, asked, NOWHERE)
        """The ask before each event; NOWHERE where there is none."""
        self.manual = at(share["manual"], self.asked, 0) == 1
        placed = share.created
        self._lowest = np.zeros(len(share), np.int64)
        np.minimum.at(self._lowest, placed.event, share.lists.lowest(placed.replicas))
        firsts = placed.place == 0
        self._factor = np.zeros(len(share), np.int64)
        self._factor[placed.event[firsts]] = share.lists.sizes(placed.replicas[firsts])

    def had(self, event: str) -> Bools:
        """Whether such an event was recorded of the request before."""
        return self._groups.had(self.of(event))

    @cached_property
    def created(self) -> Bools:
        """Whether the topic was created before."""
        return self.had("TopicCreated")

    def has(self, event: str) -> Bools:
        """The same, or now."""
        return self.had(event) | self.of(event)

    @property
    def never_answered(self) -> Bools:
        """Whether an event is the last of an ask that has no answer and does not wait either. The events of a decision
        stand together: one that the end of the log may cut is not judged."""
        own_timeout = np.where(self.of("CreateRequested"), self["timeout_ms"], NONE)
        timeout = np.where(self.asked == NOWHERE, own_timeout, self.of_ask("timeout_ms"))
        waits = self.has("TopicCreated") & ~self.has("TopicReady") & (timeout > 0)
        for end in ENDS:
            waits &= ~self.has(end)
        whole = np.zeros(len(self.event), bool)
        for partition, end_offset in self._ends.items():
            whole |= (self["log_partition"] == partition) & (self["offset"] < end_offset)
        answered = self.has("CreateAnswered")
        return self._groups.is_last & self.has("CreateRequested") & whole & ~answered & ~waits

    def of_ask(self, name: str) -> Ints:
        """What the ask before each event says."""
        return at(self.share[name], self.asked)

    @property
    def placed(self) -> Bools:
        """Whether an event places partitions that were decided on here."""
        return self.of("TopicCreated", "PartitionsAdded")

    @property
    def by_hand(self) -> Bools:
        """Whether the replicas were asked for by hand."""
        return (self["manual"] == 1) | self.manual

    def unknown(self, known: Ints) -> Bools:
        """Whether an event places a replica on a broker that is not in its list of `known` ones."""
        share, placed = self.share, self.share.created

        def is_outside(replicas: int, broker_list: int) -> bool:
            return max(others(share.lists.ids(replicas), share.lists.ids(broker_list)), default=-1) >= 0

        every = np.ones(len(placed.event), bool)
        outside = judged(every, is_outside, placed.replicas, known[placed.event])
        events = np.zeros(len(share), bool)
        events[placed.event[outside]] = True
        return events[self.event]

    def placed_outside(self, row: int, known: Ints) -> str:
        """What an event places replicas on that is not in its list of `known` ones, for people."""
        share, event = self.share, int(self.event[row])
        rows = np.flatnonzero(share.created.event == event)
        every = [one for code in share.created.replicas[rows].tolist() for one in share.lists.ids(code)]
        return listed(others(tuple(dict.fromkeys(every)), share.lists.ids(int(known[event]))))

    @cached_property
    def registered(self) -> Ints:
        """The registered brokers at each event of the share."""
        return self.share.moments.registered(self.share.moment)

    @cached_property
    def lowest(self) -> Ints:
        """The lowest id among the replicas that an event places; below 0 it is a placeholder."""
        return self._lowest[self.event]

    @cached_property
    def factor(self) -> Ints:
        """How many replicas the partitions of an event have."""
        return self._factor[self.event]

    @cached_property
    def needed(self) -> Ints:
        """How many live brokers it takes to place with placeholders: min(`min.insync.replicas`, factor), the topic's
        own setting before the cluster's."""
        share = self.share
        own = np.where(share.of("TopicCreated"), share["own_min_isr"], self.lives.min_isr)
        floor = np.where(own == NONE, share.moments.min_isr(share.moment), own)
        return np.minimum(floor[self.event], self.factor)

    @cached_property
    def enabled(self) -> Bools:
        """Whether placeholders were allowed."""
        return self.share.moments.enabled(self.share.moment)[self.event]

    @cached_property
    def live_count(self) -> Ints:
        """How many brokers were live."""
        return self.share.lists.sizes(self.share.live)[self.event]

    def live(self, row: int) -> str:
        """The live brokers at one event, for people."""
        return listed(self.share.lists[int(self.share.live[self.event[row]])])

    def request(self, row: int) -> str:
        """The request that one event names."""
        code = int(self.share.request[self.event[row]])
        return "none" if code == NOWHERE else self.share.requests[code]


def _asked_again(asks: Asks) -> Bools:
    return asks.of("CreateRequested") & (asks.asked != NOWHERE)


def _success(asks: Asks) -> Bools:
    """Events that answer an ask with NONE, though it is neither ready nor did it not want to wait."""
    at_once = asks.created & (asks.of_ask("timeout_ms") <= 0)
    answers = asks.of("CreateAnswered") & (asks["error_code"] == 0) & (asks.asked != NOWHERE)
    return answers & ~asks.had("TopicReady") & ~at_once


def _both(asks: Asks) -> Bools:
    created, rejected = asks.of("TopicCreated"), asks.of("CreateRejected")
    return (created & asks.had("CreateRejected")) | (rejected & asks.created)


def _too_early(asks: Asks) -> Bools:
    times_out = asks.of("CreateAnswered") & (asks["error_code"] == _TIMED_OUT) & (asks.asked != NOWHERE)
    return times_out & (asks["at_ms"] < asks.of_ask("deadline_ms"))


def _without_ask(asks: Asks) -> Bools:
    """Creations that nobody asked for; where a cluster was taken over there is no deadline, and nobody asked here."""
    return asks.of("TopicCreated") & (asks.asked == NOWHERE) & (asks["deadline_ms"] != 0)


def _placed_on_others(asks: Asks) -> Bools:
    created = asks.of("TopicCreated") & (asks["deadline_ms"] != 0) & ~asks.manual
    added = asks.of("PartitionsAdded") & (asks["manual"] == 0)
    return (created | added) & asks.unknown(asks.share.live)


def _saw_others(asks: Asks) -> Bools:
    lists = asks.share.lists

    def differ(seen: int, live: int) -> bool:
        return seen == NOWHERE or tuple(sorted(lists.ids(seen))) != lists.ids(live)

    return judged(asks.placed, differ, asks.share.brokers[asks.event], asks.share.live[asks.event])


def _not_allowed(asks: Asks) -> Bools:
    allowed = asks.enabled & (asks.live_count >= asks.needed) & (asks.live_count - asks.lowest == asks.factor)
    return asks.placed & (asks.lowest < 0) & (asks["deadline_ms"] != 0) & ~allowed


ASK_CHECKS = (
    Check[Asks]("one-answer", _asked_again, lambda asks, row: "asked again", lambda asks, row: "one ask"),
    Check[Asks](
        "one-answer",
        lambda asks: asks.of("CreateAnswered") & asks.had("CreateAnswered"),
        lambda asks, row: "answered again",
        lambda asks, row: "one answer",
    ),
    Check[Asks](
        "one-answer",
        lambda asks: asks.never_answered,
        lambda asks, row: "never answered",
        lambda asks, row: "one answer, or a topic that is waited for",
    ),
    Check[Asks](
        "cause-exists",
        lambda asks: asks.of("CreateRejected", "CreateAnswered") & (asks.asked == NOWHERE),
        lambda asks, row: f"{asks.share.type_name(asks.event[row])} of request {asks.request(row)}",
        lambda asks, row: "a CreateRequested of that request before it",
    ),
    Check[Asks](
        "created-as-asked",
        _without_ask,
        lambda asks, row: f"request {asks.request(row)} is in the log without an ask",
        lambda asks, row: "a recorded ask (a dry run leaves none)",
    ),
    Check[Asks](
        "created-as-asked",
        _both,
        lambda asks, row: f"created and rejected by request {asks.request(row)}",
        lambda asks, row: "one of both",
    ),
    Check[Asks](
        "none-after-ready",
        _success,
        lambda asks, row: "NONE before TopicReady" if asks.created[row] else "NONE, but not created",
        lambda asks, row: "TopicReady before the answer",
    ),
    Check[Asks](
        "timeout-when-due",
        _too_early,
        lambda asks, row: f"timed out at {shown(asks['at_ms'][row])}",
        lambda asks, row: f"at or after {shown(asks.share['deadline_ms'][asks.asked[row]])}",
    ),
    Check[Asks](
        "replicas-live",
        _placed_on_others,
        lambda asks, row: f"placed on {asks.placed_outside(row, asks.share.live)}",
        lambda asks, row: f"live brokers: {asks.live(row)}",
    ),
    Check[Asks](
        "replicas-live",
        lambda asks: asks.placed & asks.by_hand & asks.unknown(asks.registered),
        lambda asks, row: f"assigned by hand to {asks.placed_outside(row, asks.registered)}",
        lambda asks, row: f"registered brokers: {listed(asks.share.lists[int(asks.registered[asks.event[row]])])}",
    ),
    Check[Asks](
        "replicas-live",
        _saw_others,
        lambda asks, row: f"placement saw {listed(asks.share.lists[int(asks.share.brokers[asks.event[row]])])}",
        lambda asks, row: f"live brokers: {asks.live(row)}",
    ),
    Check[Asks](
        "placeholders-allowed",
        _not_allowed,
        lambda asks, row: (
            f"{-asks.lowest[row]} of {asks.factor[row]} wait, {asks.live_count[row]} brokers live, "
            f"allowed: {str(asks.enabled[row]).lower()}"
        ),
        lambda asks, row: f"allowed, at least {asks.needed[row]} live, and each of them used",
    ),
)
"""What follows from what was recorded of a request before an event, and from the brokers of that moment."""


def topic_violations(share: Share, ends: Mapping[int, int]) -> Iterator[Violation]:
    """All that is wrong with topics' lives and create requests; `ends` are the last offsets of log partitions."""
    lives = Lives(share)
    yield from found(LIFE_CHECKS, lives)
    yield from found(ASK_CHECKS, Asks(lives, ends))
