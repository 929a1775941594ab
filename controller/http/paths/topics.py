"""The list of topics: all or those of a kind, in the order of their names or by age, now and as they were.

A page looks at so many topics and no more, whatever it may show. Where it ends among names that are hidden from its
reader the place is sealed (`controller.http.places`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Annotated, Literal

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromQuery, QueryParameter

from controller.http.errors import HttpRequest, refused
from controller.http.parameters import OFFSET_MAX, At, Cursor, Limit
from controller.http.permissions import Reader, may_describe, may_describe_some
from controller.http.places import Places
from controller.http.requests import caller_of
from controller.machine.errors import ErrorCode
from controller.machine.state import Topic
from controller.patterns import Pattern, PatternError
from events.names import shard_key
from projections.queries import responses
from projections.queries.listing import Listing, Place, cursor_of
from projections.queries.query import Ends, Questions
from projections.queries.topic_lists import TopicFilter, WantedStatus, by_age, by_name, glob
from projections.views import json_types

TOPICS_PER_SLICE = 100
"""How many topics are taken from the live store before others get their turn."""
SLICES_MAX = 40
"""Of a page of topics: it looks at some thousands, or at some ten thousand partitions, whatever it may show."""
GLOB_CHARACTERS_MAX = 249

Glob = Annotated[
    str | None,
    QueryParameter(
        min_length=1, max_length=GLOB_CHARACTERS_MAX, description="Names with `*` for any characters and `?` for one"
    ),
]
"""Which names."""
Order = Annotated[Literal["name", "newest"], QueryParameter(description="`newest`: those created last come first")]
"""In which order."""
_After = Annotated[str | None, QueryParameter(description="Go on after a name, or `next_after` of the page before")]


@get("/topics")
async def topics(
    request: HttpRequest,
    reader: NamedDependency[Reader],
    places: NamedDependency[Places],
    name: Glob = None,
    status: FromQuery[WantedStatus | None] = None,
    placeholders: Annotated[
        bool | None, QueryParameter(description="Whether places of it wait for a broker to join (KIP-409)")
    ] = None,
    principal: Annotated[str | None, QueryParameter(description="Who requested the topic")] = None,
    order: Order = "name",
    after: _After = None,
    cursor: Cursor = None,
    limit: Limit = 100,
    at: At = None,
) -> Response[json_types.TopicsView]:
    """Topics in the order of their names (with `.` as `_`), or the newest first, a page at a time.

    A page looks at so many topics and no more: it may have fewer than the limit, and `next_cursor` where to go on.
    """
    which = TopicFilter(_pattern(name), status, placeholders, principal)
    page = _Page(reader, request, which, limit)
    if after is not None and (cursor is not None or order == "newest"):
        raise refused(400, ErrorCode.INVALID_REQUEST, "after: it goes with neither cursor nor order=newest")
    if order == "newest":
        if at is not None:
            return await page.of_the_past(at, responses.newest_at, cursor)
        return await page.by_age(_place(reader.queries, cursor))
    beyond = places.opened(after if cursor is None else cursor)
    if at is not None:
        return await page.of_the_past(at, partial(responses.topics_at, place=places.sealed), beyond)
    return await page.by_name(beyond, places.sealed)


class _Page:
    """A page while it is put together."""

    def __init__(self, reader: Reader, request: HttpRequest, which: TopicFilter, limit: int) -> None:
        self._reader = reader
        self._api, self._queries = reader.api, reader.queries
        self._request = request
        self._which = which
        self._limit = limit
        self._shown: list[json_types.TopicSummary] = []
        self._end: Ends = reader.queries.end()
        self._live = reader.api.cluster.live

    async def of_the_past(
        self, at: str, listed: Callable[..., json_types.TopicsView], after: str | None
    ) -> Response[json_types.TopicsView]:
        """Topics as they were."""
        if not may_describe_some(self._api, self._request):
            self._end = await self._reader.reading.run(self._queries.end, at)
            return await self._answer(None)
        caller = caller_of(self._request)

        def may_show(name: str) -> bool:
            return self._which.matches_name(name) and self._api.allows(caller, "Describe", name)

        return await self._reader.answer(listed, at, after, self._limit, may_show, which=self._which)

    async def by_name(self, after: str | None, sealed: Callable[[str], str]) -> Response[json_types.TopicsView]:
        """Topics as they are, by their names."""
        if not may_describe_some(self._api, self._request):
            return await self._answer(None)
        for _ in range(SLICES_MAX):
            newest = by_name(self._queries, self._which, after, TOPICS_PER_SLICE)
            if not newest:
                return await self._answer(None)
            after = newest[-1].name
            if await self._take(newest):
                return await self._answer(self._shown[-1].name)
            await asyncio.sleep(0)
        assert after is not None, "it has looked at some"
        is_shown = may_describe(self._api, self._request, after)
        return await self._answer(after if is_shown else sealed(shard_key(after)))

    async def by_age(self, place: Place) -> Response[json_types.TopicsView]:
        """Topics as they are, the newest first."""
        if not may_describe_some(self._api, self._request):
            return await self._answer(None)
        for _ in range(SLICES_MAX):
            newest, place = by_age(self._queries, place, min(TOPICS_PER_SLICE, self._limit - len(self._shown)))
            if not newest:
                return await self._answer(None)
            await self._take(newest)
            if len(self._shown) == self._limit:
                break
            await asyncio.sleep(0)
        return await self._answer(None, cursor_of(place))

    async def _take(self, topics: list[Topic]) -> bool:
        """Add those that are shown; whether the page is full and more would follow, which then are left out."""
        seen = [one for one in topics if self._which.matches_name(one.name) and self._may_show(one.name)]
        if seen:
            found = await self._reader.reading.run(responses.summaries, self._queries, seen, self._live, self._which)
            self._shown += found
        is_full = len(self._shown) > self._limit
        del self._shown[self._limit :]
        return is_full

    def _may_show(self, name: str) -> bool:
        return may_describe(self._api, self._request, name)

    async def _answer(self, after: str | None, cursor: str | None = None) -> Response[json_types.TopicsView]:
        return await self._reader.answer(responses.topics, self._shown, after, self._end, cursor)


def _pattern(name: str | None) -> Pattern | None:
    try:
        return None if name is None else glob(name)
    except PatternError as error:
        raise refused(400, ErrorCode.INVALID_REQUEST, f"name: {error}") from None


def _place(queries: Questions, cursor: str | None) -> Place:
    return (OFFSET_MAX,) * len(queries.parts) if cursor is None else Listing(queries.parts).place(0, cursor)
