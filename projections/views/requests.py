"""A client's request as a row, with its outcome for each topic. A pure fold over its events.

Dry runs and requests that change nothing are not recorded, so they have no row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec.structs import replace

from controller.machine.errors import ErrorCode
from events import access, catalog
from events.catalog import Assignment, Recorded, Verdict
from events.external_decision import FOLLOW, external_decision
from events.names import Offset, RequestId, TopicId, TopicName
from projections.views.topics import CannotFold

RequestStatus = Literal[
    "requested",
    "waiting",
    "created",
    "timed-out",
    "failed",
    "rejected",
    "deleted",
    "partitions-added",
    "configs-changed",
]
"""`waiting`: created, but not answered. `timed-out`: created, but answered before it was ready. `failed`: created, but
answered with another error, such as a deletion meanwhile."""


class Requested(msgspec.Struct, frozen=True, gc=False):
    """The parameters of a create; -1 means the default, or that assignments give the count."""

    num_partitions: int
    replication_factor: int
    assignments: tuple[Assignment, ...]
    configs: tuple[tuple[str, str | None], ...]


Change = catalog.PartitionsWanted | catalog.DeletionWanted | catalog.ConfigsWanted


class RequestTopicRow(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a request for one topic.

    `code` and `message` are Kafka's; `code` is None until the request is answered. `rule` is the one that refused it,
    `verdict` is None if no policy ran, and `waited_ms` is the time that the client waited for the answer.
    """

    topic: TopicName
    status: RequestStatus
    offset: Offset
    """That of its newest event."""
    topic_id: TopicId | None = None
    requested: Requested | None = None
    change: Change | None = None
    """A create has `requested`, any other request `change`."""
    code: int | None = None
    message: str = ""
    rule: str = ""
    verdict: Verdict | None = None
    waited_ms: int | None = None
    answered_at_ms: int | None = None


class RequestRow(msgspec.Struct, frozen=True, gc=False):
    """A request. `deadline_ms` is None if it does not wait."""

    request_id: RequestId
    api: str
    api_version: int
    principal: str
    client_id: str | None
    requested_at_ms: int
    requested_offset: Offset
    timeout_ms: int | None = None
    deadline_ms: int | None = None
    topics: tuple[RequestTopicRow, ...] = ()
    host: str = ""
    """The client's address; empty if the log does not hold it."""


def request_row(records: Iterable[Recorded]) -> RequestRow | None:
    """The request with these events; None without events. Raises CannotFold."""
    header: RequestRow | None = None
    topics: dict[TopicName, RequestTopicRow] = {}
    for record in records:
        if header is None:
            header = _header(record)
        topic: TopicName | None = getattr(record.event, "topic", None)
        if topic is not None and header.api != FOLLOW:  # imported records are no request for a topic
            topics[topic] = fold_request_topic(topics.get(topic), record)
    return None if header is None else replace(header, topics=tuple(topics.values()))


def fold_request_topic(row: RequestTopicRow | None, record: Recorded) -> RequestTopicRow:
    """The outcome of a request for a topic after one more event. Raises CannotFold."""
    match record.event:
        case catalog.CreateRequested() as e:
            requested = Requested(e.num_partitions, e.replication_factor, e.assignments, e.configs)
            return RequestTopicRow(e.topic, "requested", record.offset, topic_id=e.topic_id, requested=requested)
        case catalog.CreateRejected() as e:
            return replace(_known(row, record), status="rejected", rule=e.rule, verdict=e.verdict, offset=record.offset)
        case catalog.TopicCreated() as e:
            return replace(_known(row, record), status="waiting", verdict=e.verdict, offset=record.offset)
        case catalog.CreateAnswered() as e:
            known = _known(row, record)
            answered = _answered(known, record, e.error_code, e.message)
            return replace(answered, status=_outcome(known, e.error_code), waited_ms=e.waited_ms)
        case catalog.ChangeCarriedOut() as e:
            answered = _answered(_known(row, record), record, e.error_code, e.message)
            return replace(answered, status="rejected", rule="cluster") if e.error_code else answered
        case e if isinstance(e, _Change):
            return _changed(record, e)
        case _:
            raise CannotFold(record, "it belongs to no request")


_Change = catalog.PartitionsAdded | catalog.TopicDeleted | catalog.TopicConfigsChanged | catalog.ChangeRejected
_OfCluster = (
    access.AclsCreated
    | access.AclsDeleted
    | access.QuotasChanged
    | access.ScramCredentialSet
    | access.ScramCredentialRemoved
    | catalog.ResourceConfigsChanged
)


def _header(record: Recorded) -> RequestRow:
    event = record.event
    decided = external_decision(record.cause)
    if decided is not None:
        return RequestRow(decided.request_id, FOLLOW, 0, decided.leader, None, record.at_ms, record.offset)
    wait: tuple[int | None, int | None] = (None, None)
    if isinstance(event, catalog.CreateRequested):
        api, version, host = event.api, event.api_version, event.host
        wait = (event.timeout_ms, event.deadline_ms if event.timeout_ms > 0 else None)
    elif isinstance(event, _OfCluster):
        api, version, host = record.cause.command, 0, event.host
    elif isinstance(event, _Change):
        api, version, host = event.asked.api, event.asked.api_version, event.asked.host
    else:
        raise CannotFold(record, "no request begins so")
    who = (event.principal, event.client_id)
    return RequestRow(event.request_id, api, version, *who, record.at_ms, record.offset, *wait, host=host)


def _outcome(row: RequestTopicRow, error_code: int) -> RequestStatus:
    if row.status == "rejected":
        return "rejected"
    if error_code == 0:
        return "created"
    return "timed-out" if error_code == ErrorCode.REQUEST_TIMED_OUT else "failed"


def _answered(row: RequestTopicRow, record: Recorded, code: int, message: str) -> RequestTopicRow:
    return replace(row, offset=record.offset, code=code, message=message, answered_at_ms=record.at_ms)


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
        case catalog.ChangeRejected():
            return replace(done, code=event.error_code, message=event.message, rule=event.rule)
        case catalog.TopicDeleted():
            return replace(done, status="deleted", topic_id=event.topic_id)
        case catalog.PartitionsAdded():
            return replace(done, status="partitions-added")
        case catalog.TopicConfigsChanged():
            return replace(done, status="configs-changed")


def _known(row: RequestTopicRow | None, record: Recorded) -> RequestTopicRow:
    if row is None:
        raise CannotFold(record, "no event requests the topic")
    return row
