"""Answers from the log alone, as they go out: for HTTP, and for the command line on the folder of a stopped service.

They only read the log, so they may run in any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from controller.http import shaping
from controller.http.shapes import (
    BrokersShape,
    EventsShape,
    ExplanationShape,
    RequestShape,
    TopicShape,
    TopicsShape,
    TopicSummary,
)
from controller.http.shaping import Live
from controller.machine.state import Topic
from projections.explain import explain
from projections.listing import listing
from projections.query import NoTopic, Query
from projections.questions import Questions


def summaries(query: Questions, newest: Iterable[Topic], live: Live) -> list[TopicSummary]:
    """Topics of the live store for a list."""
    return [shaping.topic_summary(row, live) for row in query.rows(newest)]


def topics(query: Questions, page: Sequence[TopicSummary], next_after: str | None, end: Any) -> TopicsShape:
    """A page of the topics that there are."""
    return TopicsShape(tuple(page), next_after, shaping.as_of(query.as_of(end)))


def topic(query: Query, newest: Topic, live: Live, end: int) -> TopicShape:
    """A topic of the live store in full."""
    return shaping.topic(query.rows((newest,))[0], live, query.as_of(end))


def topics_at(query: Questions, at: str, after: str | None, limit: int) -> TopicsShape:
    """A page of the topics that there were at a moment. Raises BadMoment."""
    end = query.end(at)
    page, live = query.topics_at(end, after, limit), query.live_at(end)
    return topics(query, [shaping.topic_summary(row, live) for row in page.rows], page.next_after, end)


def topic_at(query: Query, name: str, at: str | None) -> TopicShape:
    """A topic as it was at a moment. Raises NoTopic, BadMoment."""
    end = query.end(at)
    return shaping.topic(query.topic_at(name, end), query.live_at(end), query.as_of(end))


def brokers(query: Questions, at: str | None) -> BrokersShape:
    """The brokers and settings at a moment. Raises BadMoment."""
    end = query.end(at)
    return shaping.brokers(query.cluster_at(end), query.as_of(end))


def events(
    query: Questions,
    start: int,
    limit: int,
    topic: str | None,
    request_id: str | None,
    partition: int | None = None,
    cursor: str | None = None,
) -> EventsShape:
    """A page of events: all, or those of a topic, of a request, or of a partition. Raises BadPlace."""
    found = listing(query, topic, request_id, partition)
    end = found.end()
    return shaping.events(found.page(found.place(start, cursor), limit, end), end)


def topic_events(query: Query, name: str, start: int, limit: int) -> EventsShape:
    """A page of the events of a name. Raises NoTopic where there never was one."""
    page = events(query, start, limit, name, None)
    if not page.events and next(query.topic_events(name), None) is None:
        raise NoTopic(f"no event speaks of a topic {name!r}")
    return page


def request(query: Questions, request_id: str) -> RequestShape:
    """A request. Raises NotThere."""
    return shaping.request(query.request(request_id))


def explanation(query: Questions, subject: str) -> ExplanationShape:
    """The chain of events behind a topic or a request. Raises NotThere."""
    return shaping.explanation(explain(query, subject))
