"""Reads as JSON: topics, requests, brokers, events and explanations, now or at any point in time."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Annotated, Literal

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.response import Stream

from controller.http.errors import HttpRequest
from controller.http.following import Followers, ndjson, server_sent
from controller.http.permissions import Reader, may_describe, need_topic
from controller.http.requests import (
    OFFSET_MAX,
    At,
    Cursor,
    EventOrder,
    EventType,
    FromOffset,
    Limit,
    Partition,
    caller_of,
)
from projections.queries import responses
from projections.queries.explain import explain_request, explain_topic, nothing_to_explain
from projections.queries.query import NoTopic, NotThere, Questions
from projections.views.brokers import BrokersView
from projections.views.events import EventsView, ExplanationView
from projections.views.requests import RequestView
from projections.views.topics import TopicConfigsView, TopicView

NDJSON, SERVER_SENT = "application/x-ndjson", "text/event-stream"
_Reader = NamedDependency[Reader]


@get("/topics/{name:str}")
async def topic(name: FromPath[str], request: HttpRequest, reader: _Reader, at: At = None) -> Response[TopicView]:
    """One topic with its partitions."""
    reader.need(request, name)
    part = reader.queries.of_topic(name)
    newest, end, live = part.newest_named(name), part.end(), reader.api.cluster.live
    if at is not None or newest is None:
        return await reader.reading.answer(responses.topic_at, part, name, at)
    return await reader.reading.answer(responses.topic, part, newest, live, end)


@get("/topics/{name:str}/configs")
async def topic_configs(
    name: FromPath[str], request: HttpRequest, reader: _Reader, at: At = None
) -> Response[TopicConfigsView]:
    """The effective configs of a topic, with their sources. Needs DescribeConfigs."""
    need_topic(reader.api, request, name, "DescribeConfigs")
    part = reader.queries.of_topic(name)
    newest, end, settings = part.newest_named(name), part.end(), reader.api.cluster.settings
    if at is not None or newest is None:
        return await reader.reading.answer(responses.topic_configs_at, part, name, at)
    return await reader.reading.answer(responses.topic_configs, part, newest.configs, settings, end)


@get("/topics/{name:str}/events")
async def topic_events(
    name: FromPath[str],
    request: HttpRequest,
    reader: _Reader,
    start: FromOffset = 0,
    limit: Limit = 100,
    kind: EventType = None,
    order: EventOrder = "oldest",
    cursor: Cursor = None,
    at: At = None,
) -> Response[EventsView]:
    """The events of a topic name: of every topic that ever had it, and of refused requests."""
    reader.need(request, name)

    def page(queries: Questions) -> EventsView:
        found = responses.events(
            queries, start, limit, name, None, None, cursor, kind=kind, newest=order == "newest", at=at
        )
        return responses.topic_events(queries, found, name)

    return await reader.answer(page)


@get("/requests/{request_id:str}")
async def request_(
    request_id: FromPath[str], request: HttpRequest, reader: _Reader, at: At = None
) -> Response[RequestView]:
    """One request with the outcome of each topic."""
    await reader.need_request(request, request_id)
    return await reader.answer(responses.request, request_id, at)


@get("/brokers")
async def brokers(request: HttpRequest, reader: _Reader, at: At = None) -> Response[BrokersView]:
    """All brokers, live and fenced, and the settings that decisions depend on."""
    reader.need(request)
    return await reader.answer(responses.brokers, at)


@get("/events")
async def events(
    request: HttpRequest,
    reader: _Reader,
    start: FromOffset = 0,
    limit: Limit = 100,
    topic: FromQuery[str | None] = None,
    request_id: Annotated[str | None, QueryParameter(name="request")] = None,
    kind: EventType = None,
    order: EventOrder = "oldest",
    partition: Partition = None,
    cursor: Cursor = None,
    at: At = None,
) -> Response[EventsView]:
    """Events in order: all, or those of a topic, a request, or a type.

    If the log has partitions, events are ordered by time. `from` is then an offset in the given partition, or in the
    partition of the topic.
    """
    reader.need(request, topic)
    newest = order == "newest"
    return await reader.answer(
        responses.events, start, limit, topic, request_id, partition, cursor, kind=kind, newest=newest, at=at
    )


@get("/events/follow", media_type=NDJSON)
async def follow(
    request: HttpRequest,
    reader: _Reader,
    followers: NamedDependency[Followers],
    start: Annotated[int | None, QueryParameter(name="from", ge=0, le=OFFSET_MAX)] = None,
    topic: FromQuery[str | None] = None,
    request_id: Annotated[str | None, QueryParameter(name="request")] = None,
    partition: Partition = None,
    cursor: Cursor = None,
) -> Stream:
    """Stream events as they become durable, from an offset or from now: one JSON object per line, and an empty line
    every few seconds as a heartbeat. With `Accept: text/event-stream` the response is server-sent events; send
    `Last-Event-ID` to resume."""
    reader.need(request, topic)
    is_sse = SERVER_SENT in request.headers.get("accept", "")
    write, media_type = (server_sent, SERVER_SENT) if is_sse else (ndjson, NDJSON)
    place = request.headers.get("last-event-id", cursor) if is_sse else cursor
    may_see = partial(reader.api.allows, caller_of(request), "Describe", topic)
    lines = followers.follow(start, topic, request_id, may_see, partition, place, write)
    return Stream(lines, headers={"content-type": media_type, "cache-control": "no-store"})


@get("/explain/{subject:str}")
async def explanation(
    subject: FromPath[str],
    request: HttpRequest,
    reader: _Reader,
    at: At = None,
    of: Annotated[
        Literal["topic", "request"] | None,
        QueryParameter(description="Whether the subject is a topic or a request; default: a topic if there is one"),
    ] = None,
) -> Response[ExplanationView]:
    """Explain a topic or a request: its chain of events, as text."""
    if of == "topic":
        reader.need(request, subject)
    if of != "request" and may_describe(reader.api, request, subject):
        with suppress(NoTopic):
            return await reader.answer(explain_topic, subject, at)
        if of == "topic" or not await reader.may_see_request(request, subject):
            raise nothing_to_explain(subject)
    try:
        await reader.need_request(request, subject)
        return await reader.answer(explain_request, subject, at)
    except NotThere:
        raise nothing_to_explain(subject) from None
