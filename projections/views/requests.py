"""The view of a client's request with its outcome for each topic, and the pure fold that computes it from events.

Dry runs and requests that change nothing are not recorded, so they have no view.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from controller.machine.apply import CannotApply
from controller.store.request_index import BEGINS, CHANGES, answer_outcome
from events import catalog
from events.catalog import Recorded
from events.external_decision import FOLLOW, external_decision
from events.names import TopicName
from projections.text.names import RequestStatus, error_name, topic_id_text
from projections.text.wording import change_text, create_text
from projections.views.topics import PolicyView, policy_view
from projections.views.view import AsOfView, ErrorView, times, view_of


class RequestedView(msgspec.Struct, frozen=True):
    """The parameters of a create; -1 means the default, or that assignments give the count."""

    num_partitions: int
    replication_factor: int
    assignments: Mapping[str, tuple[int, ...]]
    configs: dict[str, str | None]


class RequestTopicView(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a request for one topic; `error` and `code` are Kafka's, and null until the request is
    answered."""

    topic: TopicName
    status: RequestStatus
    offset: int
    """The offset of the newest event of the request for this topic."""
    topic_id: str | None = None
    error: str | None = None
    code: int | None = None
    message: str = ""
    rule: str = ""
    """The rule that refused the request."""
    policy: PolicyView | None = None
    waited_ms: int | None = None
    """The time that the client waited for the answer."""
    answered_at: str | None = None
    answered_at_ms: int | None = None
    change: str
    """The requested change as a sentence."""
    requested: RequestedView | None = None
    """The parameters of a create; null for a change."""


class RequestView(msgspec.Struct, frozen=True, kw_only=True):
    """A request and its outcome for each topic. `deadline_at` is null for a request that does not wait."""

    request_id: str
    api: str
    api_version: int
    principal: str
    client_id: str | None
    host: str
    """The client's address; empty if the log does not hold it."""
    requested_at: str
    requested_at_ms: int
    requested_offset: int
    timeout_ms: int | None
    deadline_at: str | None
    deadline_at_ms: int | None
    topics: tuple[RequestTopicView, ...] = ()


class RequestSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A request in a list. `topics` has the first ten of `num_topics`. `outcomes` counts the topics by status, and has
    `done` for a request without topics. `rules` are those that refused a topic.

    `counted` is true for an entry that stands for several refusals, which are recorded only as a number. There is then
    no request of this id, and the event at `requested_offset` has the details.
    """

    request_id: str
    api: str
    principal: str
    client_id: str | None
    host: str
    """The client's address; empty if unknown."""
    requested_at: str
    requested_at_ms: int
    requested_offset: int
    topics: tuple[str, ...]
    num_topics: int
    outcomes: dict[str, int]
    rules: tuple[str, ...]
    counted: bool


class RequestsView(msgspec.Struct, frozen=True):
    """A page of requests, the newest first; `next_cursor` is the `cursor` of the next page, null on the last."""

    requests: tuple[RequestSummary, ...]
    next_cursor: str | None
    as_of: AsOfView


class HeldRequestView(msgspec.Struct, frozen=True, kw_only=True):
    """A request for one topic that waits for approval. `rules` are those that hold it, with the principals (as
    patterns) and roles that may approve: an approver is listed by each. `may_approve` is true for such a caller."""

    request_id: str
    topic: str
    change: str
    """The requested change as a sentence."""
    principal: str
    client_id: str | None
    host: str
    rules: dict[str, tuple[str, ...]]
    expires_at: str
    expires_at_ms: int
    may_approve: bool


class HeldRequestsView(msgspec.Struct, frozen=True):
    """The requests that wait for approval, the first to expire first."""

    requests: tuple[HeldRequestView, ...]


class ApprovalView(msgspec.Struct, frozen=True):
    """A decision on the request `held`. After an approval `request_id` made the changes of `topics`; one with an error
    waits on."""

    request_id: str
    held: str
    topics: dict[str, ErrorView] = {}


def held_view(held: catalog.ApprovalRequested, may_approve: bool) -> HeldRequestView:
    given = {"topic": held.name, "change": change_text(held.request.change), "host": held.request.host}
    return view_of(HeldRequestView, held, **given, rules=dict(held.rules), may_approve=may_approve)


def request_view(records: Iterable[Recorded]) -> RequestView | None:
    """The request with these events; None without events. Raises CannotApply."""
    header: RequestView | None = None
    topics: dict[TopicName, RequestTopicView] = {}
    for record in records:
        if header is None:
            header = _header(record)
        topic: TopicName | None = getattr(record.event, "topic", None)
        if topic is not None and header.api != FOLLOW:  # imported records do not request a topic
            topics[topic] = fold_request_topic(topics.get(topic), record)
    return None if header is None else replace(header, topics=tuple(topics.values()))


def _header(record: Recorded) -> RequestView:
    event: Any = record.event
    decided = external_decision(record.cause)
    timeout_ms: int | None = getattr(event, "timeout_ms", None)
    deadline_ms: int | None = None
    if decided is not None:
        who: tuple[str, str | None, str] = (decided.leader, None, "")
        request_id, api, version, timeout_ms = decided.request_id, FOLLOW, 0, None
    elif type(event) in BEGINS:
        request = getattr(event, "request", event)
        who, request_id = (event.principal, event.client_id, request.host), event.request_id
        api, version = getattr(request, "api", record.cause.command), getattr(request, "api_version", 0)
        deadline_ms = event.deadline_ms if timeout_ms is not None and timeout_ms > 0 else None
    else:
        raise CannotApply(record, "no request begins with it")
    return RequestView(
        request_id=request_id,
        api=api,
        api_version=version,
        principal=who[0],
        client_id=who[1],
        host=who[2],
        requested_offset=record.offset,
        timeout_ms=timeout_ms,
        **times(requested=record.at_ms, deadline=deadline_ms),
    )


def fold_request_topic(view: RequestTopicView | None, record: Recorded) -> RequestTopicView:
    """The outcome of a request for a topic after one more event. Raises CannotApply."""
    match record.event:
        case catalog.CreateRequested() as e:
            manual = {str(one.partition): one.replicas for one in e.assignments}
            return RequestTopicView(
                topic=e.topic,
                status="requested",
                offset=record.offset,
                topic_id=topic_id_text(e.topic_id),
                change=f"to be created with {create_text(e)}",
                requested=RequestedView(e.num_partitions, e.replication_factor, manual, dict(e.configs)),
            )
        case catalog.CreateRejected() as e:
            policy = policy_view(e.verdict)
            return replace(_known(view, record), status="rejected", rule=e.rule, policy=policy, offset=record.offset)
        case catalog.TopicCreated() as e:
            return replace(_known(view, record), status="waiting", policy=policy_view(e.verdict), offset=record.offset)
        case catalog.CreateAnswered() as e:
            known = _known(view, record)
            status = known.status if known.status == "rejected" else answer_outcome(e.error_code)
            return replace(_answered(known, record, e.error_code, e.message), status=status, waited_ms=e.waited_ms)
        case catalog.ChangeCarriedOut() as e:
            answered = _answered(_known(view, record), record, e.error_code, e.message)
            return replace(answered, status="rejected", rule="cluster") if e.error_code else answered
        case catalog.RulesObserved():
            return _known(view, record)
        case e if type(e) in CHANGES:
            return _changed(record, e)
        case _:
            raise CannotApply(record, "it belongs to no request")


def _answered(view: RequestTopicView, record: Recorded, code: int, message: str) -> RequestTopicView:
    answered = {"error": error_name(code), "code": code, "message": message, **times(answered=record.at_ms)}
    return replace(view, offset=record.offset, **answered)


def _changed(record: Recorded, event: Any) -> RequestTopicView:
    change, topic_id = change_text(event.request.change), getattr(event, "topic_id", None)
    done = RequestTopicView(
        topic=event.topic,
        status=CHANGES[type(event)],  # type: ignore[arg-type]
        offset=record.offset,
        topic_id=None if topic_id is None else topic_id_text(topic_id),
        rule=getattr(event, "rule", ""),
        waited_ms=0,
        change=change,
    )
    return _answered(done, record, getattr(event, "error_code", 0), getattr(event, "message", ""))


def _known(view: RequestTopicView | None, record: Recorded) -> RequestTopicView:
    if view is None:
        raise CannotApply(record, "no event requests the topic")
    return view
