"""Rows, events and answers to the JSON structs of `shapes`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from controller.http import shapes
from controller.machine.decision import Answer
from controller.machine.state import Topic
from events.catalog import Partition, Recorded, Verdict
from events.hiding import HIDDEN, without_secrets
from events.names import BrokerId
from projections import topics
from projections.brokers import BrokerRow, ClusterRow
from projections.explain import Explanation, Step
from projections.listing import Listed, Place, cursor_of
from projections.moments import iso
from projections.names import error_word, topic_id_text
from projections.query import AsOf
from projections.requests import Asked, RequestRow, RequestTopicRow
from projections.topics import TopicRow
from projections.wording import change_in_words, create_in_words, in_words

Live = Collection[BrokerId]

_PAIRS = frozenset(("configs", "settings"))
"""Fields of events that hold pairs of names and values."""


def maybe_iso(at_ms: int | None) -> str | None:
    """A time as text, null where there is none."""
    return None if at_ms is None else iso(at_ms)


def as_of(moment: AsOf) -> shapes.AsOfShape:
    """The moment that an answer shows."""
    return shapes.AsOfShape(moment.offset, maybe_iso(moment.at_ms), moment.at_ms, moment.partition, moment.ends)


def partitions(all_of_them: Iterable[Partition], live: Live) -> tuple[shapes.PartitionShape, ...]:
    """Partitions in the order of their ids."""
    return tuple(
        shapes.PartitionShape(
            number,
            one.leader,
            one.replicas,
            one.isr,
            topics.offline_replicas(one, live),
            one.leader_epoch,
            one.partition_epoch,
        )
        for number, one in enumerate(all_of_them)
    )


def topic_summary(row: TopicRow, live: Live) -> shapes.TopicSummary:
    """A topic for a list."""
    return shapes.TopicSummary(**_summary(row, live))


def topic(row: TopicRow, live: Live, moment: AsOf) -> shapes.TopicShape:
    """A topic in full."""
    return shapes.TopicShape(
        **_summary(row, live),
        partitions=partitions(row.partitions, live),
        policy=policy(row.verdict),
        placed_on=row.placed_on,
        as_of=as_of(moment),
    )


def _summary(row: TopicRow, live: Live) -> dict[str, Any]:
    by = row.created_by
    return {
        "name": row.name,
        "topic_id": topic_id_text(row.topic_id),
        "status": topics.status(row, live),
        "num_partitions": len(row.partitions),
        "replication_factor": len(row.partitions[0].replicas),
        "under_replicated_partitions": sum(map(topics.is_under_replicated, row.partitions)),
        "offline_partitions": sum(topics.is_offline(one, live) for one in row.partitions),
        "placeholders": topics.placeholders(row),
        "configs": dict(row.configs),
        "created_at": iso(row.created_at_ms),
        "created_at_ms": row.created_at_ms,
        "created_offset": row.created_offset,
        "created_by": None if by is None else shapes.CreatedByShape(*msgspec.structs.astuple(by)),
        "ready_at": maybe_iso(row.ready_at_ms),
        "ready_at_ms": row.ready_at_ms,
    }


def policy(verdict: Verdict | None) -> shapes.PolicyShape | None:
    """A policy's verdict, null where none was set."""
    if verdict is None:
        return None
    observed = tuple(shapes.ObservationShape(one.rule, one.message) for one in verdict.observed)
    return shapes.PolicyShape(verdict.outcome, verdict.policy, verdict.rule, verdict.message, observed)


def created(answer: Answer, live: Live, validate_only: bool) -> shapes.CreatedShape:
    """The answer to a create that succeeded, or would have."""
    made = answer.topic
    assert made is not None, "a create that was not refused shows its topic"
    return shapes.CreatedShape(
        request_id=answer.request_id,
        error=error_word(answer.code),
        code=answer.code,
        message=answer.message,
        name=made.name,
        topic_id=None if validate_only else topic_id_text(made.topic_id),
        validate_only=validate_only,
        status="validated" if validate_only else "pending" if answer.code else "ready",
        num_partitions=len(made.partitions),
        replication_factor=made.replication_factor,
        configs=dict(made.configs),
        partitions=partitions(made.partitions, live),
        waited_ms=answer.waited_ms,
    )


def deleted(answer: Answer, known: Topic | None) -> shapes.DeletedShape:
    """The answer to a delete that succeeded; `known` is the topic as it was when that was asked for: where a cluster
    deletes it, the answer comes when it is gone."""
    gone = answer.topic or known
    assert gone is not None, "a delete that succeeded found what it deleted"
    return shapes.DeletedShape(
        request_id=answer.request_id,
        error=error_word(answer.code),
        code=answer.code,
        message=answer.message,
        name=answer.topic_name,
        topic_id=topic_id_text(gone.topic_id),
    )


def refusal(answer: Answer) -> shapes.ErrorShape:
    """The answer to an ask that was refused."""
    return shapes.ErrorShape(
        error=error_word(answer.code),
        code=answer.code,
        message=answer.message,
        request_id=answer.request_id,
        rule=answer.rule,
    )


def request(row: RequestRow) -> shapes.RequestShape:
    """A request."""
    return shapes.RequestShape(
        request_id=row.request_id,
        api=row.api,
        api_version=row.api_version,
        principal=row.principal,
        client_id=row.client_id,
        asked_at=iso(row.asked_at_ms),
        asked_at_ms=row.asked_at_ms,
        asked_offset=row.asked_offset,
        timeout_ms=row.timeout_ms,
        deadline_at=maybe_iso(row.deadline_ms),
        deadline_at_ms=row.deadline_ms,
        topics=tuple(map(_request_topic, row.topics)),
    )


def _request_topic(row: RequestTopicRow) -> shapes.RequestTopicShape:
    return shapes.RequestTopicShape(
        topic=row.topic,
        topic_id=None if row.topic_id is None else topic_id_text(row.topic_id),
        status=row.status,
        error=None if row.code is None else error_word(row.code),
        code=row.code,
        message=row.message,
        rule=row.rule,
        policy=policy(row.verdict),
        waited_ms=row.waited_ms,
        answered_at=maybe_iso(row.answered_at_ms),
        answered_at_ms=row.answered_at_ms,
        wanted=_wanted(row),
        asked=None if row.asked is None else _asked(row.asked),
    )


def _wanted(row: RequestTopicRow) -> str:
    if row.change is not None:
        return change_in_words(row.change)
    assert row.asked is not None, "a request asks for a create or for a change"
    return f"to be created with {create_in_words(row.asked)}"


def _asked(asked: Asked) -> shapes.AskedShape:
    manual = {str(one.partition): one.replicas for one in asked.assignments}
    return shapes.AskedShape(asked.num_partitions, asked.replication_factor, manual, dict(asked.configs))


def brokers(row: ClusterRow, moment: AsOf) -> shapes.BrokersShape:
    """The brokers and the settings."""
    by_id = tuple(_broker(row.brokers[broker_id]) for broker_id in sorted(row.brokers))
    return shapes.BrokersShape(by_id, tuple(sorted(row.live)), dict(row.settings), row.release, as_of(moment))


def _broker(row: BrokerRow) -> shapes.BrokerShape:
    return shapes.BrokerShape(
        broker_id=row.broker_id,
        fenced=row.fenced,
        rack=row.rack,
        endpoints=tuple(shapes.EndpointShape(one.name, one.host, one.port) for one in row.endpoints),
        broker_epoch=row.broker_epoch,
        incarnation=row.incarnation,
        registered_at=iso(row.registered_at_ms),
        registered_at_ms=row.registered_at_ms,
        changed_at=iso(row.changed_at_ms),
        changed_at_ms=row.changed_at_ms,
        changed_offset=row.changed_offset,
        reason=row.reason,
    )


def event(record: Recorded, partition: int | None = None) -> shapes.EventShape:
    """An event with its fields."""
    return shapes.EventShape(
        record.offset,
        iso(record.at_ms),
        record.at_ms,
        type(record.event).__name__,
        in_words(record.event),
        shapes.CauseShape(record.cause.command, record.cause.request_id),
        _fields(without_secrets(record.event)),
        partition,
    )


def events(page: Listed, end: Place) -> shapes.EventsShape:
    """A page of events."""
    shown = tuple(event(record, partition) for partition, record in page.events)
    if len(end) == 1 or page.next_place is None:
        return shapes.EventsShape(shown, None if page.next_place is None else page.next_place[0], sum(end))
    return shapes.EventsShape(shown, None, sum(end), cursor_of(page.next_place))


def _fields(fact: msgspec.Struct) -> dict[str, Any]:
    return {name: _plain(name, getattr(fact, name)) for name in fact.__struct_fields__}


def _nested(fact: msgspec.Struct) -> dict[str, Any]:
    """A struct in an event; one that stands for a kind of several says which under `kind`."""
    tag = fact.__struct_config__.tag
    return _fields(fact) if tag is None else {"kind": tag, **_fields(fact)}


def _plain(name: str, value: object) -> object:
    if isinstance(value, bytes):
        return HIDDEN.decode() if value == HIDDEN else topic_id_text(value)
    if not isinstance(value, tuple):
        return _nested(value) if isinstance(value, msgspec.Struct) else value
    if name in _PAIRS:
        return dict(value)
    return [_nested(one) if isinstance(one, msgspec.Struct) else one for one in value]


def explanation(told: Explanation) -> shapes.ExplanationShape:
    """A chain of events in words."""
    return shapes.ExplanationShape(
        subject=told.subject,
        kind=told.kind,
        summary=told.summary,
        steps=tuple(map(_step, told.steps)),
        omitted=told.omitted,
    )


def _step(step: Step) -> shapes.StepShape:
    return shapes.StepShape(
        offset=step.offset,
        at=iso(step.at_ms),
        at_ms=step.at_ms,
        after_ms=step.after_ms,
        event=step.event,
        text=step.text,
        because=step.because,
        cause=shapes.CauseShape(step.command, step.request_id),
        partition=step.partition,
    )
