"""Completion of new topics: every partition has a live leader, and every live broker has applied the metadata."""

from __future__ import annotations

from itertools import filterfalse

from controller.machine.decision import NOTHING, Answer, Decision
from controller.machine.errors import ErrorCode
from controller.machine.state import Cluster, Topic
from events.catalog import CreateAnswered, MetadataPropagated, TopicReady
from events.names import BrokerId


def confirm(topic: Topic, brokers: tuple[BrokerId, ...], cluster: Cluster, at_ms: int) -> Decision:
    """Returns the decision after brokers have applied the creation of a topic."""
    known = topic.propagated
    fresh = tuple(filterfalse(frozenset(known).__contains__, brokers)) if known else brokers
    completed = complete(topic, known + fresh, cluster, at_ms)
    if not fresh:
        return completed
    return Decision((MetadataPropagated(topic.name, fresh), *completed.events), completed.answers)


def complete(topic: Topic, propagated: tuple[BrokerId, ...], cluster: Cluster, at_ms: int) -> Decision:
    """Returns `TopicReady` and the answer to the pending create if the topic is complete, else nothing.

    A fenced leader does not count, because it may never serve.
    """
    live = cluster.live
    if len(propagated) < len(live):
        return NOTHING
    if propagated != live and not frozenset(propagated).issuperset(live):
        return NOTHING
    if not {partition.leader for partition in topic.partitions}.issubset(live):
        return NOTHING
    warning = "" if topic.pending_create is None else topic.pending_create.warning
    answered = answer_pending_create(topic, ErrorCode.NONE, warning, at_ms)
    return Decision((TopicReady(topic.name), *answered.events), answered.answers)


def progress_text(topic: Topic, cluster: Cluster) -> str:
    """Describes the progress of a topic, for the message of REQUEST_TIMED_OUT."""
    leaders = sum(1 for partition in topic.partitions if partition.leader in cluster.live)
    applied = len(frozenset(topic.propagated).intersection(cluster.live))
    return (
        f"{leaders} of {len(topic.partitions)} partitions have a leader and "
        f"{applied} of {len(cluster.live)} live brokers have applied it"
    )


def answer_pending_create(topic: Topic, code: ErrorCode, message: str, at_ms: int) -> Decision:
    """Answers the pending create, if there is one."""
    pending_create = topic.pending_create
    if pending_create is None:
        return NOTHING
    waited_ms = max(0, at_ms - pending_create.requested_at_ms)
    event = CreateAnswered(pending_create.request_id, topic.name, int(code), message, waited_ms)
    return Decision(
        (event,), (Answer(pending_create.request_id, topic.name, int(code), message, "", waited_ms, topic),)
    )
