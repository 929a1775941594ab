"""Completion of new topics: every partition has a live leader, and every live broker has applied the metadata."""

from __future__ import annotations

from itertools import filterfalse

from controller.machine.decision import NOTHING, Answer, Decision
from controller.machine.errors import ErrorCode
from controller.machine.state import Cluster, Topic
from events.catalog import CreateAnswered, Event, MetadataPropagated, TopicReady
from events.names import BrokerId


def confirm(topic: Topic, brokers: tuple[BrokerId, ...], cluster: Cluster, at_ms: int) -> list[Event]:
    """Returns the events after brokers have applied the creation of a topic."""
    known = topic.propagated
    fresh = tuple(filterfalse(frozenset(known).__contains__, brokers)) if known else brokers
    if not fresh:
        return complete(topic, known, cluster, at_ms)
    return [MetadataPropagated(topic.name, fresh), *complete(topic, known + fresh, cluster, at_ms)]


def complete(topic: Topic, propagated: tuple[BrokerId, ...], cluster: Cluster, at_ms: int) -> list[Event]:
    """Returns `TopicReady` and the answer to the pending create if the topic is complete, else nothing.

    A fenced leader does not count, because it may never serve.
    """
    live = cluster.live
    if len(propagated) < len(live):
        return []
    if propagated != live and not frozenset(propagated).issuperset(live):
        return []
    if not {partition.leader for partition in topic.partitions}.issubset(live):
        return []
    events: list[Event] = [TopicReady(topic.name)]
    if topic.pending_create is not None:
        waited_ms = max(0, at_ms - topic.pending_create.requested_at_ms)
        pending = topic.pending_create
        events.append(CreateAnswered(pending.request_id, topic.name, 0, pending.warning, waited_ms))
    return events


def answers_of(events: list[Event], topic: Topic) -> tuple[Answer, ...]:
    """Returns the answer to the pending create if the events complete the topic."""
    last = events[-1] if events else None
    if type(last) is not CreateAnswered:
        return ()
    return (Answer(last.request_id, topic.name, 0, last.message, "", last.waited_ms, topic),)


def progress_text(topic: Topic, cluster: Cluster) -> str:
    """Describes the progress of a topic, for the message of REQUEST_TIMED_OUT."""
    leaders = sum(1 for partition in topic.partitions if partition.leader in cluster.live)
    applied = len(frozenset(topic.propagated).intersection(cluster.live))
    return (
        f"{leaders} of {len(topic.partitions)} partitions have a leader and "
        f"{applied} of {len(cluster.live)} live brokers have applied it"
    )


def answer_pending_create(topic: Topic, code: ErrorCode, message: str, at_ms: int) -> Decision:
    """Answers the pending create, if there is one, with an error."""
    pending_create = topic.pending_create
    if pending_create is None:
        return NOTHING
    waited_ms = max(0, at_ms - pending_create.requested_at_ms)
    event = CreateAnswered(pending_create.request_id, topic.name, int(code), message, waited_ms)
    return Decision(
        (event,), (Answer(pending_create.request_id, topic.name, int(code), message, "", waited_ms, topic),)
    )
