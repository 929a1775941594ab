"""Requests, and one request: who wanted what, from where, how each topic fared, and what it waited for."""

from __future__ import annotations

from urllib.parse import quote

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery

from controller.http.errors import HttpRequest
from controller.http.pages.drawn import waterfall
from controller.http.pages.frame import flags
from controller.http.pages.site import FOLLOW, Site
from controller.http.parameters import At, Cursor, From, Limit, To
from controller.http.paths import overviews, reads
from controller.http.paths.overviews import Outcome
from projections.views.json_types import ExplanationView, RequestView
from projections.views.overview_types import RequestsView

OUTCOMES = (
    "rejected", "waiting", "timed-out", "failed", "created", "deleted", "partitions-added", "configs-changed", "done",
)  # fmt: skip


TOPICS_SHOWN_MAX = 100


@get("/requests")
async def requests(
    request: HttpRequest,
    site: NamedDependency[Site],
    principal: FromQuery[str | None] = None,
    outcome: FromQuery[Outcome | None] = None,
    rule: FromQuery[str | None] = None,
    api: FromQuery[str | None] = None,
    host: FromQuery[str | None] = None,
    since: From = None,
    until: To = None,
    at: At = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response[bytes]:
    """Requests, the newest first."""
    filters = {"principal": principal, "outcome": outcome, "rule": rule, "api": api, "host": host}
    page: RequestsView = await site.shown(
        overviews.requests,
        request,
        **filters,
        since=since,
        until=until,
        at=at,
        limit=limit,
        cursor=cursor,
    )
    sees_all = site.allows(request, "Describe")
    return await site.page(
        request,
        "requests.html",
        at=at,
        as_of=page.as_of,
        follow=FOLLOW if sees_all and cursor is None else "",
        command=("requests", *flags(**filters, since=since, until=until, limit=str(limit))),
        page=page,
        outcomes=OUTCOMES,
        some_hidden=not sees_all,
    )


@get("/requests/{request_id:str}")
async def request_(
    request_id: FromPath[str], request: HttpRequest, site: NamedDependency[Site], at: At = None
) -> Response[bytes]:
    """One request."""
    one: RequestView = await site.shown(reads.request_, request, request_id=request_id, at=at)
    chain: ExplanationView = await site.shown(reads.explanation, request, subject=request_id, at=at, of="request")
    follow = f"{FOLLOW}?topic={quote(one.topics[0].topic, safe='')}" if len(one.topics) == 1 else FOLLOW
    return await site.page(
        request,
        "request.html",
        at=at,
        command=("requests", request_id),
        follow=follow,
        one=one,
        chain=chain,
        bars=waterfall(chain),
        shown_max=TOPICS_SHOWN_MAX,
    )


@get("/explain/{subject:str}")
async def explanation(
    subject: FromPath[str], request: HttpRequest, site: NamedDependency[Site], at: At = None
) -> Response[bytes]:
    """The chain of events behind a topic or a request."""
    chain: ExplanationView = await site.shown(reads.explanation, request, subject=subject, at=at)
    return await site.page(request, "explain.html", at=at, command=("explain", subject), chain=chain)
