"""One client's request as a row: who asked for what, and how each of its topics fared. A pure fold over its events.

A request that was not recorded has no row: dry runs, and asks that changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec.structs import replace

from events.access import AclsCreated, AclsDeleted, QuotasChanged, ScramCredentialRemoved, ScramCredentialSet
from events.catalog import (
    Assignment,
    ChangeCarriedOut,
    ChangeRejected,
    ConfigsWanted,
    CreateAnswered,
    CreateRejected,
    CreateRequested,
    DeletionWanted,
    PartitionsAdded,
    PartitionsWanted,
    Recorded,
    TopicConfigsChanged,
    TopicCreated,
    TopicDeleted,
    Verdict,
)
from events.names import Offset, RequestId, TopicId, TopicName
from projections.topics import CannotFold

REQUEST_TIMED_OUT = 7

RequestStatus = Literal[
    "asked", "waiting", "created", "timed-out", "failed", "rejected", "deleted", "partitions-added", "configs-changed"
]
"""`waiting`: created, its answer is due. `timed-out`: created and answered before it was complete. `failed`: created,
but answered with another error, such as that it was deleted meanwhile."""


class Asked(msgspec.Struct, frozen=True, gc=False):
    """What a create asked for; counts of -1 ask for defaults, or stand beside assignments."""

    num_partitions: int
    replication_factor: int
    assignments: tuple[Assignment, ...]
    configs: tuple[tuple[str, str | None], ...]


Change = PartitionsWanted | DeletionWanted | ConfigsWanted


class RequestTopicRow(msgspec.Struct, frozen=True, gc=False):
    """How one topic of a request fared.

    `code` and `message` are Kafka's, None while the answer is due; `rule` is the one that refused; `verdict` is None
    where no policy was asked; `waited_ms` is how long the client waited for the answer.
    """

    topic: TopicName
    status: RequestStatus
    offset: Offset
    """The newest of its events."""
    topic_id: TopicId | None = None
    asked: Asked | None = None
    """What a create asked for."""
    change: Change | None = None
    """What a change of the topic asked for."""
    code: int | None = None
    message: str = ""
    rule: str = ""
    verdict: Verdict | None = None
    waited_ms: int | None = None
    answered_at_ms: int | None = None


class RequestRow(msgspec.Struct, frozen=True, gc=False):
    """A request. `deadline_ms` is None for one that waits for nothing."""

    request_id: RequestId
    api: str
    api_version: int
    principal: str
    client_id: str | None
    asked_at_ms: int
    asked_offset: Offset
    timeout_ms: int | None = None
    deadline_ms: int | None = None
    topics: tuple[RequestTopicRow, ...] = ()


def request_row(records: Iterable[Recorded]) -> RequestRow | None:
    """The request that these events, all of one request, tell of; None if there are none. Raises CannotFold."""
    header: RequestRow | None = None
    topics: dict[TopicName, RequestTopicRow] = {}
    for record in records:
        if header is None:
            header = _header(record)
        topic: TopicName | None = getattr(record.event, "topic", None)
        if topic is not None:  # a request that concerns no topic has a header alone
            topics[topic] = fold_request_topic(topics.get(topic), record)
    return None if header is None else replace(header, topics=tuple(topics.values()))


def fold_request_topic(told: RequestTopicRow | None, record: Recorded) -> RequestTopicRow:
    """How a topic of a request fared, after one more of its events. Raises CannotFold."""
    match record.event:
        case CreateRequested() as e:
            asked = Asked(e.num_partitions, e.replication_factor, e.assignments, e.configs)
            return RequestTopicRow(e.topic, "asked", record.offset, topic_id=e.topic_id, asked=asked)
        case CreateRejected() as e:
            known = _known(told, record)
            return replace(known, status="rejected", rule=e.rule, verdict=e.verdict, offset=record.offset)
        case TopicCreated() as e:
            return replace(_known(told, record), status="waiting", verdict=e.verdict, offset=record.offset)
        case CreateAnswered() as e:
            return _answered(_known(told, record), record, e)
        case PartitionsAdded() | TopicDeleted() | TopicConfigsChanged() | ChangeRejected() as e:
            return _changed(record, e)
        case ChangeCarriedOut() as e:
            return _carried_out(_known(told, record), record, e)
        case _:
            raise CannotFold(record, "it belongs to no request")


_OfCluster = AclsCreated | AclsDeleted | QuotasChanged | ScramCredentialSet | ScramCredentialRemoved
_Change = PartitionsAdded | TopicDeleted | TopicConfigsChanged | ChangeRejected


def _header(record: Recorded) -> RequestRow:
    event = record.event
    if isinstance(event, CreateRequested):
        return _of_create(record, event)
    if isinstance(event, _OfCluster):
        api, who, client_id = record.cause.command, event.principal, event.client_id
        return RequestRow(event.request_id, api, 0, who, client_id, record.at_ms, record.offset)
    if not isinstance(event, _Change):
        raise CannotFold(record, "no request begins so")
    asked = event.asked
    return RequestRow(
        event.request_id,
        asked.api,
        asked.api_version,
        event.principal,
        event.client_id,
        record.at_ms,
        record.offset,
    )


def _of_create(record: Recorded, ask: CreateRequested) -> RequestRow:
    deadline_ms = ask.deadline_ms if ask.timeout_ms > 0 else None
    return RequestRow(
        ask.request_id,
        ask.api,
        ask.api_version,
        ask.principal,
        ask.client_id,
        record.at_ms,
        record.offset,
        ask.timeout_ms,
        deadline_ms,
    )


def _answered(told: RequestTopicRow, record: Recorded, e: CreateAnswered) -> RequestTopicRow:
    outcome: RequestStatus = "failed"
    if told.status == "rejected":
        outcome = "rejected"
    elif e.error_code == 0:
        outcome = "created"
    elif e.error_code == REQUEST_TIMED_OUT:
        outcome = "timed-out"
    return replace(
        told,
        status=outcome,
        offset=record.offset,
        code=e.error_code,
        message=e.message,
        waited_ms=e.waited_ms,
        answered_at_ms=record.at_ms,
    )


def _changed(record: Recorded, event: _Change) -> RequestTopicRow:
    done = RequestTopicRow(
        event.topic,
        "rejected",
        record.offset,
        change=event.asked.wanted,
        code=0,
        waited_ms=0,
        answered_at_ms=record.at_ms,
    )
    match event:
        case ChangeRejected():
            return replace(done, code=event.error_code, message=event.message, rule=event.rule)
        case TopicDeleted():
            return replace(done, status="deleted", topic_id=event.topic_id)
        case PartitionsAdded():
            return replace(done, status="partitions-added")
        case TopicConfigsChanged():
            return replace(done, status="configs-changed")


def _carried_out(told: RequestTopicRow, record: Recorded, e: ChangeCarriedOut) -> RequestTopicRow:
    """A change is answered once the cluster has carried it out, or refused to."""
    status: RequestStatus = "rejected" if e.error_code else told.status
    rule = "cluster" if e.error_code else told.rule
    return replace(
        told,
        status=status,
        offset=record.offset,
        code=e.error_code,
        message=e.message,
        rule=rule,
        answered_at_ms=record.at_ms,
    )


def _known(told: RequestTopicRow | None, record: Recorded) -> RequestTopicRow:
    if told is None:
        raise CannotFold(record, "the topic was not asked for")
    return told
