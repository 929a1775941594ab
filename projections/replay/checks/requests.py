"""Checks of the requests that made topics: what was recorded of one so far, and what was to come of it.

`Requests` has the events of each create request for each topic, and looks up what was recorded of it before each. A
topic's TopicReady and TopicDeleted name no request; its life (see `topics`) tells whose topic it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from events.catalog import ADOPTED_DEADLINE_MS
from projections.replay.checks.arrays import NONE, NOWHERE, Bools, Groups, Ints, at, combined, judged
from projections.replay.checks.check import Check, listed, others, shown
from projections.replay.checks.share import Chosen
from projections.replay.checks.topics import ENDS, Lives

_OF_A_REQUEST = (
    "CreateRequested", "CreateRejected", "TopicCreated", "TopicReady", "TopicDeleted", "CreateAnswered",
    "TopicVanished", "CreationRefused",
)  # fmt: skip
_TIMED_OUT = 7


class Requests(Chosen):
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
        requests = self._groups.first(self.of("CreateRequested"))
        self.requested: Ints = at(self.event, requests, NOWHERE)
        """The CreateRequested before each event; NOWHERE where there is none."""
        self.manual = at(share["manual"], self.requested, 0) == 1
        placed = share.created
        self._lowest = np.zeros(len(share), np.int64)
        np.minimum.at(self._lowest, placed.event, share.lists.lowest(placed.replicas))

    def had(self, event: str) -> Bools:
        """Whether such an event was recorded of the request before."""
        return self._groups.had(self.of(event))

    @cached_property
    def created(self) -> Bools:
        """Whether the topic was created before."""
        return self.had("TopicCreated")

    def has(self, event: str) -> Bools:
        """Whether such an event of the request came before this one, or is this one."""
        return self.had(event) | self.of(event)

    @property
    def never_answered(self) -> Bools:
        """Whether an event is the last of a request that has no answer and does not wait either. The events of a
        decision stand together: one that the end of the log may cut is not judged."""
        own_timeout = np.where(self.of("CreateRequested"), self["timeout_ms"], NONE)
        timeout = np.where(self.requested == NOWHERE, own_timeout, self.of_request("timeout_ms"))
        waits = self.has("TopicCreated") & ~self.has("TopicReady") & (timeout > 0)
        for end in ENDS:
            waits &= ~self.has(end)
        whole = np.zeros(len(self.event), bool)
        for partition, end_offset in self._ends.items():
            whole |= (self["log_partition"] == partition) & (self["offset"] < end_offset)
        answered = self.has("CreateAnswered")
        return self._groups.is_last & self.has("CreateRequested") & whole & ~answered & ~waits

    def of_request(self, name: str) -> Ints:
        """What the CreateRequested before each event says."""
        return at(self.share[name], self.requested)

    @property
    def placed(self) -> Bools:
        """Whether an event places partitions that were decided on here."""
        return self.of("TopicCreated") | (self.of("PartitionsAdded") & ~self.share.foreign[self.event])

    @property
    def by_hand(self) -> Bools:
        """Whether the replicas were assigned by hand."""
        return (self["manual"] == 1) | self.manual

    def unknown(self, known: Ints) -> Bools:
        """Whether an event places a replica on a broker that is not in its list of `known` ones."""
        share, placed = self.share, self.share.created

        def is_outside(replicas: int, broker_list: int) -> bool:
            return max(others(share.lists.ids(replicas), share.lists.ids(broker_list)), default=-1) >= 0

        every = np.ones(len(placed.event), bool)
        return self._placing(judged(every, is_outside, placed.replicas, known[placed.event]))

    def _placing(self, partitions: Bools) -> Bools:
        """Whether an event places one of these partitions, which are rows of `share.created`."""
        events = np.zeros(len(self.share), bool)
        events[self.share.created.event[partitions]] = True
        return events[self.event]

    def _in_share(self, column: Ints) -> Ints:
        """A column of these rows as one of the share; NOWHERE for other events."""
        whole = np.full(len(self.share), NOWHERE)
        whole[self.event] = column
        return whole

    @property
    def count(self) -> Ints:
        """How many partitions the topic has after an event that places some."""
        return self["added"] + np.where(self.of("PartitionsAdded"), self["first"], 0)

    @cached_property
    def wanted_count(self) -> Ints:
        """How many were requested; NONE where nobody says."""
        share = self.share
        by_hand = np.bincount(share.assigned.event, minlength=len(share))
        wanted = at(np.where(share["manual"] == 1, by_hand, share["num_partitions"]), self.requested)
        count = _or_default(wanted, share.moments.num_partitions(share.moment)[self.event])
        return np.where(self.of("PartitionsAdded"), self["num_partitions"], count)

    @cached_property
    def wanted_factor(self) -> Ints:
        """How many replicas partitions are to have; NONE where nobody says."""
        share = self.share
        by_hand = share.lists.sizes(share.assigned.find(np.arange(len(share)), np.zeros(len(share), np.int64)))
        wanted = at(np.where(share["manual"] == 1, by_hand, share["replication_factor"]), self.requested)
        factor = _or_default(wanted, share.moments.factor(share.moment)[self.event])
        return np.where(self.of("PartitionsAdded"), self.lives.factor[self.event], factor)

    @property
    def with_other_sizes(self) -> Bools:
        """Whether an event places a partition with more or fewer replicas than it is to have."""
        placed = self.share.created
        wanted = self._in_share(self.wanted_factor)[placed.event]
        return self._placing(self.share.lists.sizes(placed.replicas) != wanted)

    @cached_property
    def _assigned(self) -> Ints:
        """What was assigned by hand as the replicas of the rows of `share.created`; NOWHERE where nothing was."""
        placed = self.share.created
        asking = self._in_share(np.where(self.of("PartitionsAdded"), self.event, self.requested))
        return self.share.assigned.find(asking[placed.event], placed.partition)

    @cached_property
    def _elsewhere(self) -> Bools:
        return (self._assigned != NOWHERE) & (self._assigned != self.share.created.replicas)

    @property
    def placed_elsewhere(self) -> Bools:
        """Whether an event places a partition elsewhere than was assigned by hand."""
        return self._placing(self._elsewhere)

    def elsewhere(self, row: int) -> tuple[str, str]:
        """The replicas of the first such partition of an event, and what was requested."""
        placed, lists = self.share.created, self.share.lists
        first = np.flatnonzero(self._elsewhere & (placed.event == self.event[row]))[0]
        ours, wanted = listed(lists[int(placed.replicas[first])]), listed(lists[int(self._assigned[first])])
        return f"partition {placed.partition[first]}: replicas {ours}", f"replicas {wanted}"

    def sizes(self, row: int) -> str:
        """How many replicas the partitions have that an event places, for people."""
        placed = self.share.created
        every = np.unique(self.share.lists.sizes(placed.replicas[placed.event == self.event[row]])).tolist()
        named = "" if self["replication_factor"][row] == NONE else f"factor {self['replication_factor'][row]}, "
        return f"{named}partitions of {' and '.join(map(str, every))} replicas"

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
        return self.lives.placed_factor[self.event]

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
    def usable_count(self) -> Ints:
        """How many brokers were live and not cordoned."""
        return self.share.lists.sizes(self.share.usable)[self.event]

    def listed(self, row: int, brokers: Ints) -> str:
        """The list of brokers at one event, for people; `brokers` has one for each event of the share."""
        return listed(self.share.lists[int(brokers[self.event[row]])])

    def request(self, row: int) -> str:
        """The request that one event names."""
        code = int(self.share.request[self.event[row]])
        return "none" if code == NOWHERE else self.share.requests[code]


def _requested_again(requests: Requests) -> Bools:
    return requests.of("CreateRequested") & (requests.requested != NOWHERE)


def _success(requests: Requests) -> Bools:
    """Answers with NONE where the topic is not ready. A request that does not wait is answered with a timeout."""
    answers = requests.of("CreateAnswered") & (requests["error_code"] == 0) & (requests.requested != NOWHERE)
    return answers & ~requests.had("TopicReady")


def _both(requests: Requests) -> Bools:
    created, rejected = requests.of("TopicCreated"), requests.of("CreateRejected")
    return (created & requests.had("CreateRejected")) | (rejected & requests.created)


def _too_early(requests: Requests) -> Bools:
    times_out = requests.of("CreateAnswered") & (requests["error_code"] == _TIMED_OUT) & (requests.requested != NOWHERE)
    return times_out & (requests["at_ms"] < requests.of_request("deadline_ms"))


def _without_request(requests: Requests) -> Bools:
    """Creations without a request; where a cluster was taken over there is no deadline, and no request."""
    return (
        requests.of("TopicCreated") & (requests.requested == NOWHERE) & (requests["deadline_ms"] != ADOPTED_DEADLINE_MS)
    )


def _placed_on_others(requests: Requests) -> Bools:
    created = requests.of("TopicCreated") & (requests["deadline_ms"] != ADOPTED_DEADLINE_MS) & ~requests.manual
    added = requests.of("PartitionsAdded") & (requests["manual"] == 0)
    return (created | added) & requests.unknown(requests.share.usable)


def _saw_others(requests: Requests) -> Bools:
    lists = requests.share.lists

    def differ(seen: int, live: int) -> bool:
        return seen == NOWHERE or tuple(sorted(lists.ids(seen))) != lists.ids(live)

    return judged(requests.placed, differ, requests.share.brokers[requests.event], requests.share.live[requests.event])


def _not_allowed(requests: Requests) -> Bools:
    usable = requests.usable_count
    allowed = requests.enabled & (usable >= requests.needed) & (usable - requests.lowest == requests.factor)
    return requests.placed & (requests.lowest < 0) & (requests["deadline_ms"] != ADOPTED_DEADLINE_MS) & ~allowed


def _or_default(wanted: Ints, default: Ints) -> Ints:
    """What was requested: the default for numbers below 1; NONE without a request."""
    return np.where((wanted < 1) & (wanted != NONE), default, wanted)


def _of_another_count(requests: Requests) -> Bools:
    return requests.placed & (requests.wanted_count != NONE) & (requests.count != requests.wanted_count)


def _of_another_factor(requests: Requests) -> Bools:
    named = requests["replication_factor"]
    differs = requests.with_other_sizes | ((named != NONE) & (named != requests.wanted_factor))
    return requests.placed & (requests.wanted_factor != NONE) & differs


REQUEST_CHECKS = (
    Check[Requests](
        "one-answer", _requested_again, lambda requests, row: "requested again", lambda requests, row: "one request"
    ),
    Check[Requests](
        "one-answer",
        lambda requests: requests.of("CreateAnswered") & requests.had("CreateAnswered"),
        lambda requests, row: "answered again",
        lambda requests, row: "one answer",
    ),
    Check[Requests](
        "one-answer",
        lambda requests: requests.never_answered,
        lambda requests, row: "never answered",
        lambda requests, row: "one answer, or a topic that is waited for",
    ),
    Check[Requests](
        "cause-exists",
        lambda requests: requests.of("CreateRejected", "CreateAnswered") & (requests.requested == NOWHERE),
        lambda requests, row: f"{requests.share.type_name(requests.event[row])} of request {requests.request(row)}",
        lambda requests, row: "a CreateRequested of that request before it",
    ),
    Check[Requests](
        "created-as-asked",
        _without_request,
        lambda requests, row: f"request {requests.request(row)} is in the log without CreateRequested",
        lambda requests, row: "a recorded request (a dry run leaves none)",
    ),
    Check[Requests](
        "created-as-asked",
        _both,
        lambda requests, row: f"created and rejected by request {requests.request(row)}",
        lambda requests, row: "one of both",
    ),
    Check[Requests](
        "as-asked",
        _of_another_count,
        lambda requests, row: f"{requests.count[row]} partitions",
        lambda requests, row: f"{requests.wanted_count[row]} partitions",
    ),
    Check[Requests](
        "as-asked",
        _of_another_factor,
        lambda requests, row: requests.sizes(row),
        lambda requests, row: f"{requests.wanted_factor[row]} replicas of each",
    ),
    Check[Requests](
        "as-asked",
        lambda requests: requests.placed_elsewhere,
        lambda requests, row: requests.elsewhere(row)[0],
        lambda requests, row: requests.elsewhere(row)[1],
    ),
    Check[Requests](
        "none-after-ready",
        _success,
        lambda requests, row: "NONE before TopicReady" if requests.created[row] else "NONE, but not created",
        lambda requests, row: "TopicReady before the answer",
    ),
    Check[Requests](
        "timeout-when-due",
        _too_early,
        lambda requests, row: f"timed out at {shown(requests['at_ms'][row])}",
        lambda requests, row: f"at or after {shown(requests.share['deadline_ms'][requests.requested[row]])}",
    ),
    Check[Requests](
        "replicas-live",
        _placed_on_others,
        lambda requests, row: f"placed on {requests.placed_outside(row, requests.share.usable)}",
        lambda requests, row: f"live brokers that are not cordoned: {requests.listed(row, requests.share.usable)}",
    ),
    Check[Requests](
        "replicas-live",
        lambda requests: requests.placed & requests.by_hand & requests.unknown(requests.registered),
        lambda requests, row: f"assigned by hand to {requests.placed_outside(row, requests.registered)}",
        lambda requests, row: f"registered brokers: {requests.listed(row, requests.registered)}",
    ),
    Check[Requests](
        "replicas-live",
        _saw_others,
        lambda requests, row: f"placement saw {requests.listed(row, requests.share.brokers)}",
        lambda requests, row: f"live brokers: {requests.listed(row, requests.share.live)}",
    ),
    Check[Requests](
        "placeholders-allowed",
        _not_allowed,
        lambda requests, row: (
            f"{-requests.lowest[row]} of {requests.factor[row]} wait, {requests.usable_count[row]} brokers live, "
            f"allowed: {str(requests.enabled[row]).lower()}"
        ),
        lambda requests, row: f"allowed, at least {requests.needed[row]} live, and each of them used",
    ),
)
"""What follows from what was recorded of a request before an event, and from the brokers of that moment."""
