"""Questions over HTTP: topics, requests, brokers and events, now and at any moment of the past."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Annotated

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.response import Stream

from controller.front.front import Front
from controller.http.errors import HttpRequest
from controller.http.following import Followers
from controller.http.parameters import OFFSET_MAX, At, Cursor, FromOffset, Limit, Partition
from controller.http.permissions import (
    hidden_of_request,
    may_describe,
    may_describe_some,
    need_cluster,
    need_request,
    need_topic,
)
from controller.http.places import Places
from controller.http.query_threads import Reading
from controller.http.requests import caller_of
from events.names import shard_key
from projections.queries.query import NoTopic, NotThere, Questions
from projections.shown import from_log, json_types
from projections.words.explain import explain_request, explain_topic, nothing_to_explain

TOPICS_PER_SLICE = 100
"""How many topics are taken from the live store before others get their turn."""
SLICES_MAX = 40
"""Of a page of topics: it looks at some thousands, or at some ten thousand partitions, whatever it may show."""

_Front = NamedDependency[Front]
_Queries = NamedDependency[Questions]
_Reading = NamedDependency[Reading]
_After = Annotated[str | None, QueryParameter(description="Go on after a name, or `next_after` of the page before")]


@get("/topics")
async def topics(
    request: HttpRequest,
    front: _Front,
    queries: _Queries,
    reading: _Reading,
    places: NamedDependency[Places],
    after: _After = None,
    limit: Limit = 100,
    at: At = None,
) -> Response[json_types.TopicsShape]:
    """Topics in the order of their names (with `.` as `_`), a page at a time.

    A page looks at so many topics and no more: it may have fewer than the limit, and `next_after` where to go on.
    """
    name = places.opened(after)
    if not may_describe_some(front, request):
        at_end = queries.end() if at is None else await reading.run(queries.end, at)
        return await reading.answer(from_log.topics, queries, [], None, at_end)
    if at is not None:
        caller = caller_of(request)
        may_show = partial(front.allows, caller, "Describe")
        return await reading.answer(from_log.topics_at, queries, at, name, limit, may_show, places.sealed)
    shown: list[json_types.TopicSummary] = []
    end, live = queries.end(), front.cluster.live
    for _ in range(SLICES_MAX):
        newest = queries.newest(name, TOPICS_PER_SLICE)
        if not newest:
            return await reading.answer(from_log.topics, queries, shown, None, end)
        name = newest[-1].name
        seen = [one for one in newest if may_describe(front, request, one.name)]
        if seen:
            shown += await reading.run(from_log.summaries, queries, seen[: limit + 1 - len(shown)], live)
        if len(shown) > limit:
            return await reading.answer(from_log.topics, queries, shown[:limit], shown[limit - 1].name, end)
        await asyncio.sleep(0)
    assert name is not None, "it has looked at some"
    reached = name if may_describe(front, request, name) else places.sealed(shard_key(name))
    return await reading.answer(from_log.topics, queries, shown, reached, end)


@get("/topics/{name:str}")
async def topic(
    name: FromPath[str],
    request: HttpRequest,
    front: _Front,
    queries: _Queries,
    reading: _Reading,
    at: At = None,
) -> Response[json_types.TopicShape]:
    """One topic with its partitions."""
    need_topic(front, request, name)
    part = queries.of_topic(name)
    newest, end, live = part.newest_named(name), part.end(), front.cluster.live
    if at is not None or newest is None:
        return await reading.answer(from_log.topic_at, part, name, at)
    return await reading.answer(from_log.topic, part, newest, live, end)


@get("/topics/{name:str}/events")
async def topic_events(
    name: FromPath[str],
    request: HttpRequest,
    front: _Front,
    queries: _Queries,
    reading: _Reading,
    start: FromOffset = 0,
    limit: Limit = 100,
) -> Response[json_types.EventsShape]:
    """The events of a name, of all topics that ever had it, refused requests among them."""
    need_topic(front, request, name)
    return await reading.answer(from_log.topic_events, queries, name, start, limit)


@get("/requests/{request_id:str}")
async def request_(
    request_id: FromPath[str], request: HttpRequest, front: _Front, queries: _Queries, reading: _Reading
) -> Response[json_types.RequestShape]:
    """One request and how each of its topics fared."""
    await need_request(front, request, queries, reading, request_id)
    return await reading.answer(from_log.request, queries, request_id)


@get("/brokers")
async def brokers(
    request: HttpRequest, front: _Front, queries: _Queries, reading: _Reading, at: At = None
) -> Response[json_types.BrokersShape]:
    """The brokers, live and fenced, and the settings that decide."""
    need_cluster(front, request)
    return await reading.answer(from_log.brokers, queries, at)


@get("/events")
async def events(
    request: HttpRequest,
    front: _Front,
    queries: _Queries,
    reading: _Reading,
    start: FromOffset = 0,
    limit: Limit = 100,
    topic: FromQuery[str | None] = None,
    request_id: Annotated[str | None, QueryParameter(name="request")] = None,
    partition: Partition = None,
    cursor: Cursor = None,
) -> Response[json_types.EventsShape]:
    """Events in order: all, or those of a topic, or of a request.

    Of a log in partitions they come in the order of their times; `from` is then an offset of the partition that is
    given, or that the topic is in.
    """
    need_cluster(front, request) if topic is None else need_topic(front, request, topic)
    return await reading.answer(from_log.events, queries, start, limit, topic, request_id, partition, cursor)


@get("/events/follow", media_type="application/x-ndjson")
async def follow(
    request: HttpRequest,
    front: _Front,
    followers: NamedDependency[Followers],
    start: Annotated[int | None, QueryParameter(name="from", ge=0, le=OFFSET_MAX)] = None,
    topic: FromQuery[str | None] = None,
    request_id: Annotated[str | None, QueryParameter(name="request")] = None,
    partition: Partition = None,
    cursor: Cursor = None,
) -> Stream:
    """Events as they become durable, one JSON object a line, from an offset on or from now. An empty line every few
    seconds says that the connection lives."""
    need_cluster(front, request) if topic is None else need_topic(front, request, topic)
    lines = followers.follow(start, topic, request_id, partition, cursor)
    return Stream(lines, media_type="application/x-ndjson")


@get("/explain/{subject:str}")
async def explanation(
    subject: FromPath[str], request: HttpRequest, front: _Front, queries: _Queries, reading: _Reading, at: At = None
) -> Response[json_types.ExplanationShape]:
    """The chain of events behind a topic or a request, in words: for who may see that topic, or that request."""
    if may_describe(front, request, subject):
        with suppress(NoTopic):
            return await reading.answer(from_log.explanation, queries, subject, explain_topic, at)
        if await hidden_of_request(front, request, queries, reading, subject):
            raise nothing_to_explain(subject)
    try:
        await need_request(front, request, queries, reading, subject)
        return await reading.answer(from_log.explanation, queries, subject, explain_request, at)
    except NotThere:
        raise nothing_to_explain(subject) from None
