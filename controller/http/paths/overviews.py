"""Overviews as JSON: requests, timelines, summary, one broker, diff, policies, quorum."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import msgspec
from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, QueryParameter

from controller.controller_api import ControllerApi
from controller.http.errors import HttpRequest
from controller.http.permissions import Reader, SealedCursors, may_show_request
from controller.http.requests import At, Cursor, From, FromMoment, Limit, To, caller_of
from controller.machine.readiness import progress_text
from projections.queries import overviews
from projections.queries.differences import difference
from projections.queries.overviews import Window
from projections.queries.query import NotThere
from projections.queries.requests import RequestFilter
from projections.queries.topic_lists import Counted
from projections.text.moments import iso
from projections.views.events import TimelineView, TopicTimelineView
from projections.views.overviews import (
    BrokerDetailView,
    DifferenceView,
    PoliciesView,
    QuorumView,
    SummaryView,
    WaitingView,
)
from projections.views.requests import RequestStatus, RequestsView

SPANS_MAX = 500
WAITING_SHOWN_MAX = 20
Outcome = Literal[RequestStatus, "done"]

_Reader = NamedDependency[Reader]


@get("/requests")
async def requests(
    request: HttpRequest,
    reader: _Reader,
    principal: FromQuery[str | None] = None,
    outcome: Annotated[
        Outcome | None,
        QueryParameter(description="Outcome of a topic of the request; `done` without topics"),
    ] = None,
    rule: Annotated[str | None, QueryParameter(description="Rule that refused a topic of the request")] = None,
    api: Annotated[str | None, QueryParameter(description="Kafka API, such as CreateTopics, or `HTTP`")] = None,
    host: Annotated[str | None, QueryParameter(description="Address of the client")] = None,
    since: From = None,
    until: To = None,
    at: At = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response[RequestsView]:
    """Requests of clients, newest first, in pages.

    Callers without Describe on the cluster see their own requests, and requests all of whose topics they may describe.
    A page examines a bounded number of requests, so it may have fewer results than `limit` and still a `next_cursor`.
    """
    caller = caller_of(request)
    which = RequestFilter(principal, outcome, rule, api, host)
    window = Window(since, until, at, limit, cursor)
    return await reader.answer(overviews.requests, which, window, partial(may_show_request, reader.api, caller))


@get("/timeline")
async def timeline(
    request: HttpRequest,
    reader: _Reader,
    since: From = None,
    until: To = None,
    at: At = None,
    spans: Annotated[int, QueryParameter(ge=1, le=SPANS_MAX, description="Number of equal time spans")] = 100,
) -> Response[TimelineView]:
    """Events over time: the time from the first to the last event, in spans of equal length."""
    reader.need(request)
    return await reader.answer(overviews.timeline, Window(since, until, at, spans))


@get("/topics/{name:str}/timeline")
async def topic_timeline(
    name: FromPath[str],
    request: HttpRequest,
    reader: _Reader,
    at: At = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response[TopicTimelineView]:
    """The history of a topic, grouped by cause, newest first."""
    reader.need(request, name)
    return await reader.answer(overviews.topic_timeline, name, Window(None, None, at, limit, cursor))


@get("/summary")
async def summary(request: HttpRequest, reader: _Reader, at: At = None) -> Response[SummaryView]:
    """Brokers, topics, waiting topics with the reason, refusals of the last day by rule, and the newest requests."""
    reader.need(request)
    return await reader.answer(overviews.summary, at, counted_now(reader.api) if at is None else None)


@get("/quorum")
async def quorum(request: HttpRequest, reader: _Reader) -> QuorumView:
    """Voters, leader, and since when it leads, as this voter sees them; 404 if this service is not a voter."""
    reader.need(request)
    api = reader.api
    if api.quorum is None:
        raise NotThere("this service is not a voter of a controller quorum: that needs serve --brokers kraft, or join")
    return api.quorum()


@get("/brokers/{broker_id:int}")
async def broker(
    broker_id: FromPath[int], request: HttpRequest, reader: _Reader, at: At = None
) -> Response[BrokerDetailView]:
    """One broker, with its newest events."""
    reader.need(request)
    load = None if at is not None else reader.api.store.durable_tallies.brokers.get(broker_id, (0, 0))
    return await reader.answer(overviews.broker, broker_id, at, load)


@get("/diff")
async def diff(
    request: HttpRequest,
    reader: _Reader,
    cursors: NamedDependency[SealedCursors],
    since: FromMoment,
    until: To = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response[DifferenceView]:
    """The differences between two points in time: topics by name, in pages. The first page has brokers, settings and
    permissions too, if the caller may describe the cluster."""
    caller = caller_of(request)
    api = reader.api
    return await reader.answer(
        difference,
        since,
        until,
        cursors.open(cursor),
        limit,
        partial(api.allows, caller, "Describe"),
        with_cluster=api.allows(caller, "Describe"),
        place=cursors.seal,
    )


@get("/policies")
async def policies(request: HttpRequest, reader: _Reader, at: At = None) -> Response[PoliciesView]:
    """The policies for new topics, and the refusals of the last day by rule and by principal."""
    reader.need(request)
    return await reader.answer(overviews.policies, at, reader.api.policies)


def counted_now(api: ControllerApi) -> SummaryView:
    """The counts of the live store and the controller, for the summary of now."""
    status, counts, cluster = api.controller.status(), api.store.durable_counts, api.cluster
    counted = Counted(counts.topics, counts.partitions, status.topics_waiting, api.store.durable_tallies)
    waiting = tuple(
        WaitingView(
            name=topic.name,
            created_at=iso(topic.created_at_ms),
            created_at_ms=topic.created_at_ms,
            waits_for=progress_text(topic, cluster),
        )
        for topic in api.store.durable_waiting(WAITING_SHOWN_MAX)
    )
    shape = overviews.counted_in(overviews.NOTHING_COUNTED, counted)
    return msgspec.structs.replace(shape, requests_open=status.requests_open, waiting=waiting)
