"""Conversions of rows, events and answers to views."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, TypeVar

import msgspec

from controller.machine.decision import Answer
from controller.machine.state import Topic
from events.catalog import Partition, Recorded, Verdict
from events.codec import HIDDEN, without_secrets
from events.names import BrokerId
from projections.text.moments import iso
from projections.text.names import error_word, topic_id_text
from projections.text.wording import change_text, create_text, recorded_text
from projections.views import json_types, topics
from projections.views.brokers import BrokerRow, ClusterRow
from projections.views.requests import Requested, RequestRow, RequestTopicRow
from projections.views.topics import TopicRow

Live = Collection[BrokerId]
_View = TypeVar("_View", bound=msgspec.Struct)

_PAIRS = frozenset(("configs", "settings", "before"))
"""Fields of events that hold pairs of names and values."""


def maybe_iso(at_ms: int | None) -> str | None:
    """A time as text; None without one."""
    return None if at_ms is None else iso(at_ms)


def view_of(kind: type[_View], source: msgspec.Struct, **given: object) -> _View:
    """A view with the given fields. It copies every other field from `source`, and formats `…_at` from `…_at_ms`.

    Types are not checked here: a test decodes every view as itself.
    """
    for name in kind.__struct_fields__:
        if name not in given:
            is_time = name == "at" or name.endswith("_at")
            given[name] = maybe_iso(getattr(source, f"{name}_ms")) if is_time else getattr(source, name)
    return kind(**given)


def as_of(
    offset: int, at_ms: int | None, ends: tuple[int, ...] = (), partition: int | None = None
) -> json_types.AsOfView:
    """The point in time of a response, of which these are the newest event's offset and time."""
    return json_types.AsOfView(offset, maybe_iso(at_ms), at_ms, partition, ends)


def partitions(of_topic: Iterable[Partition], live: Live) -> tuple[json_types.PartitionView, ...]:
    """Partitions ordered by id."""
    return tuple(
        view_of(json_types.PartitionView, one, partition=number, offline=topics.offline_replicas(one, live))
        for number, one in enumerate(of_topic)
    )


def topic_summary(row: TopicRow, live: Live) -> json_types.TopicSummary:
    """A topic in a list."""
    return json_types.TopicSummary(
        name=row.name,
        created_at=iso(row.created_at_ms),
        created_at_ms=row.created_at_ms,
        created_offset=row.created_offset,
        ready_at=maybe_iso(row.ready_at_ms),
        ready_at_ms=row.ready_at_ms,
        **_of_topic(row, live),
    )


def topic(row: TopicRow, live: Live, moment: json_types.AsOfView) -> json_types.TopicView:
    """A topic with its partitions."""
    return view_of(
        json_types.TopicView,
        row,
        **_of_topic(row, live),
        partitions=partitions(row.partitions, live),
        policy=policy(row.verdict),
        as_of=moment,
    )


def _of_topic(row: TopicRow, live: Live) -> dict[str, Any]:
    """The fields of a topic's view that differ from its row's, or are derived."""
    health = topics.health(row, live)
    return {
        "topic_id": topic_id_text(row.topic_id),
        "status": health.status,
        "num_partitions": len(row.partitions),
        "replication_factor": len(row.partitions[0].replicas),
        "under_replicated_partitions": health.under_replicated,
        "offline_partitions": health.offline,
        "placeholders": health.placeholders,
        "configs": dict(row.configs),
        "created_by": row.created_by,
    }


def policy(verdict: Verdict | None) -> json_types.PolicyView | None:
    """The verdict of the policies; None if none was configured."""
    if verdict is None:
        return None
    observed = tuple(view_of(json_types.ObservationView, one) for one in verdict.observed)
    return view_of(json_types.PolicyView, verdict, observed=observed)


def created(answer: Answer, live: Live, validate_only: bool) -> json_types.CreatedView:
    """The response to a create that succeeded, or would succeed."""
    made = answer.topic
    assert made is not None, "a create that was not refused shows its topic"
    return view_of(
        json_types.CreatedView,
        answer,
        error=error_word(answer.code),
        name=made.name,
        topic_id=None if validate_only else topic_id_text(made.topic_id),
        validate_only=validate_only,
        status="validated" if validate_only else "pending" if answer.code else "ready",
        num_partitions=len(made.partitions),
        replication_factor=made.replication_factor,
        configs=dict(made.configs),
        partitions=partitions(made.partitions, live),
    )


def altered(answer: Answer, known: Topic | None, validate_only: bool) -> json_types.AlteredView:
    """The response to a change that succeeded, or would succeed. `known` is the current topic: an answer of the target
    cluster comes without it."""
    topic = answer.topic or known
    assert topic is not None, "a change that succeeded found its topic"
    return view_of(
        json_types.AlteredView,
        answer,
        error=error_word(answer.code),
        name=topic.name,
        topic_id=topic_id_text(topic.topic_id),
        validate_only=validate_only,
        num_partitions=len(topic.partitions),
        configs=dict(topic.configs),
    )


def deleted(answer: Answer, known: Topic | None) -> json_types.DeletedView:
    """The response to a delete that succeeded. `known` is the topic at the time of the request: the target cluster
    answers when the topic is gone."""
    gone = answer.topic or known
    assert gone is not None, "a delete that succeeded found its topic"
    error, topic_id = error_word(answer.code), topic_id_text(gone.topic_id)
    return view_of(json_types.DeletedView, answer, error=error, name=answer.topic_name, topic_id=topic_id)


def refusal(answer: Answer) -> json_types.ErrorView:
    """The response to a refused request."""
    return view_of(json_types.ErrorView, answer, error=error_word(answer.code))


def problem(error: json_types.ErrorView, status: int) -> json_types.ProblemView:
    """An error as an HTTP response (RFC 9457) with this status."""
    return view_of(
        json_types.ProblemView,
        error,
        type=f"urn:kafka:error:{error.error}",
        title=error.error.replace("_", " ").capitalize(),
        status=status,
        detail=error.message,
        instance=f"/v1/requests/{error.request_id}" if error.request_id else "",
    )


def request(row: RequestRow) -> json_types.RequestView:
    """A request and its outcome for each topic."""
    deadline = {"deadline_at": maybe_iso(row.deadline_ms), "deadline_at_ms": row.deadline_ms}
    return view_of(json_types.RequestView, row, topics=tuple(map(_request_topic, row.topics)), **deadline)


def _request_topic(row: RequestTopicRow) -> json_types.RequestTopicView:
    return view_of(
        json_types.RequestTopicView,
        row,
        topic_id=None if row.topic_id is None else topic_id_text(row.topic_id),
        error=None if row.code is None else error_word(row.code),
        policy=policy(row.verdict),
        wanted=_wanted(row),
        requested=None if row.requested is None else _requested(row.requested),
    )


def _wanted(row: RequestTopicRow) -> str:
    if row.change is not None:
        return change_text(row.change)
    assert row.requested is not None, "a request is for a create or for a change"
    return f"to be created with {create_text(row.requested)}"


def _requested(row: Requested) -> json_types.RequestedView:
    manual = {str(one.partition): one.replicas for one in row.assignments}
    return view_of(json_types.RequestedView, row, assignments=manual, configs=dict(row.configs))


def brokers(row: ClusterRow, moment: json_types.AsOfView) -> json_types.BrokersView:
    """The brokers and the settings."""
    by_id = tuple(broker(row.brokers[broker_id]) for broker_id in sorted(row.brokers))
    return json_types.BrokersView(by_id, tuple(sorted(row.live)), dict(row.settings), row.release, moment)


def broker(row: BrokerRow) -> json_types.BrokerView:
    """A broker."""
    endpoints = tuple(view_of(json_types.EndpointView, one) for one in row.endpoints)
    return view_of(json_types.BrokerView, row, endpoints=endpoints)


def event(record: Recorded, partition: int | None = None) -> json_types.EventView:
    """An event with its fields; secrets are hidden."""
    return view_of(
        json_types.EventView,
        record,
        type=type(record.event).__name__,
        text=recorded_text(record),
        cause=view_of(json_types.CauseView, record.cause),
        fields=_fields(without_secrets(record.event)),
        partition=partition,
    )


def _fields(fact: msgspec.Struct) -> dict[str, object]:
    return {name: _plain(name, getattr(fact, name)) for name in fact.__struct_fields__}


def _nested(fact: msgspec.Struct) -> dict[str, object]:
    """A struct within an event; a tagged one has its tag as `kind`."""
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
