"""Decides when a new topic is complete: every partition has a live leader, and every live broker has its metadata."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import filterfalse

from controller.machine.decision import Answer, Decision
from controller.machine.state import Cluster, PendingCreate, Topic
from events.catalog import CreateAnswered, Event, MetadataPropagated, TopicReady
from events.names import BrokerId


def confirm(topic: Topic, brokers: tuple[BrokerId, ...], cluster: Cluster, at_ms: int) -> Decision:
    """Returns the decision after brokers have applied the creation of a topic."""
    known = topic.propagated
    fresh = tuple(filterfalse(frozenset(known).__contains__, brokers)) if known else brokers
    if not fresh:
        return complete(topic, known, cluster, at_ms)
    return complete(topic, known + fresh, cluster, at_ms, (MetadataPropagated(topic.name, fresh),))


def complete(
    topic: Topic, propagated: tuple[BrokerId, ...], cluster: Cluster, at_ms: int, before: tuple[Event, ...] = ()
) -> Decision:
    """Returns the events `before`, and if the topic is complete `TopicReady` and the answer to the pending create.

    A partition with a fenced leader is not complete, because that broker may never serve clients.
    """
    live = cluster.live
    if len(propagated) < len(live):
        return Decision(before)
    if propagated != live and not frozenset(propagated).issuperset(live):
        return Decision(before)
    if not {partition.leader for partition in topic.partitions}.issubset(live):
        return Decision(before)
    before = (*before, TopicReady(topic.name))
    if topic.pending_create is None:
        return Decision(before)
    event, answer = _answered(topic, topic.pending_create, 0, topic.pending_create.warning, at_ms)
    return Decision((*before, event), (answer,))


def not_propagated(topic: Topic, live: Iterable[BrokerId]) -> tuple[BrokerId, ...]:
    """The live brokers that have not applied the creation of a topic."""
    return tuple(filterfalse(frozenset(topic.propagated).__contains__, live))


NAMED_MAX = 10


def progress_text(topic: Topic, cluster: Cluster) -> str:
    """Describes the progress of a topic, for the message of REQUEST_TIMED_OUT."""
    leaders = sum(1 for partition in topic.partitions if partition.leader in cluster.live)
    missing = not_propagated(topic, cluster.live)
    names = ", ".join(map(str, missing[:NAMED_MAX])) + (", …" if len(missing) > NAMED_MAX else "")
    waits = f"; it waits for {'broker' if len(missing) == 1 else 'brokers'} {names}" if missing else ""
    return (
        f"{leaders} of {len(topic.partitions)} partitions have a leader and "
        f"{len(cluster.live) - len(missing)} of {len(cluster.live)} live brokers have applied it{waits}"
    )


def answer_pending_create(topic: Topic, code: int, message: str, at_ms: int, *before: Event) -> Decision:
    """Returns the events `before`, and the answer to the pending create, if there is one, with an error."""
    if topic.pending_create is None:
        return Decision(before)
    event, answer = _answered(topic, topic.pending_create, int(code), message, at_ms)
    return Decision((*before, event), (answer,))


def _answered(
    topic: Topic, pending: PendingCreate, code: int, message: str, at_ms: int
) -> tuple[CreateAnswered, Answer]:
    waited_ms = max(0, at_ms - pending.requested_at_ms)
    event = CreateAnswered(pending.request_id, topic.name, code, message, waited_ms)
    return event, Answer(pending.request_id, topic.name, code, message, "", waited_ms, topic)
