"""Questions over HTTP: topics, requests, brokers and events, now and at any moment of the past."""

from __future__ import annotations

from typing import Annotated

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.response import Stream
from msgspec.structs import replace

from controller.http import answers
from controller.http.following import Followers
from controller.http.permissions import AnyRequest, may_describe, need_cluster, need_request, need_topic
from controller.http.reading import Reading
from controller.http.shapes import (
    BrokersShape,
    EventsShape,
    ExplanationShape,
    RequestShape,
    TopicShape,
    TopicsShape,
    TopicSummary,
)
from controller.runtime.front import Front
from projections.moments import SYNTAX
from projections.questions import Questions

LIMIT_MAX = 1000
TOPICS_PER_SLICE = 100
"""How many topics are taken from the live store before others get their turn."""
OFFSET_MAX = 2**63 - 1

_Request = AnyRequest
_Front = NamedDependency[Front]
_Queries = NamedDependency[Questions]
_Reading = NamedDependency[Reading]
_At = Annotated[str | None, QueryParameter(description=f"A moment of the past: {SYNTAX}")]
_Limit = Annotated[int, QueryParameter(ge=1, le=LIMIT_MAX, description="How many at most")]
_From = Annotated[int, QueryParameter(name="from", ge=0, le=OFFSET_MAX, description="The offset to begin at")]
_Partition = Annotated[
    int | None, QueryParameter(ge=0, le=OFFSET_MAX, description="Of a log in partitions: only this one")
]
_Cursor = Annotated[
    str | None, QueryParameter(description="Of a log in partitions: go on there, `next_cursor` of the page before")
]
_After = Annotated[str | None, QueryParameter(description="Go on after this name: `next_after` of the page before")]


@get("/topics")
async def topics(
    request: _Request,
    front: _Front,
    queries: _Queries,
    reading: _Reading,
    after: _After = None,
    limit: _Limit = 100,
    at: _At = None,
) -> Response[TopicsShape]:
    """Topics in the order of their names (with `.` as `_`), a page at a time."""
    if at is not None:
        page = await reading.run(answers.topics_at, queries, at, after, limit)
        shown = tuple(one for one in page.topics if may_describe(front, request, one.name))
        return await reading.answer(replace, page, topics=shown)
    summaries: list[TopicSummary] = []
    name, end, live = after, queries.end(), front.cluster.live
    while len(summaries) <= limit:
        newest = queries.newest(name, min(TOPICS_PER_SLICE, limit + 1 - len(summaries)))
        if not newest:
            break
        name = newest[-1].name
        newest = [one for one in newest if may_describe(front, request, one.name)]
        summaries += await reading.run(answers.summaries, queries, newest, live)
    next_after = summaries[limit - 1].name if len(summaries) > limit else None
    return await reading.answer(answers.topics, queries, summaries[:limit], next_after, end)


@get("/topics/{name:str}")
async def topic(
    name: FromPath[str],
    request: _Request,
    front: _Front,
    queries: _Queries,
    reading: _Reading,
    at: _At = None,
) -> Response[TopicShape]:
    """One topic with its partitions."""
    need_topic(front, request, name)
    part = queries.of_topic(name)
    newest, end, live = part.newest_named(name), part.end(), front.cluster.live
    if at is not None or newest is None:
        return await reading.answer(answers.topic_at, part, name, at)
    return await reading.answer(answers.topic, part, newest, live, end)


@get("/topics/{name:str}/events")
async def topic_events(
    name: FromPath[str],
    request: _Request,
    front: _Front,
    queries: _Queries,
    reading: _Reading,
    start: _From = 0,
    limit: _Limit = 100,
) -> Response[EventsShape]:
    """The events of a name, of all topics that ever had it, refused asks among them."""
    need_topic(front, request, name)
    return await reading.answer(answers.topic_events, queries.of_topic(name), name, start, limit)


@get("/requests/{request_id:str}")
async def request_(
    request_id: FromPath[str], request: _Request, front: _Front, queries: _Queries, reading: _Reading
) -> Response[RequestShape]:
    """One request and how each of its topics fared."""
    await need_request(front, request, queries, reading, request_id)
    return await reading.answer(answers.request, queries, request_id)


@get("/brokers")
async def brokers(
    request: _Request, front: _Front, queries: _Queries, reading: _Reading, at: _At = None
) -> Response[BrokersShape]:
    """The brokers, live and fenced, and the settings that decide."""
    need_cluster(front, request)
    return await reading.answer(answers.brokers, queries, at)


@get("/events")
async def events(
    request: _Request,
    front: _Front,
    queries: _Queries,
    reading: _Reading,
    start: _From = 0,
    limit: _Limit = 100,
    topic: FromQuery[str | None] = None,
    request_id: Annotated[str | None, QueryParameter(name="request")] = None,
    partition: _Partition = None,
    cursor: _Cursor = None,
) -> Response[EventsShape]:
    """Events in order: all, or those of a topic, or of a request.

    Of a log in partitions they come in the order of their times; `from` is then an offset of the partition that is
    given, or that the topic is in.
    """
    need_cluster(front, request) if topic is None else need_topic(front, request, topic)
    return await reading.answer(answers.events, queries, start, limit, topic, request_id, partition, cursor)


@get("/events/follow", media_type="application/x-ndjson")
async def follow(
    request: _Request,
    front: _Front,
    followers: NamedDependency[Followers],
    start: Annotated[int | None, QueryParameter(name="from", ge=0, le=OFFSET_MAX)] = None,
    topic: FromQuery[str | None] = None,
    request_id: Annotated[str | None, QueryParameter(name="request")] = None,
    partition: _Partition = None,
    cursor: _Cursor = None,
) -> Stream:
    """Events as they become durable, one JSON object a line, from an offset on or from now. An empty line every few
    seconds says that the connection lives."""
    need_cluster(front, request) if topic is None else need_topic(front, request, topic)
    lines = followers.follow(start, topic, request_id, partition, cursor)
    return Stream(lines, media_type="application/x-ndjson")


@get("/explain/{subject:str}")
async def explanation(
    subject: FromPath[str], request: _Request, front: _Front, queries: _Queries, reading: _Reading
) -> Response[ExplanationShape]:
    """The chain of events behind a topic or a request, in words."""
    if not may_describe(front, request, subject):
        await need_request(front, request, queries, reading, subject)
    return await reading.answer(answers.explanation, queries, subject)
