"""What pages draw of an answer, and what they say of it in few words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from projections.views.json_types import ExplanationView, PartitionView

STEPS_SHOWN_MAX = 200
WIDTH = 1000
_PHASES = {
    "CreateRequested": "asked",
    "TopicCreated": "judged, created",
    "CreateRejected": "judged, refused",
    "MetadataPropagated": "known",
    "LeaderElected": "led",
    "TopicReady": "ready",
    "CreateAnswered": "answered",
}


class Bar(msgspec.Struct, frozen=True):
    """A step of a request: from the step before it, to when it happened. `x` and `width` are of `WIDTH`."""

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
    """The steps of a request, one after the other; the first of a long one."""
    steps = chain.steps[:STEPS_SHOWN_MAX]
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


class Place(msgspec.Struct, frozen=True):
    """A replica of a partition: its broker, and how it stands there, as a class and in words."""

    broker_id: int
    kind: str
    words: str


def places(partition: PartitionView) -> tuple[Place, ...]:
    """The replicas of a partition, in order."""
    return tuple(_place(partition, broker_id) for broker_id in partition.replicas)


def _place(partition: PartitionView, broker_id: int) -> Place:
    if broker_id < 0:
        return Place(broker_id, "placeholder", "placeholder: waits for a broker to join")
    if broker_id in partition.offline:
        return Place(broker_id, "offline", f"broker {broker_id}: offline")
    if broker_id == partition.leader:
        return Place(broker_id, "leader", f"broker {broker_id}: leader, in sync")
    if broker_id in partition.isr:
        return Place(broker_id, "insync", f"broker {broker_id}: in sync")
    return Place(broker_id, "behind", f"broker {broker_id}: out of sync")


MARKS = {"ready": "good", "live": "good", "offline": "bad", "fenced": "bad"}
GOOD_OUTCOMES = frozenset(("created", "done", "deleted", "partitions-added", "configs-changed"))
BAD_OUTCOMES = frozenset(("rejected", "failed"))


def mark(status: str) -> str:
    """The class of a status: good, bad or warning."""
    return MARKS.get(status, "warning")


def outcome_mark(outcomes: Iterable[str]) -> str:
    """The class of how the topics of a request fare: the worst of them."""
    each = set(outcomes)
    return "bad" if each & BAD_OUTCOMES else "good" if each <= GOOD_OUTCOMES else "warning"


def share(number: int, numbers: Sequence[int]) -> float:
    """How long the bar of a number is beside those of others, of `WIDTH`."""
    return WIDTH * number / max(max(numbers, default=0), 1)
