"""Drawings on pages: the waterfall of a request, replicas, bars, and colours of states."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from projections.views.events import ExplanationView
from projections.views.topics import PartitionView

STEPS_MAX = 200
WIDTH = 1000
_PHASES = {
    "CreateRequested": "requested",
    "TopicCreated": "decided: created",
    "CreateRejected": "decided: refused",
    "MetadataPropagated": "propagated",
    "LeaderElected": "leader elected",
    "TopicReady": "ready",
    "CreateAnswered": "answered",
}


class Bar(msgspec.Struct, frozen=True):
    """A step of a request, from the previous step on. `x` and `width` are in units of `WIDTH`."""

    phase: str
    text: str
    because: str
    offset: int
    at: str
    after_ms: int
    took_ms: int
    x: float
    width: float


def waterfall(chain: ExplanationView) -> tuple[Bar, ...]:
    """The first steps of a request, one after the other."""
    steps = chain.steps[:STEPS_MAX]
    total, before, bars = max((step.after_ms for step in steps), default=0) or 1, 0, []
    for step in steps:
        phase, start = _PHASES.get(step.event, step.event), min(before, step.after_ms)
        took = step.after_ms - start
        x, width = WIDTH * start / total, max(3.0, WIDTH * took / total)
        bars.append(
            Bar(phase, step.text, step.because, step.offset, step.at, step.after_ms, took, min(x, WIDTH - 3.0), width)
        )
        before = step.after_ms
    return tuple(bars)


class Replica(msgspec.Struct, frozen=True):
    """A replica of a partition: its broker and state, as a CSS class and as text."""

    broker_id: int
    kind: str
    text: str


def replicas(partition: PartitionView) -> tuple[Replica, ...]:
    """The replicas of a partition, in order."""
    return tuple(_replica(partition, broker_id) for broker_id in partition.replicas)


def _replica(partition: PartitionView, broker_id: int) -> Replica:
    if broker_id < 0:
        return Replica(broker_id, "placeholder", "placeholder: waits for a broker to join")
    if broker_id in partition.offline:
        return Replica(broker_id, "offline", f"broker {broker_id}: offline")
    if broker_id == partition.leader:
        return Replica(broker_id, "leader", f"broker {broker_id}: leader, in sync")
    if broker_id in partition.isr:
        return Replica(broker_id, "insync", f"broker {broker_id}: in sync")
    return Replica(broker_id, "behind", f"broker {broker_id}: out of sync")


MARKS = {"ready": "good", "live": "good", "offline": "bad", "fenced": "bad"}
GOOD_OUTCOMES = frozenset(("created", "done", "deleted", "partitions-added", "configs-changed"))
BAD_OUTCOMES = frozenset(("rejected", "failed"))


def mark(status: str) -> str:
    """The CSS class of a status: good, bad or warning."""
    return MARKS.get(status, "warning")


def outcome_mark(outcomes: Iterable[str]) -> str:
    """The CSS class of the worst outcome of a request."""
    each = set(outcomes)
    return "bad" if each & BAD_OUTCOMES else "good" if each <= GOOD_OUTCOMES else "warning"


def bar_length(number: int, numbers: Sequence[int]) -> float:
    """The length of the bar of a number, relative to the largest, in units of `WIDTH`."""
    return WIDTH * number / max(max(numbers, default=0), 1)
