"""When a waiting create is complete: every partition has a live leader, every live broker has applied the metadata."""

from __future__ import annotations

from itertools import filterfalse

from controller.machine.decision import Answer, Decision
from controller.machine.errors import ErrorCode
from controller.machine.state import Cluster, Topic
from events.catalog import CreateAnswered, Event, MetadataPropagated, TopicReady
from events.names import BrokerId


def confirm(topic: Topic, brokers: tuple[BrokerId, ...], cluster: Cluster, at_ms: int) -> list[Event]:
    """The events that follow when brokers have applied a topic's creation."""
    known = topic.propagated
    fresh = tuple(filterfalse(frozenset(known).__contains__, brokers)) if known else brokers
    if not fresh:
        return complete(topic, known, cluster, at_ms)
    return [MetadataPropagated(topic.name, fresh), *complete(topic, known + fresh, cluster, at_ms)]


def complete(topic: Topic, propagated: tuple[BrokerId, ...], cluster: Cluster, at_ms: int) -> list[Event]:
    """`TopicReady` and the answer to the waiting create, if nothing is missing any more.

    A leader that is fenced, and whose partition was not looked at since, does not count: it may never serve.
    """
    live = cluster.live
    if len(propagated) < len(live):
        return []
    if propagated != live and not frozenset(propagated).issuperset(live):
        return []
    if not {partition.leader for partition in topic.partitions}.issubset(live):
        return []
    events: list[Event] = [TopicReady(topic.name)]
    if topic.waiter is not None:
        waited_ms = max(0, at_ms - topic.waiter.requested_at_ms)
        events.append(CreateAnswered(topic.waiter.request_id, topic.name, int(ErrorCode.NONE), "", waited_ms))
    return events


def answers_of(events: list[Event], topic: Topic) -> tuple[Answer, ...]:
    """The answer of the create that waited for a topic, if these events complete it."""
    last = events[-1] if events else None
    if type(last) is not CreateAnswered:
        return ()
    return (Answer(last.request_id, topic.name, 0, "", "", last.waited_ms, topic),)


def how_far(topic: Topic, cluster: Cluster) -> str:
    """How far a topic came, in words for the message of REQUEST_TIMED_OUT."""
    leaders = sum(1 for partition in topic.partitions if partition.leader in cluster.live)
    applied = len(frozenset(topic.propagated).intersection(cluster.live))
    return (
        f"{leaders} of {len(topic.partitions)} partitions have a leader and "
        f"{applied} of {len(cluster.live)} live brokers know it"
    )


def answer_waiter(topic: Topic, code: ErrorCode, message: str, at_ms: int) -> Decision:
    """The terminal answer of a create that waits, other than that it is complete."""
    waiter = topic.waiter
    assert waiter is not None, "only a create that waits is answered so"
    waited_ms = max(0, at_ms - waiter.requested_at_ms)
    event = CreateAnswered(waiter.request_id, topic.name, int(code), message, waited_ms)
    return Decision((event,), (Answer(waiter.request_id, topic.name, int(code), message, "", waited_ms, topic),))
