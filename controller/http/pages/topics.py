"""Topics, and one topic: what it is, who made it and by which rule, and all that happened to it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated
from urllib.parse import quote

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, QueryParameter

from controller.http.errors import HttpRequest
from controller.http.pages.frame import flags
from controller.http.pages.site import FOLLOW, Site
from controller.http.parameters import At, Cursor, Limit
from controller.http.paths import overviews, reads
from controller.http.paths import topics as topic_lists
from controller.http.paths.topics import Glob, Order
from projections.queries.topic_lists import WantedStatus
from projections.views.json_types import ErrorView, TopicsView, TopicView
from projections.views.overview_types import TopicConfigsView, TopicTimelineView

PARTITIONS_SHOWN_MAX = 100
FOLDS_SHOWN = 20
SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": "set for this topic",
    "DYNAMIC_BROKER_CONFIG": "one broker's",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "all brokers', dynamic",
    "STATIC_BROKER_CONFIG": "the cluster's settings",
    "DEFAULT_CONFIG": "default",
}
_NO_CONFIGS = "Where configs come from is for who may describe them, and this login may not."


@get("/topics")
async def topics(
    request: HttpRequest,
    site: NamedDependency[Site],
    name: Glob = None,
    status: FromQuery[WantedStatus | None] = None,
    placeholders: FromQuery[bool | None] = None,
    principal: FromQuery[str | None] = None,
    order: Order = "name",
    cursor: Cursor = None,
    limit: Limit = 100,
    at: At = None,
) -> Response[bytes]:
    """Topics by name or by age, those of a kind."""
    page: TopicsView = await site.shown(
        topic_lists.topics,
        request,
        name=name,
        status=status,
        placeholders=placeholders,
        principal=principal,
        order=order,
        cursor=cursor,
        limit=limit,
        at=at,
    )
    sees_all = site.allows(request, "Describe")
    command = ("topics", *((name,) if name else ()), *flags(status=status, principal=principal))
    return await site.page(
        request,
        "topics.html",
        at=at,
        as_of=page.as_of,
        follow=FOLLOW if sees_all and cursor is None else "",
        command=command,
        page=page,
        some_hidden=not sees_all,
    )


@get(["/topics/{name:str}", "/topics/{name:str}/timeline", "/topics/{name:str}/configs"])
async def topic(
    name: FromPath[str],
    request: HttpRequest,
    site: NamedDependency[Site],
    at: At = None,
    cursor: Cursor = None,
    partition: Annotated[int, QueryParameter(ge=0, le=2**31, description="The first partition to show")] = 0,
) -> Response[bytes]:
    """One topic."""
    return await topic_page(name, request, site, at, cursor, partition)


async def topic_page(
    name: str,
    request: HttpRequest,
    site: Site,
    at: str | None = None,
    cursor: str | None = None,
    partition: int = 0,
    *,
    status: int = 200,
    error: ErrorView | None = None,
    filled: Mapping[str, str] = MappingProxyType({}),
) -> Response[bytes]:
    """The page of one topic, with the form as it was `filled` in where a change ended with an `error`."""
    one: TopicView = await site.shown(reads.topic, request, name=name, at=at)
    configs: TopicConfigsView | None = None
    if site.allows(request, "DescribeConfigs", topic=name):
        configs = await site.shown(reads.topic_configs, request, name=name, at=at)
    timeline: TopicTimelineView = await site.shown(
        overviews.topic_timeline, request, name=name, at=at, limit=FOLDS_SHOWN, cursor=cursor
    )
    may = {each: site.allows(request, each, topic=name) for each in ("Alter", "AlterConfigs", "Delete")}
    return await site.page(
        request,
        "topic.html",
        at=at,
        as_of=one.as_of,
        status=status,
        follow=f"{FOLLOW}?topic={quote(name, safe='')}",
        command=("topics", name),
        one=one,
        first=min(partition, max(0, one.num_partitions - 1)) // PARTITIONS_SHOWN_MAX * PARTITIONS_SHOWN_MAX,
        shown_max=PARTITIONS_SHOWN_MAX,
        configs=configs,
        sources=SOURCES,
        configs_hidden=_NO_CONFIGS,
        timeline=timeline,
        may=may,
        deletable=may["Delete"] or site.allows(request, "Delete"),
        error=error,
        filled=filled,
    )
