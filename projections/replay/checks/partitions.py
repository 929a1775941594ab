"""Checks of single partitions: replicas, leaders, in-sync sets, epochs and placeholders.

`Steps` has one row for each partition that an event creates, its base, and one for each later change of it; partition
by partition, in the order of offsets. A row has the partition after the event, and for each the row before it has the
partition until then. The brokers of the moment come from the timeline.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from projections.replay.checks.arrays import NOWHERE, Bools, Groups, Ids, Ints, at, combined, judged, plus
from projections.replay.checks.check import Check, Violation, found, listed, others, shown
from projections.replay.checks.share import Chosen, Share
from projections.replay.checks.topics import ENDS

_CHANGE = "PartitionChanged"
_NO_LEADER = -1


class Steps(Chosen):
    """The changes of partitions; a row here belongs to the event `event[row]` of the share."""

    def __init__(self, share: Share) -> None:
        self.lists = share.lists
        made = share.created
        changes = np.flatnonzero(share.of(_CHANGE))
        event = np.concatenate((made.event, changes))
        partition = np.concatenate((made.partition, share["partition"][changes]))
        keys = combined([share.shard[event], partition])
        order = np.lexsort((event, keys))

        def column(of_created: Ints, of_events: Ints) -> Ints:
            return np.concatenate((of_created, of_events[changes]))[order]

        super().__init__(share, event[order])
        self.partition = partition[order]
        self.new = order < len(made.event)
        """Whether a row is a base."""
        self.replicas = column(made.replicas, share.replicas)
        self.isr = column(made.isr, share.isr)
        self.leader = column(made.leader, share["leader"])
        self.leader_epoch = column(made.leader_epoch, share["leader_epoch"])
        self.partition_epoch = column(made.partition_epoch, share["partition_epoch"])
        self.live = share.live[self.event]
        self.usable = share.usable[self.event]
        groups = Groups(keys[order])
        self.is_last = groups.is_last
        before = groups.before()
        self.led_by, self.led_epoch = at(self.leader, before), at(self.leader_epoch, before)
        self.epoch = at(self.partition_epoch, before)
        self.stood = column(made.replicas, share.stood)
        """The replicas of a partition: of a base its own; else those before the event."""
        self.changed = ~self.new & (before != NOWHERE)
        """Whether a row changes a partition that was there."""
        self.is_led_anew = (self.leader != self.led_by) | (self.isr != at(self.isr, before, NOWHERE))
        """Whether another replica leads, or others are in sync."""
        base = np.where(self.new, np.arange(len(self.event)), groups.last(self.new))
        self.since = at(self.share["offset"][self.event], base)
        """The offset of the base."""

    @property
    def decided(self) -> Bools:
        """Whether a row is a partition that begins here; one that was found has a past."""
        return self.new & ~self.of("TopicDiscovered")

    @property
    def foreign(self) -> Bools:
        """Whether another controller decided what a row says."""
        return self.share.foreign[self.event]

    @property
    def of_this_end(self) -> Bools:
        """Whether a row is the last of a partition that is there when the log ends."""
        share = self.share
        deleted = np.full(int(share.shard.max(initial=0)) + 1, NOWHERE)
        ends = share.of(*ENDS)
        np.maximum.at(deleted, share.shard[ends], share["offset"][ends])
        return self.is_last & (deleted[share.shard[self.event]] <= self.since)

    @property
    def until(self) -> Ints:
        """The row of the share up to which a partition stands as after an event."""
        share = self.share
        begins = np.flatnonzero(share.of("TopicCreated", "TopicDiscovered", *ENDS))
        anew = np.append(begins, len(share))[np.searchsorted(begins, self.event, "right")]
        of_shard = np.searchsorted(share.shard, share.shard[self.event], "right")
        following = np.where(self.is_last, len(share), np.roll(self.event, -1))
        return np.minimum(np.minimum(anew, of_shard), following)

    def about(self, row: int, said: str) -> str:
        """What a violation says of the partition of a row."""
        return f"partition {shown(self.partition[row])}: {said}"

    def list(self, code: Ints | np.int64) -> str:
        """A list for people."""
        return listed(self.lists[int(code)])

    def not_live(self, rows: Bools, leader: Ints) -> Bools:
        """Whether the leader is none of the live brokers."""
        return judged(rows, lambda leader, live: leader not in self.lists.ids(live), leader, self.live)


def _not_distinct(steps: Steps) -> Bools:
    def repeats(code: int) -> bool:
        ids = steps.lists.ids(code)
        return not ids or len(set(ids)) != len(ids)

    return judged(steps.replicas != NOWHERE, repeats, steps.replicas)


def _is_sound(leader: int, isr: Ids, replicas: Ids) -> bool:
    """Whether an in-sync set is one of replicas, without placeholders, with the leader if there is one."""
    of_replicas = all(one >= 0 and one in replicas for one in isr)
    return of_replicas and len(set(isr)) == len(isr) and (leader == _NO_LEADER or leader in isr)


def _out_of_order(steps: Steps) -> Bools:
    """With eligible leader replicas nobody may be in sync; then nobody leads (KIP-966)."""

    def is_unsound(leader: int, isr: int, replicas: int, kraft: int) -> bool:
        ids = steps.lists.ids
        return not (ids(isr) or kraft == 1) or not _is_sound(leader, ids(isr), ids(replicas))

    rows = (steps.new & ~steps.foreign) | steps.changed
    return judged(rows, is_unsound, steps.leader, steps.isr, steps.replicas, steps["kraft"])


def _epochs_do_not_follow(steps: Steps) -> Bools:
    """In KRaft mode the leader epoch may also rise under the same leader."""
    leader_follows = steps.leader_epoch == plus(steps.led_epoch, steps.leader != steps.led_by)
    leader_follows |= (steps["kraft"] == 1) & (steps.leader_epoch == plus(steps.led_epoch, 1))
    return steps.changed & ~((steps.partition_epoch == plus(steps.epoch, 1)) & leader_follows)


def _expected_epochs(steps: Steps, row: int) -> str:
    led_anew = int(steps.leader[row] != steps.led_by[row])
    leader_epoch, partition_epoch = plus(steps.led_epoch[[row]], led_anew)[0], plus(steps.epoch[[row]], 1)[0]
    return f"epochs {shown(leader_epoch)}, {shown(partition_epoch)}"


def _begins_late(steps: Steps) -> Bools:
    return steps.decided & ~steps.foreign & ~((steps.leader_epoch == 0) & (steps.partition_epoch == 0))


def _led_by_others(steps: Steps) -> Bools:
    elected = steps.changed & steps.is_led_anew & (steps.leader != _NO_LEADER)
    return steps.not_live((steps.decided | elected) & ~steps.foreign, steps.leader)


def _wrongly_filled(steps: Steps) -> Bools:
    def is_wrong(stood: int, replicas: int, usable: int) -> bool:
        before, after, brokers = (steps.lists.ids(code) for code in (stood, replicas, usable))
        filled = [(place, broker) for place, broker in zip(before, after, strict=False) if place != broker]
        return len(before) != len(after) or any(place >= 0 or broker not in brokers for place, broker in filled)

    had = steps.lists.lowest(steps.stood) < 0
    rows = steps.changed & (steps.replicas != steps.stood)
    rows &= (steps["kraft"] != 1) | (had & steps.share.reviewed[steps.event])
    return judged(rows, is_wrong, steps.stood, steps.replicas, steps.usable)


def _could_be_filled(steps: Steps, rows: Bools, replicas: Ints, brokers: Ints) -> Bools:
    """Whether there is a placeholder and one of the brokers is not yet a replica."""

    def is_left(replicas: int, brokers: int) -> bool:
        ids = steps.lists.ids(replicas)
        return min(ids, default=0) < 0 and bool(others(steps.lists.ids(brokers), ids))

    return judged(rows, is_left, replicas, brokers)


def _reviewed_and_left(steps: Steps) -> Bools:
    rows = steps.share.reviewed[steps.event] & steps.changed
    return _could_be_filled(steps, rows, steps.replicas, steps.usable)


def _fill(steps: Steps, row: int) -> str:
    return steps.about(row, f"{steps.list(steps.replicas[row])} for {steps.list(steps.stood[row])}")


def _epochs(steps: Steps, row: int) -> str:
    return steps.about(row, f"epochs {shown(steps.leader_epoch[row])}, {shown(steps.partition_epoch[row])}")


def _usable_others(steps: Steps, row: int) -> str:
    return listed(others(steps.lists.ids(int(steps.usable[row])), steps.lists.ids(int(steps.replicas[row]))))


_SOUND = "a leader of the in-sync set, which is of the replicas, without placeholders"

PARTITION_CHECKS = (
    Check[Steps](
        "replicas-distinct",
        _not_distinct,
        lambda steps, row: steps.about(row, f"replicas {steps.list(steps.replicas[row])}"),
        lambda steps, row: "distinct replicas",
    ),
    Check[Steps](
        "leader-in-isr",
        _out_of_order,
        lambda steps, row: steps.about(
            row,
            f"leader {shown(steps.leader[row])}, in sync {steps.list(steps.isr[row])}, "
            f"replicas {steps.list(steps.replicas[row])}",
        ),
        lambda steps, row: _SOUND,
    ),
    Check[Steps]("epochs-never-go-back", _begins_late, _epochs, lambda steps, row: "epochs 0, 0 when it is new"),
    Check[Steps]("epochs-never-go-back", _epochs_do_not_follow, _epochs, _expected_epochs),
    Check[Steps](
        "leaders-unfenced",
        _led_by_others,
        lambda steps, row: steps.about(row, f"leader {shown(steps.leader[row])}"),
        lambda steps, row: f"one of the live brokers {steps.list(steps.live[row])}",
    ),
    Check[Steps](
        "placeholders-filled",
        _wrongly_filled,
        _fill,
        lambda steps, row: f"one of its placeholders filled by one of the brokers {steps.list(steps.usable[row])}",
    ),
    Check[Steps](
        "placeholders-filled",
        _reviewed_and_left,
        lambda steps, row: steps.about(row, f"{steps.list(steps.replicas[row])} after a review"),
        lambda steps, row: f"filled by one of {_usable_others(steps, row)}",
    ),
)
"""What follows from how a partition stood before an event, and from the brokers of that moment."""


class ReadyPartitions(Chosen):
    """The partitions of topics that become ready; a row here is one of them at the TopicReady `event[row]`."""

    def __init__(self, steps: Steps) -> None:
        ready = np.flatnonzero(steps.share.of("TopicReady"))
        first, last = np.searchsorted(ready, steps.event), np.searchsorted(ready, steps.until)
        counts = np.maximum(last - first, 0)
        step = np.repeat(np.arange(len(counts)), counts)
        nth = np.arange(len(step)) - np.repeat(np.cumsum(counts) - counts, counts)
        event = ready[first[step] + nth]
        own = steps.share.topic[event] == steps.share.topic[steps.event[step]]
        super().__init__(steps.share, event[own])
        self.partition = steps.partition[step][own]
        self.leader = steps.leader[step][own]
        self.live = self.share.live[self.event]


def _not_led(ready: ReadyPartitions) -> Bools:
    every = np.ones(len(ready.event), bool)
    return judged(every, lambda leader, live: leader not in ready.share.lists.ids(live), ready.leader, ready.live)


READY_CHECKS = (
    Check[ReadyPartitions](
        "ready-is-true",
        _not_led,
        lambda ready, row: f"ready, and partition {ready.partition[row]} has leader {shown(ready.leader[row])}",
        lambda ready, row: f"one of the live brokers {listed(ready.share.lists[int(ready.live[row])])}",
    ),
)


class Settled(NamedTuple):
    """The brokers when a log partition ends, and topics have been reviewed since they came or went: those that could
    fill placeholders, those that could lead, and those that may lead still. Leaders are judged where `elects`."""

    fill: Ids
    lead: Ids
    led: Ids
    elects: bool


def _unled(could_lead: Ints, may_lead: Ints) -> Check[Steps]:
    """Partitions that are without a leader at the end, though a member of their in-sync set could lead; and those under
    a leader that has been gone."""

    def broken(steps: Steps) -> Bools:
        ids = steps.lists.ids

        def is_left(leader: int, synced: int, could: int, may: int) -> bool:
            if leader != _NO_LEADER:
                return leader not in ids(may)
            return any(one in ids(could) for one in ids(synced))

        rows = steps.of_this_end & (may_lead[steps.event] != NOWHERE)
        return judged(rows, is_left, steps.leader, steps.isr, could_lead[steps.event], may_lead[steps.event])

    def leader(steps: Steps, row: int) -> str:
        return f"leader {shown(steps.leader[row])}, in sync {steps.list(steps.isr[row])} at the end of the log"

    return Check(
        "led-when-possible",
        broken,
        lambda steps, row: steps.about(row, leader(steps, row)),
        lambda steps, row: f"a live leader, if one of {steps.list(could_lead[steps.event[row]])} is in sync",
    )


def _unfilled(could: Ints) -> Check[Steps]:
    """Placeholders that are left at the end, in topics that are not deleted, where brokers that `could` have."""

    def broken(steps: Steps) -> Bools:
        return _could_be_filled(steps, steps.of_this_end, steps.replicas, could[steps.event])

    def brokers(steps: Steps, row: int) -> str:
        able, stands = steps.lists.ids(int(could[steps.event[row]])), steps.lists.ids(int(steps.replicas[row]))
        return listed(others(able, stands))

    return Check(
        "placeholders-filled",
        broken,
        lambda steps, row: steps.about(row, f"{steps.list(steps.replicas[row])} at the end of the log"),
        lambda steps, row: f"filled by one of {brokers(steps, row)}",
    )


def partition_violations(share: Share, settled: Mapping[int, Settled]) -> Iterator[Violation]:
    """All that is wrong with single partitions at the time of an event, and at the end of the log; `settled` has the
    brokers of that end, by log partition, where it is judged."""
    steps = Steps(share)
    yield from found(PARTITION_CHECKS, steps)
    yield from found(READY_CHECKS, ReadyPartitions(steps))
    fill, lead, led = (np.full(len(share), NOWHERE) for _ in range(3))
    for partition, brokers in settled.items():
        here = share["log_partition"] == partition
        fill[here] = share.lists.code(brokers.fill)
        if brokers.elects:
            lead[here], led[here] = share.lists.code(brokers.lead), share.lists.code(brokers.led)
    yield from found((_unfilled(fill), _unled(lead, led)), steps)
