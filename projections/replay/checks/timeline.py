"""The brokers and settings of every moment, which checks look up by the offsets of events.

Broker and settings events are few, and concern every topic. They are read to the driver and folded here, in plain
Python that shares nothing with the machine, to spans of offsets in which nothing changes. The spans go with the checks
to the workers, where a binary search finds that of each event.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from projections.replay.checks.arrays import NOWHERE, Bools, Ints, Lists

CLUSTER_TYPES = (
    "BrokerRegistered", "BrokerFenced", "BrokerLeaving", "BrokerUnfenced", "BrokerUnregistered", "SettingsChanged",
    "QuorumEpochBegun", "FeaturesChanged", "LogDirsChanged",
)  # fmt: skip
"""The events that make the timeline."""

_FOREVER = (1 << 63) - 1
_UNDER_REPLICATED = "enable.under.replicated.topic.creation"
_CARRIES_OUT = "has.target.cluster"
MIN_ISR = "min.insync.replicas"


class ClusterEvent(NamedTuple):
    """An event of one of CLUSTER_TYPES; what it does not say is None."""

    log_partition: int
    offset: int
    at_ms: int
    type: str
    broker_id: int | None
    settings: tuple[tuple[str, str], ...] | None
    cordoned: bool | None


class Span(NamedTuple):
    """What held for events at offsets above `since` and below `until` of one log partition."""

    log_partition: int
    since: int
    until: int
    live: tuple[int, ...]
    usable: tuple[int, ...]
    """The live brokers on which new replicas may be placed."""
    registered: tuple[int, ...]
    enabled: bool
    """Whether topics might be created with fewer brokers than their factor (KIP-409)."""
    min_isr: int
    num_partitions: int
    factor: int
    """What topics get that ask for neither partitions nor a factor."""


class AtEnd(NamedTuple):
    """Brokers when a log partition ends, each with the time since when: those that are live, those of them on which
    new replicas may be placed, and those that were live."""

    live: dict[int, int]
    usable: dict[int, int]
    gone: dict[int, int]
    elects: bool
    """Whether leaders are elected here among simulated brokers: no cluster carries decisions out, and brokers are not
    real, which may be live and unable to lead, as a log directory of theirs has failed."""

    def live_for(self, now_ms: int, settle_ms: int) -> tuple[int, ...]:
        """The brokers that have been live for `settle_ms`."""
        return _for(self.live, now_ms, settle_ms)

    def usable_for(self, now_ms: int, settle_ms: int) -> tuple[int, ...]:
        """The brokers that have been usable for `settle_ms`."""
        return _for(self.usable, now_ms, settle_ms)

    def not_gone_for(self, now_ms: int, settle_ms: int) -> tuple[int, ...]:
        """The brokers that were live within the last `settle_ms`."""
        late = (broker for broker, since_ms in self.gone.items() if now_ms - since_ms < settle_ms)
        return tuple(sorted((*self.live, *late)))


def _for(since: dict[int, int], now_ms: int, settle_ms: int) -> tuple[int, ...]:
    return tuple(broker for broker, since_ms in since.items() if now_ms - since_ms >= settle_ms)


class Timeline(NamedTuple):
    """All spans of a log, its brokers when it ends, and the log partitions in which placeholders were ever allowed."""

    spans: tuple[Span, ...]
    at_end: dict[int, AtEnd]
    ever_enabled: frozenset[int]


class Brokers:
    """The fold of one log partition's cluster events."""

    def __init__(self, log_partition: int) -> None:
        self.log_partition = log_partition
        self.since = -1
        self.registered: set[int] = set()
        self.live_ms: dict[int, int] = {}
        self.gone_ms: dict[int, int] = {}
        self.cordoned: set[int] = set()
        self.uncordoned_ms: dict[int, int] = {}
        self.settings: dict[str, str] = {}
        self.are_real = False

    def span(self, until: int) -> Span:
        """What holds until an offset."""
        return Span(
            self.log_partition,
            self.since,
            until,
            tuple(sorted(self.live_ms)),
            tuple(sorted(self.live_ms.keys() - self.cordoned)),
            tuple(sorted(self.registered)),
            self.settings.get(_UNDER_REPLICATED) == "true",
            self._count(MIN_ISR),
            self._count("num.partitions"),
            self._count("default.replication.factor"),
        )

    def _count(self, setting: str) -> int:
        return count_of(self.settings.get(setting, "1"), 1)

    def see(self, event: ClusterEvent) -> None:
        """Take in one cluster event."""
        self.since = event.offset
        if event.type == "SettingsChanged":
            self.settings = dict(event.settings or ())
        elif event.type in ("QuorumEpochBegun", "FeaturesChanged"):
            self.are_real = True
        elif event.type == "LogDirsChanged" and event.broker_id is not None:
            self._see_log_dirs(event, event.broker_id)
        elif event.broker_id is not None:
            self._see_broker(event, event.broker_id)

    def _see_log_dirs(self, event: ClusterEvent, broker_id: int) -> None:
        if event.cordoned:
            self.cordoned.add(broker_id)
        elif broker_id in self.cordoned:
            self.cordoned.discard(broker_id)
            self.uncordoned_ms[broker_id] = event.at_ms

    def _see_broker(self, event: ClusterEvent, broker_id: int) -> None:
        if event.type == "BrokerUnfenced":
            self.registered.add(broker_id)
            self.live_ms.setdefault(broker_id, event.at_ms)
            self.gone_ms.pop(broker_id, None)
            return
        if self.live_ms.pop(broker_id, None) is not None:
            self.gone_ms[broker_id] = event.at_ms
        if event.type in ("BrokerRegistered", "BrokerUnregistered"):
            self.cordoned.discard(broker_id)
        if event.type == "BrokerUnregistered":
            self.registered.discard(broker_id)
        else:
            self.registered.add(broker_id)

    def at_end(self) -> AtEnd:
        """The brokers as they are now."""
        elects = not self.are_real and self.settings.get(_CARRIES_OUT) != "true"
        live = dict(sorted(self.live_ms.items()))
        usable = {
            broker: max(since_ms, self.uncordoned_ms.get(broker, since_ms))
            for broker, since_ms in live.items()
            if broker not in self.cordoned
        }
        return AtEnd(live, usable, self.gone_ms, elects)


def count_of(value: str, otherwise: int) -> int:
    """The count that the value of a setting or config is, `otherwise` where it is none."""
    return int(value) if value.isascii() and value.isdecimal() else otherwise


def timeline(events: Iterable[ClusterEvent]) -> Timeline:
    """The timeline of cluster events, each partition's in the order of their offsets."""
    spans: list[Span] = []
    folds: dict[int, Brokers] = {}
    for event in events:
        fold = folds.setdefault(event.log_partition, Brokers(event.log_partition))
        spans.append(fold.span(event.offset))
        fold.see(event)
    spans += [fold.span(_FOREVER) for fold in folds.values()]
    return Timeline(
        tuple(spans),
        {log_partition: fold.at_end() for log_partition, fold in folds.items()},
        frozenset(span.log_partition for span in spans if span.enabled),
    )


class Moments:
    """The brokers and settings of the moments of events, found by log partition and offset."""

    def __init__(self, spans: Sequence[Span], lists: Lists) -> None:
        self._lists = lists
        ordered = [_BEFORE_ALL, *sorted(spans, key=lambda span: (span.log_partition, span.since))]
        self._since = np.array([span.since for span in ordered], np.int64)
        self._partition = np.array([span.log_partition for span in ordered], np.int64)
        self._live = np.array([lists.code(span.live) for span in ordered], np.int64)
        self._usable = np.array([lists.code(span.usable) for span in ordered], np.int64)
        self._registered = np.array([lists.code(span.registered) for span in ordered], np.int64)
        self._enabled = np.array([span.enabled for span in ordered], bool)
        self._min_isr = np.array([span.min_isr for span in ordered], np.int64)
        self._num_partitions = np.array([span.num_partitions for span in ordered], np.int64)
        self._factor = np.array([span.factor for span in ordered], np.int64)

    def find(self, log_partitions: Ints, offsets: Ints) -> Ints:
        """The moment of each event: a place for the methods below."""
        found = np.zeros(len(offsets), np.int64)
        for partition in np.unique(log_partitions).tolist():
            spans = np.flatnonzero(self._partition == partition)
            if len(spans):
                rows = log_partitions == partition
                found[rows] = spans[np.searchsorted(self._since[spans], offsets[rows]) - 1]
        return found

    def live(self, moments: Ints) -> Ints:
        """The live brokers, sorted, as a list of `lists`."""
        return self._live[moments]

    def usable(self, moments: Ints) -> Ints:
        """The live brokers on which new replicas may be placed."""
        return self._usable[moments]

    def registered(self, moments: Ints) -> Ints:
        """The registered brokers."""
        return self._registered[moments]

    def enabled(self, moments: Ints) -> Bools:
        """Whether topics might be created with fewer brokers than their factor."""
        return self._enabled[moments]

    def min_isr(self, moments: Ints) -> Ints:
        """The cluster's `min.insync.replicas`."""
        return self._min_isr[moments]

    def num_partitions(self, moments: Ints) -> Ints:
        """How many partitions a topic gets that does not say."""
        return self._num_partitions[moments]

    def factor(self, moments: Ints) -> Ints:
        """The replication factor of a topic that does not say."""
        return self._factor[moments]


_BEFORE_ALL = Span(NOWHERE, -1, 0, (), (), (), enabled=False, min_isr=1, num_partitions=1, factor=1)
"""What holds in a log without any cluster event."""
