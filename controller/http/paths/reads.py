"""Questions over HTTP: topics, requests, brokers and events, now and at any moment of the past."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Literal

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.response import Stream

from controller.front.front import Front
from controller.http.errors import HttpRequest
from controller.http.following import Followers, ndjson, server_sent
from controller.http.parameters import OFFSET_MAX, At, Cursor, EventOrder, EventType, FromOffset, Limit, Partition
from controller.http.permissions import (
    hidden_of_request,
    may_describe,
    need_cluster,
    need_request,
    need_topic,
)
from controller.http.query_threads import Reading
from projections.queries.query import NoTopic, NotThere, Questions
from projections.shown import from_log, json_types
from projections.shown import topic_configs as shown_configs
from projections.shown.overview_types import TopicConfigsShape
from projections.words.explain import explain_request, explain_topic, nothing_to_explain

NDJSON, SERVER_SENT = "application/x-ndjson", "text/event-stream"
_Front = NamedDependency[Front]
_Queries = NamedDependency[Questions]
_Reading = NamedDependency[Reading]


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


@get("/topics/{name:str}/configs")
async def topic_configs(
    name: FromPath[str],
    request: HttpRequest,
    front: _Front,
    queries: _Queries,
    reading: _Reading,
    at: At = None,
) -> Response[TopicConfigsShape]:
    """The configs in force of a topic, with where each comes from: for who may describe them."""
    need_topic(front, request, name, "DescribeConfigs")
    part = queries.of_topic(name)
    newest, end = part.newest_named(name), part.end()
    if at is not None or newest is None:
        return await reading.answer(shown_configs.topic_configs_at, part, name, at)
    return await reading.answer(shown_configs.topic_configs, part, newest.configs, front.cluster.settings, end)


@get("/topics/{name:str}/events")
async def topic_events(
    name: FromPath[str],
    request: HttpRequest,
    front: _Front,
    queries: _Queries,
    reading: _Reading,
    start: FromOffset = 0,
    limit: Limit = 100,
    kind: EventType = None,
    order: EventOrder = "oldest",
    cursor: Cursor = None,
    at: At = None,
) -> Response[json_types.EventsShape]:
    """The events of a name, of all topics that ever had it, refused requests among them."""
    need_topic(front, request, name)

    def page() -> json_types.EventsShape:
        found = from_log.events(
            queries, start, limit, name, None, None, cursor, kind=kind, newest=order == "newest", at=at
        )
        return from_log.topic_events(queries, found, name)

    return await reading.answer(page)


@get("/requests/{request_id:str}")
async def request_(
    request_id: FromPath[str],
    request: HttpRequest,
    front: _Front,
    queries: _Queries,
    reading: _Reading,
    at: At = None,
) -> Response[json_types.RequestShape]:
    """One request and how each of its topics fared."""
    await need_request(front, request, queries, reading, request_id)
    return await reading.answer(from_log.request, queries, request_id, at)


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
    kind: EventType = None,
    order: EventOrder = "oldest",
    partition: Partition = None,
    cursor: Cursor = None,
    at: At = None,
) -> Response[json_types.EventsShape]:
    """Events in order: all, or those of a topic, of a request, or of a type.

    Of a log in partitions they come in the order of their times; `from` is then an offset of the partition that is
    given, or that the topic is in.
    """
    need_cluster(front, request) if topic is None else need_topic(front, request, topic)
    newest = order == "newest"
    return await reading.answer(
        from_log.events,
        queries,
        start,
        limit,
        topic,
        request_id,
        partition,
        cursor,
        kind=kind,
        newest=newest,
        at=at,
    )


@get("/events/follow", media_type=NDJSON)
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
    """Events as they become durable, from an offset on or from now: one JSON object a line, and an empty line every few
    seconds, as a sign of life. Who accepts `text/event-stream` is sent server-sent events, and may go on after the last
    one by its `Last-Event-ID`."""
    need_cluster(front, request) if topic is None else need_topic(front, request, topic)
    is_sse = SERVER_SENT in request.headers.get("accept", "")
    write, media_type = (server_sent, SERVER_SENT) if is_sse else (ndjson, NDJSON)
    place = request.headers.get("last-event-id", cursor) if is_sse else cursor
    lines = followers.follow(start, topic, request_id, partition, place, write)
    return Stream(lines, headers={"content-type": media_type, "cache-control": "no-store"})


@get("/explain/{subject:str}")
async def explanation(
    subject: FromPath[str],
    request: HttpRequest,
    front: _Front,
    queries: _Queries,
    reading: _Reading,
    at: At = None,
    of: Annotated[
        Literal["topic", "request"] | None,
        QueryParameter(description="Which it is to be, where a topic may be called as a request"),
    ] = None,
) -> Response[json_types.ExplanationShape]:
    """The chain of events behind a topic or a request, in words: for who may see that topic, or that request."""
    if of == "topic":
        need_topic(front, request, subject)
    if of != "request" and may_describe(front, request, subject):
        with suppress(NoTopic):
            return await reading.answer(from_log.explanation, queries, subject, explain_topic, at)
        if of == "topic" or await hidden_of_request(front, request, queries, reading, subject):
            raise nothing_to_explain(subject)
    try:
        await need_request(front, request, queries, reading, subject)
        return await reading.answer(from_log.explanation, queries, subject, explain_request, at)
    except NotThere:
        raise nothing_to_explain(subject) from None
