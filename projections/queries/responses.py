"""Answers from the log alone, as they go out: for HTTP, and for the command line on the folder of a stopped service.

They only read the log, so they may run in any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from controller.machine.configs.views import described_configs
from controller.machine.state import BROKERS, Settings, Topic, settings_from_pairs
from events.catalog import Configs, ResourceConfigsChanged
from events.names import Offset, shard_key
from projections.queries.explain import Explanation, explain
from projections.queries.listing import (
    EventFilter,
    Listing,
    cursor_of,
    listing,
    newest_first,
    newest_of_cluster,
    oldest_first,
)
from projections.queries.past import MayShow, TopicPage
from projections.queries.query import Ends, NoTopic, Query, Questions, everything
from projections.queries.topic_lists import EVERY_TOPIC, TopicFilter
from projections.store.creation_index import BIRTH_KINDS, BIRTH_TYPES
from projections.views import json_types, to_json
from projections.views import overview_types as types
from projections.views.to_json import Live
from projections.views.topics import TopicRow


def summaries(
    query: Questions, newest: Iterable[Topic], live: Live, which: TopicFilter = EVERY_TOPIC
) -> list[json_types.TopicSummary]:
    """Topics of the live store for a list, those that fit."""
    return [one for row in query.rows(newest) if _fits(one := to_json.topic_summary(row, live), which)]


def _fits(one: json_types.TopicSummary, which: TopicFilter) -> bool:
    return which.fits(one.status, one.placeholders, None if one.created_by is None else one.created_by.principal)


def topics(
    query: Questions,
    page: Sequence[json_types.TopicSummary],
    next_after: str | None,
    end: Ends,
    next_cursor: str | None = None,
) -> json_types.TopicsView:
    """A page of the topics that there are; where their names are in order, the next one goes on after a name."""
    return json_types.TopicsView(tuple(page), next_after, to_json.as_of(query.as_of(end)), next_after or next_cursor)


def topic(query: Query, newest: Topic, live: Live, end: int) -> json_types.TopicView:
    """A topic of the live store in full."""
    return to_json.topic(query.row(newest), live, query.as_of(end))


def topics_at(
    query: Questions,
    at: str,
    after: str | None,
    limit: int,
    may_show: MayShow = everything,
    place: Callable[[str], str] = str,
    which: TopicFilter = EVERY_TOPIC,
) -> json_types.TopicsView:
    """A page of the topics that there were at a moment, of those that may be shown; `place` writes a shard key that
    the next page goes on after, where that is no shown topic's. Raises BadMoment."""
    end = query.end(at)
    page, live = query.topics_at(end, after, limit, may_show), query.cluster_at(end).live
    shown = [one for row in page.rows if _fits(one := to_json.topic_summary(row, live), which)]
    return topics(query, shown, _next_after(page, place), end)


def newest_at(
    query: Questions,
    at: str,
    cursor: str | None,
    limit: int,
    may_show: MayShow = everything,
    which: TopicFilter = EVERY_TOPIC,
) -> json_types.TopicsView:
    """The same, the newest first: a page of what was created before the moment, of which some are gone by then. Raises
    BadMoment, BadPlace."""
    end, parts = query.end(at), query.parts
    births = Listing(parts)
    place = end if cursor is None else tuple(map(min, births.place(0, cursor), end))
    found = newest_first(births, EventFilter(types=BIRTH_TYPES), place, limit)
    created = [
        (number, record.offset, shard_key(record.event.topic))
        for number, record in found.events
        if isinstance(record.event, BIRTH_KINDS)
    ]
    rows: dict[tuple[int | None, Offset], TopicRow] = {}
    for part, until in zip(parts, end, strict=True):
        keys = list(dict.fromkeys(key for number, _, key in created if number == part.partition))
        under = part.topics_under(keys, until, may_show)
        rows |= {(part.partition, row.created_offset): row for row in under if row is not None}
    live = query.cluster_at(end).live
    there = (rows[number, offset] for number, offset, _ in created if (number, offset) in rows)
    shown = [one for row in there if _fits(one := to_json.topic_summary(row, live), which)]
    return topics(query, shown, None, end, None if found.next_place is None else cursor_of(found.next_place))


def _next_after(page: TopicPage, place: Callable[[str], str]) -> str | None:
    if page.rows and page.reached == shard_key(page.rows[-1].name):
        return page.rows[-1].name
    return None if page.reached is None else place(page.reached)


def topic_at(query: Query, name: str, at: str | None) -> json_types.TopicView:
    """A topic as it was at a moment. Raises NoTopic, BadMoment."""
    end = query.end(at)
    return to_json.topic(query.topic_at(name, end), query.live_at(end), query.as_of(end))


def brokers(query: Questions, at: str | None) -> json_types.BrokersView:
    """The brokers and settings at a moment. Raises BadMoment."""
    end = query.end(at)
    return to_json.brokers(query.cluster_at(end), query.as_of(end))


def events(
    query: Questions,
    start: int,
    limit: int,
    topic: str | None,
    request_id: str | None,
    partition: int | None = None,
    cursor: str | None = None,
    *,
    kind: str | None = None,
    newest: bool = False,
    at: str | None = None,
) -> json_types.EventsView:
    """A page of events: all, or those of a topic, of a request, of a partition, or of a kind; with `newest` the newest
    first, and then `start` is not looked at. Raises BadPlace, BadMoment."""
    found, which = (
        listing(query, topic, request_id, partition),
        EventFilter(topic, request_id, () if kind is None else (kind,)),
    )
    end = query.end(at) if len(found.parts) > 1 else (found.parts[0].end(at),)
    if newest:
        before = end if cursor is None else tuple(map(min, end, found.place(0, cursor)))
        return to_json.events(newest_first(found, which, before, limit), end, newest=True)
    place = found.place(start, cursor)
    page = found.page(place, limit, end) if kind is None else oldest_first(found, which, place, limit, end)
    return to_json.events(page, end)


def topic_events(query: Questions, page: json_types.EventsView, name: str) -> json_types.EventsView:
    """A page of the events of a name. Raises NoTopic where there never was one."""
    if not page.events and next(query.of_topic(name).topic_events(name), None) is None:
        raise NoTopic(f"no event speaks of a topic {name!r}")
    return page


def request(query: Questions, request_id: str, at: str | None = None) -> json_types.RequestView:
    """A request with the outcome of each of its topics, now or as of a moment. Raises NotThere, BadMoment."""
    return to_json.request(query.request(request_id, query.end(at)))


def explanation(
    query: Questions,
    subject: str,
    of: Callable[[Questions, str, str | None], Explanation] = explain,
    at: str | None = None,
) -> json_types.ExplanationView:
    """The chain of events behind a topic or a request; `of` says which of the two it is to be. Raises NotThere,
    BadMoment."""
    return to_json.explanation(of(query, subject, at))


def topic_configs(part: Query, configs: Configs, settings: Settings, end: int) -> types.TopicConfigsView:
    """What is in force of a topic that sets these configs itself, by these settings."""
    builtin = {entry.name: entry.value for entry in described_configs((), ())}
    shown = tuple(
        types.ConfigView(
            name=entry.name,
            value=entry.value,
            source=entry.source.name,
            default=None if entry.sensitive else builtin.get(entry.name),
            sensitive=entry.sensitive,
        )
        for entry in described_configs(configs, settings.topic_defaults, settings.dynamic_defaults)
    )
    return types.TopicConfigsView(shown, to_json.as_of(part.as_of(end)))


def topic_configs_at(part: Query, name: str, at: str | None) -> types.TopicConfigsView:
    """The same of a topic as it was. Raises NoTopic, BadMoment."""
    end = part.end(at)
    row, cluster = part.topic_at(name, end), part.cluster_at(end)
    settings = settings_from_pairs(cluster.settings)
    static = Settings(topic_defaults=settings.topic_defaults, dynamic_defaults=_dynamic_defaults(part, end))
    return topic_configs(part, row.configs, static, end)


def _dynamic_defaults(part: Query, end: int) -> Configs:
    """What all brokers had as dynamic configs."""
    for record in newest_of_cluster(part, end):
        event = record.event
        if isinstance(event, ResourceConfigsChanged) and (event.kind, event.name) == (BROKERS, ""):
            return event.configs
    return ()
