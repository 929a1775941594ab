"""Brokers, one broker, their controllers, the events of the log, and what is different between two moments."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.response import Redirect

from controller.http.errors import HttpRequest
from controller.http.pages.frame import flags
from controller.http.pages.site import FOLLOW, Site
from controller.http.parameters import At, Cursor, EventOrder, EventType, From, Limit, To
from controller.http.paths import overviews, reads
from events.catalog import EVENT_TYPES
from projections.views.json_types import BrokersView, EventsView
from projections.views.overview_types import BrokerDetailView, DifferenceView, QuorumView

TYPES = tuple(sorted(kind.__name__ for kind in EVENT_TYPES))


@get("/brokers")
async def brokers(request: HttpRequest, site: NamedDependency[Site], at: At = None) -> Response[bytes]:
    """The brokers, and the settings that decide."""
    found: BrokersView = await site.shown(reads.brokers, request, at=at)
    loads = site.api.store.durable_tallies.brokers if at is None else {}
    return await site.page(
        request, "brokers.html", at=at, as_of=found.as_of, follow=FOLLOW, command=("brokers",), found=found, loads=loads
    )


@get("/brokers/{broker_id:int}")
async def broker(
    broker_id: FromPath[int], request: HttpRequest, site: NamedDependency[Site], at: At = None
) -> Response[bytes]:
    """One broker."""
    one: BrokerDetailView = await site.shown(overviews.broker, request, broker_id=broker_id, at=at)
    command = ("brokers", str(broker_id))
    return await site.page(request, "broker.html", at=at, as_of=one.as_of, follow=FOLLOW, command=command, one=one)


@get("/quorum")
async def quorum(request: HttpRequest, site: NamedDependency[Site]) -> Response[bytes]:
    """Who votes and who leads, as this voter sees it now."""
    found: QuorumView = await site.shown(overviews.quorum, request)
    here = next((one for one in found.voters if one.node_id == found.node_id), None)
    command = () if here is None else ("quorum", "--bootstrap-controller", f"{here.host}:{here.port}")
    return await site.page(request, "quorum.html", follow=FOLLOW, command=command, found=found)


@get("/topics/{name:str}/events")
async def topic_events(name: FromPath[str], at: At = None) -> Redirect:
    """The same, of one topic."""
    return Redirect(f"/events?{urlencode({'topic': name, **({'at': at} if at else {})})}", status_code=303)


@get("/events")
async def events(
    request: HttpRequest,
    site: NamedDependency[Site],
    topic: FromQuery[str | None] = None,
    request_id: Annotated[str | None, QueryParameter(name="request")] = None,
    kind: EventType = None,
    order: EventOrder = "newest",
    cursor: Cursor = None,
    limit: Limit = 100,
    at: At = None,
) -> Response[bytes]:
    """Events, the newest first."""
    page: EventsView = await site.shown(
        reads.events,
        request,
        topic=topic,
        request_id=request_id,
        kind=kind,
        order=order,
        cursor=cursor,
        limit=limit,
        at=at,
    )
    return await site.page(
        request,
        "events.html",
        at=at,
        follow=FOLLOW if cursor is None and order == "newest" and topic is None else "",
        command=("events", *flags(topic=topic, request=request_id, type=kind, tail=str(limit))),
        page=page,
        types=TYPES,
    )


@get("/diff")
async def diff(
    request: HttpRequest,
    site: NamedDependency[Site],
    since: From = None,
    until: To = None,
    limit: Limit = 25,
    cursor: Cursor = None,
) -> Response[bytes]:
    """What is different between two moments; without the first of them, the form that names them."""
    found: DifferenceView | None = None
    if since is not None:
        found = await site.shown(overviews.diff, request, since=since, until=until, limit=limit, cursor=cursor)
    command = ("diff", since, *((until,) if until else ())) if since else ()
    return await site.page(
        request, "diff.html", command=command, found=found, sees_all=site.allows(request, "Describe")
    )
