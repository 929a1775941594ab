"""Paths that show many things at once: requests by time, a summary, timelines, one broker."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import msgspec
from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, QueryParameter

from controller.controller_api import ControllerApi
from controller.http.errors import HttpRequest
from controller.http.parameters import At, Cursor, From, FromMoment, Limit, To
from controller.http.permissions import Reader, may_show_request
from controller.http.places import Places
from controller.http.requests import caller_of
from controller.machine.readiness import how_far
from projections.queries import overviews
from projections.queries.differences import difference
from projections.queries.overviews import Window
from projections.queries.query import NotThere
from projections.queries.requests import RequestFilter
from projections.queries.topic_lists import Counted
from projections.text.moments import iso
from projections.views import overview_types as types
from projections.views.overview_types import DifferenceView, QuorumView
from projections.views.requests import RequestStatus

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
        Outcome | None, QueryParameter(description="How a topic of the request fares; `done` without a topic")
    ] = None,
    rule: Annotated[str | None, QueryParameter(description="The rule that refused a topic of the request")] = None,
    api: Annotated[str | None, QueryParameter(description="Kafka's name of the request, or `HTTP`")] = None,
    host: Annotated[str | None, QueryParameter(description="The client's address")] = None,
    since: From = None,
    until: To = None,
    at: At = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response[types.RequestsView]:
    """Clients' requests, the newest first, a page at a time.

    Who may not describe the cluster is shown its own requests, and those whose topics it may describe, all of them. A
    page looks at so many requests and no more: it may have fewer than the limit, and `next_cursor` where to go on.
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
    spans: Annotated[int, QueryParameter(ge=1, le=SPANS_MAX, description="In how many spans of time")] = 100,
) -> Response[types.TimelineView]:
    """How many events happened when: the time from the first of them to the last, in spans of the same length."""
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
) -> Response[types.TopicTimelineView]:
    """A topic's history folded by what caused it, the newest first."""
    reader.need(request, name)
    return await reader.answer(overviews.topic_timeline, name, Window(None, None, at, limit, cursor))


@get("/summary")
async def summary(request: HttpRequest, reader: _Reader, at: At = None) -> Response[types.SummaryView]:
    """What to look at first: brokers, topics, what waits and for what, refusals of a day by rule, newest requests."""
    reader.need(request)
    return await reader.answer(overviews.summary, at, counted_now(reader.api) if at is None else None)


@get("/quorum")
async def quorum(request: HttpRequest, reader: _Reader) -> QuorumView:
    """Who votes, who leads and since when, as this voter sees it; 404 where it is none."""
    reader.need(request)
    api = reader.api
    if api.quorum is None:
        raise NotThere("this service is no voter of a quorum of controllers: it has no real brokers")
    return api.quorum()


@get("/brokers/{broker_id:int}")
async def broker(
    broker_id: FromPath[int], request: HttpRequest, reader: _Reader, at: At = None
) -> Response[types.BrokerDetailView]:
    """One broker, with the newest events of its own."""
    reader.need(request)
    load = None if at is not None else reader.api.store.durable_tallies.brokers.get(broker_id, (0, 0))
    return await reader.answer(overviews.broker, broker_id, at, load)


@get("/diff")
async def diff(
    request: HttpRequest,
    reader: _Reader,
    places: NamedDependency[Places],
    since: FromMoment,
    until: To = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response[DifferenceView]:
    """What is different between two moments: topics in the order of their names, a page at a time, and on the first
    page brokers, settings and permissions, for who may describe the cluster."""
    caller = caller_of(request)
    api = reader.api
    return await reader.answer(
        difference,
        since,
        until,
        places.opened(cursor),
        limit,
        partial(api.allows, caller, "Describe"),
        with_cluster=api.allows(caller, "Describe"),
        place=places.sealed,
    )


@get("/policies")
async def policies(request: HttpRequest, reader: _Reader, at: At = None) -> Response[types.PoliciesView]:
    """What judges topics before they are created, and what was refused in a day: by which rule, and of whom."""
    reader.need(request)
    return await reader.answer(overviews.policies, at, reader.api.policies)


def counted_now(api: ControllerApi) -> types.SummaryView:
    """What the live store and the controller count, for the summary of now."""
    standing, counts, cluster = api.controller.standing(), api.store.durable_counts, api.cluster
    counted = Counted(counts.topics, counts.partitions, standing.topics_waiting, api.store.durable_tallies)
    waiting = tuple(
        types.WaitingView(
            name=topic.name,
            created_at=iso(topic.created_at_ms),
            created_at_ms=topic.created_at_ms,
            waits_for=how_far(topic, cluster),
        )
        for topic in api.store.durable_waiting(WAITING_SHOWN_MAX)
    )
    shape = overviews.counted_in(overviews.NOTHING_COUNTED, counted)
    return msgspec.structs.replace(shape, requests_open=standing.requests_open, waiting=waiting)
