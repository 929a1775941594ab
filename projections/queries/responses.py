"""Responses from the log: for HTTP, and for the command line on the data folder of a stopped service.

They read only the log, so they may run in any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from controller.machine.configs.views import described_configs
from controller.machine.state import BROKERS, Settings, Topic, settings_from_pairs
from events.catalog import Configs, ResourceConfigsChanged
from events.names import Offset, shard_key
from projections.queries.listing import (
    EventFilter,
    Listed,
    Listing,
    Place,
    cursor_of,
    listing,
    newest_first,
    newest_of_cluster,
    oldest_first,
)
from projections.queries.past import MayShow, TopicPage
from projections.queries.query import Ends, NoTopic, Query, Questions, everything
from projections.queries.topic_lists import EVERY_TOPIC, TopicFilter
from projections.store.topic_indexes import CREATION_KINDS, CREATION_TYPES
from projections.views.brokers import BrokersView
from projections.views.events import EventsView, event_view
from projections.views.requests import RequestView
from projections.views.rows import TopicRow
from projections.views.topics import (
    ConfigView,
    Live,
    TopicConfigsView,
    TopicSummary,
    TopicsView,
    TopicView,
    topic_summary,
    topic_view,
)


def summaries(
    query: Questions, newest: Iterable[Topic], live: Live, which: TopicFilter = EVERY_TOPIC
) -> list[TopicSummary]:
    """The topics of the live store that match."""
    return [one for row in query.rows(newest) if _matches(one := topic_summary(row, live), which)]


def _matches(one: TopicSummary, which: TopicFilter) -> bool:
    return which.matches(one.status, one.placeholders, None if one.created_by is None else one.created_by.principal)


def topics(
    query: Questions,
    page: Sequence[TopicSummary],
    next_after: str | None,
    end: Ends,
    next_cursor: str | None = None,
) -> TopicsView:
    """A page of topics; in a list ordered by name the next page starts after a name."""
    return TopicsView(tuple(page), next_after, query.as_of(end), next_after or next_cursor)


def topic(query: Query, newest: Topic, live: Live, end: int) -> TopicView:
    """A topic of the live store."""
    return topic_view(query.row(newest), live, query.as_of(end))


def topics_at(
    query: Questions,
    at: str,
    after: str | None,
    limit: int,
    may_show: MayShow = everything,
    place: Callable[[str], str] = str,
    which: TopicFilter = EVERY_TOPIC,
) -> TopicsView:
    """A page of the topics at a point in time that the caller may see. `place` encodes the shard key after which the
    next page starts, if that is not the key of a visible topic. Raises BadMoment."""
    end = query.end(at)
    page, live = query.topics_at(end, after, limit, may_show), query.cluster_at(end).live
    shown = [one for row in page.rows if _matches(one := topic_summary(row, live), which)]
    return topics(query, shown, _next_after(page, place), end)


def newest_at(
    query: Questions,
    at: str,
    cursor: str | None,
    limit: int,
    may_show: MayShow = everything,
    which: TopicFilter = EVERY_TOPIC,
) -> TopicsView:
    """A page of the topics at a point in time, the newest first. It scans creations, so it may have fewer topics than
    its limit. Raises BadMoment, BadPlace."""
    end, parts = query.end(at), query.parts
    creations = Listing(parts)
    place = end if cursor is None else tuple(map(min, creations.place(0, cursor), end))
    found = newest_first(creations, EventFilter(types=CREATION_TYPES), place, limit)
    created = [
        (number, record.offset, shard_key(record.event.topic))
        for number, record in found.events
        if isinstance(record.event, CREATION_KINDS)
    ]
    rows: dict[tuple[int | None, Offset], TopicRow] = {}
    for part, until in zip(parts, end, strict=True):
        keys = list(dict.fromkeys(key for number, _, key in created if number == part.partition))
        under = part.topics_under(keys, until, may_show)
        rows |= {(part.partition, row.created_offset): row for row in under if row is not None}
    live = query.cluster_at(end).live
    there = (rows[number, offset] for number, offset, _ in created if (number, offset) in rows)
    shown = [one for row in there if _matches(one := topic_summary(row, live), which)]
    return topics(query, shown, None, end, None if found.next_place is None else cursor_of(found.next_place))


def _next_after(page: TopicPage, place: Callable[[str], str]) -> str | None:
    if page.rows and page.reached == shard_key(page.rows[-1].name):
        return page.rows[-1].name
    return None if page.reached is None else place(page.reached)


def topic_at(query: Query, name: str, at: str | None) -> TopicView:
    """A topic at a point in time. Raises NoTopic, BadMoment."""
    end = query.end(at)
    return topic_view(query.topic_at(name, end), query.live_at(end), query.as_of(end))


def brokers(query: Questions, at: str | None) -> BrokersView:
    """The brokers and settings at a point in time. Raises BadMoment."""
    end = query.end(at)
    return query.cluster_at(end).view(query.as_of(end))


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
) -> EventsView:
    """A page of events: all, or those of a topic, a request, a partition or a type. With `newest` the newest come
    first, and `start` is ignored. Raises BadPlace, BadMoment."""
    found = listing(query, topic, request_id, partition)
    which = EventFilter(topic, request_id, () if kind is None else (kind,))
    end = query.end(at) if len(found.parts) > 1 else (found.parts[0].end(at),)
    if newest:
        before = end if cursor is None else tuple(map(min, end, found.place(0, cursor)))
        return _events(newest_first(found, which, before, limit), end, newest=True)
    place = found.place(start, cursor)
    page = found.page(place, limit, end) if kind is None else oldest_first(found, which, place, limit, end)
    return _events(page, end)


def _events(page: Listed, end: Place, *, newest: bool = False) -> EventsView:
    shown = tuple(event_view(record, partition) for partition, record in page.events)
    if page.next_place is None:
        return EventsView(shown, None, sum(end))
    following = page.next_place[0] if len(end) == 1 and not newest else None
    return EventsView(shown, following, sum(end), cursor_of(page.next_place))


def topic_events(query: Questions, page: EventsView, name: str) -> EventsView:
    """The page, unless there never was such a topic. Raises NoTopic."""
    if not page.events and next(query.of_topic(name).topic_events(name), None) is None:
        raise NoTopic(f"there was never a topic {name!r}")
    return page


def request(query: Questions, request_id: str, at: str | None = None) -> RequestView:
    """A request with its outcome for each topic, now or at a point in time. Raises NotThere, BadMoment."""
    return query.request(request_id, query.end(at))


def topic_configs(part: Query, configs: Configs, settings: Settings, end: int) -> TopicConfigsView:
    """The effective configs of a topic with these explicit configs under these settings."""
    builtin = {entry.name: entry.value for entry in described_configs((), ())}
    shown = tuple(
        ConfigView(
            name=entry.name,
            value=entry.value,
            source=entry.source.name,
            default=None if entry.sensitive else builtin.get(entry.name),
            sensitive=entry.sensitive,
        )
        for entry in described_configs(configs, settings.topic_defaults, settings.dynamic_defaults)
    )
    return TopicConfigsView(shown, part.as_of(end))


def topic_configs_at(part: Query, name: str, at: str | None) -> TopicConfigsView:
    """The effective configs of a topic at a point in time. Raises NoTopic, BadMoment."""
    end = part.end(at)
    row, cluster = part.topic_at(name, end), part.cluster_at(end)
    settings = settings_from_pairs(cluster.settings)
    static = Settings(topic_defaults=settings.topic_defaults, dynamic_defaults=_dynamic_defaults(part, end))
    return topic_configs(part, row.configs, static, end)


def _dynamic_defaults(part: Query, end: int) -> Configs:
    """The dynamic configs of all brokers (the default resource)."""
    for record in newest_of_cluster(part, end):
        event = record.event
        if isinstance(event, ResourceConfigsChanged) and (event.kind, event.name) == (BROKERS, ""):
            return event.configs
    return ()
