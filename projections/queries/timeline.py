"""When things happened: how many events fell into each span of time, and a topic's history folded by what caused it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import islice

import msgspec

from events.catalog import Recorded, TopicCreated, TopicReady
from events.logs.log import EventLog
from projections.queries.backwards import newest_of_topic
from projections.queries.query import Ends, Query, Questions
from projections.text.moments import end_at, time_at

EVENTS_PER_PAGE_MAX = 2000
"""Of a topic's timeline: how many events a page looks at before it ends."""


class Span(msgspec.Struct, frozen=True):
    """A span of time, the end of which belongs to the next one, and how many events happened in it."""

    start_at_ms: int
    end_at_ms: int
    events: int


class Fold(msgspec.Struct, frozen=True):
    """Events of a topic that one cause led to, in order; a create's go on until the topic is complete."""

    cause: str
    """The request, or whatever else led to them, by its id."""
    records: tuple[Recorded, ...]


class FoldPage(msgspec.Struct, frozen=True):
    """Folds, the newest first; the next page goes on before `next_before`, None at the end."""

    folds: tuple[Fold, ...]
    next_before: int | None


def spans(query: Questions, start: Ends, end: Ends, count: int) -> tuple[Span, ...]:
    """The events between two moments in `count` spans of the same length; none where there are no events.

    Each boundary is found by halving: it costs some twenty reads, whatever the size of the log.
    """
    parts = [(part.log, low, high) for part, low, high in zip(query.parts, start, end, strict=True)]
    times = [time for log, low, high in parts if low < high for time in (time_at(log, low + 1), time_at(log, high))]
    known = [time for time in times if time is not None]
    if not known:
        return ()
    first, last = min(known), max(known) + 1
    edges = sorted({first + (last - first) * number // count for number in range(count + 1)})
    passed = [sum(_before(log, edge, low, high) for log, low, high in parts) for edge in edges]
    return tuple(
        Span(edges[index], edges[index + 1], passed[index + 1] - passed[index]) for index in range(len(edges) - 1)
    )


def _before(log: EventLog, at_ms: int, low: int, high: int) -> int:
    """How many of the events from `low` to `high` happened before a time."""
    reached = end_at(log, datetime.fromtimestamp((at_ms - 1) / 1000, UTC))
    return max(low, min(reached, high)) - low


def folds(part: Query, name: str, before: int, limit: int) -> FoldPage:
    """Up to `limit` folds of the events of a name below an offset. A long fold may go on with the next page."""
    records = list(islice(newest_of_topic(part, name, before), EVENTS_PER_PAGE_MAX + 1))
    more = len(records) > EVENTS_PER_PAGE_MAX
    found = folded(reversed(records[:EVENTS_PER_PAGE_MAX]))
    found.reverse()
    page = tuple(found[:limit])
    if len(found) > limit or more:
        return FoldPage(page, min(fold.records[0].offset for fold in page))
    return FoldPage(page, None)


def folded(records: Iterable[Recorded]) -> list[Fold]:
    """Events of one name in order, those of one cause together; folds come in the order of their first events."""
    causes: list[tuple[str, list[Recorded]]] = []
    completing = ""
    for record in records:
        event = record.event
        cause: str = getattr(event, "request_id", "") or completing or record.cause.request_id
        if isinstance(event, TopicCreated):
            completing = cause
        elif isinstance(event, TopicReady):
            completing = ""
        if causes and causes[-1][0] == cause:
            causes[-1][1].append(record)
        else:
            causes.append((cause, [record]))
    return [Fold(cause, tuple(together)) for cause, together in causes]
