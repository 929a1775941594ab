"""Rows, events and answers to the JSON structs of `json_types`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import astuple

from controller.machine.decision import Answer
from controller.machine.state import Topic
from events.catalog import Partition, Recorded, Verdict
from events.hiding import HIDDEN, without_secrets
from events.names import BrokerId
from projections.queries.explain import Explanation, Step
from projections.queries.listing import Listed, Place, cursor_of
from projections.queries.query import AsOf
from projections.text.moments import iso
from projections.text.names import error_word, topic_id_text
from projections.text.wording import change_in_words, create_in_words, recorded_in_words
from projections.views import json_types, topics
from projections.views.brokers import BrokerRow, ClusterRow
from projections.views.requests import Requested, RequestRow, RequestTopicRow
from projections.views.topics import TopicRow

Live = Collection[BrokerId]
_Shape = TypeVar("_Shape", bound=msgspec.Struct)

_PAIRS = frozenset(("configs", "settings", "before"))
"""Fields of events that hold pairs of names and values."""


def maybe_iso(at_ms: int | None) -> str | None:
    """A time as text, null where there is none."""
    return None if at_ms is None else iso(at_ms)


def view_of(kind: type[_Shape], source: msgspec.Struct, **given: object) -> _Shape:
    """A view_of with what is given; every other field is the source's of that name, and an `…_at` its `…_at_ms` as text.

    Nothing checks the types: that every view_of reads back as itself, tests see to.
    """
    for name in kind.__struct_fields__:
        if name not in given:
            is_time = name == "at" or name.endswith("_at")
            given[name] = maybe_iso(getattr(source, f"{name}_ms")) if is_time else getattr(source, name)
    return kind(**given)


def as_of(moment: AsOf) -> json_types.AsOfView:
    """The moment that an answer shows."""
    return view_of(json_types.AsOfView, moment)


def partitions(all_of_them: Iterable[Partition], live: Live) -> tuple[json_types.PartitionView, ...]:
    """Partitions in the order of their ids."""
    return tuple(
        view_of(json_types.PartitionView, one, partition=number, offline=topics.offline_replicas(one, live))
        for number, one in enumerate(all_of_them)
    )


def topic_summary(row: TopicRow, live: Live) -> json_types.TopicSummary:
    """A topic for a list."""
    return json_types.TopicSummary(
        name=row.name,
        created_at=iso(row.created_at_ms),
        created_at_ms=row.created_at_ms,
        created_offset=row.created_offset,
        ready_at=maybe_iso(row.ready_at_ms),
        ready_at_ms=row.ready_at_ms,
        **_of_topic(row, live),
    )


def topic(row: TopicRow, live: Live, moment: AsOf) -> json_types.TopicView:
    """A topic in full."""
    return view_of(
        json_types.TopicView,
        row,
        **_of_topic(row, live),
        partitions=partitions(row.partitions, live),
        policy=policy(row.verdict),
        as_of=as_of(moment),
    )


def _of_topic(row: TopicRow, live: Live) -> dict[str, Any]:
    """What a topic's view_of has beside the fields of its row."""
    by, stands = row.created_by, topics.standing(row, live)
    return {
        "topic_id": topic_id_text(row.topic_id),
        "status": stands.status,
        "num_partitions": len(row.partitions),
        "replication_factor": len(row.partitions[0].replicas),
        "under_replicated_partitions": stands.under_replicated,
        "offline_partitions": stands.offline,
        "placeholders": stands.placeholders,
        "configs": dict(row.configs),
        "created_by": None if by is None else json_types.CreatedByShape(*astuple(by)),
    }


def policy(verdict: Verdict | None) -> json_types.PolicyShape | None:
    """A policy's verdict, null where none was set."""
    if verdict is None:
        return None
    observed = tuple(view_of(json_types.ObservationShape, one) for one in verdict.observed)
    return view_of(json_types.PolicyShape, verdict, observed=observed)


def created(answer: Answer, live: Live, validate_only: bool) -> json_types.CreatedView:
    """The answer to a create that succeeded, or would have."""
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
    """The answer to a change that succeeded, or would have; `known` is the topic as it is now: where a cluster carries
    changes out, the answer comes without it."""
    topic = answer.topic or known
    assert topic is not None, "a change that succeeded found what it changed"
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
    """The answer to a delete that succeeded; `known` is the topic as it was when the request came: where a cluster
    deletes it, the answer comes when it is gone."""
    gone = answer.topic or known
    assert gone is not None, "a delete that succeeded found what it deleted"
    error, topic_id = error_word(answer.code), topic_id_text(gone.topic_id)
    return view_of(json_types.DeletedView, answer, error=error, name=answer.topic_name, topic_id=topic_id)


def refusal(answer: Answer) -> json_types.ErrorView:
    """The answer to a request that was refused."""
    return view_of(json_types.ErrorView, answer, error=error_word(answer.code))


def problem(error: json_types.ErrorView, status: int) -> json_types.ProblemView:
    """An error as HTTP answers it, with its status."""
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
    """A request with the outcome of each of its topics."""
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
        asked=None if row.asked is None else _requested(row.asked),
    )


def _wanted(row: RequestTopicRow) -> str:
    if row.change is not None:
        return change_in_words(row.change)
    assert row.asked is not None, "a request is for a create or for a change"
    return f"to be created with {create_in_words(row.asked)}"


def _requested(row: Requested) -> json_types.RequestedShape:
    manual = {str(one.partition): one.replicas for one in row.assignments}
    return view_of(json_types.RequestedShape, row, assignments=manual, configs=dict(row.configs))


def brokers(row: ClusterRow, moment: AsOf) -> json_types.BrokersView:
    """The brokers and the settings."""
    by_id = tuple(broker(row.brokers[broker_id]) for broker_id in sorted(row.brokers))
    return json_types.BrokersView(by_id, tuple(sorted(row.live)), dict(row.settings), row.release, as_of(moment))


def broker(row: BrokerRow) -> json_types.BrokerView:
    """A broker."""
    endpoints = tuple(view_of(json_types.EndpointShape, one) for one in row.endpoints)
    return view_of(json_types.BrokerView, row, endpoints=endpoints)


def event(record: Recorded, partition: int | None = None) -> json_types.EventView:
    """An event with its fields."""
    return view_of(
        json_types.EventView,
        record,
        type=type(record.event).__name__,
        text=recorded_in_words(record),
        cause=view_of(json_types.CauseView, record.cause),
        fields=_fields(without_secrets(record.event)),
        partition=partition,
    )


def events(page: Listed, end: Place, *, newest: bool = False) -> json_types.EventsView:
    """A page of events."""
    shown = tuple(event(record, partition) for partition, record in page.events)
    if page.next_place is None:
        return json_types.EventsView(shown, None, sum(end))
    following = page.next_place[0] if len(end) == 1 and not newest else None
    return json_types.EventsView(shown, following, sum(end), cursor_of(page.next_place))


def _fields(fact: msgspec.Struct) -> dict[str, object]:
    return {name: _plain(name, getattr(fact, name)) for name in fact.__struct_fields__}


def _nested(fact: msgspec.Struct) -> dict[str, object]:
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


def explanation(chain: Explanation) -> json_types.ExplanationView:
    """A chain of events in words."""
    return view_of(json_types.ExplanationView, chain, steps=tuple(map(_step, chain.steps)))


def _step(step: Step) -> json_types.StepView:
    return view_of(json_types.StepView, step, cause=view_of(json_types.CauseView, step))
