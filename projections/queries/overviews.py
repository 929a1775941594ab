"""Responses about many things at once: lists of requests, the summary, timelines, one broker.

They read only the log, so they may run in any thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice, pairwise

import msgspec

from controller.policy.interface import PolicyInForce
from events.catalog import Recorded, TopicCreated, TopicReady
from events.logs.log import EventLog
from events.names import BrokerId
from projections.queries.listing import Listing, cursor_of, newest_of_broker, newest_of_topic
from projections.queries.query import Ends, NoTopic, NotThere, Query, Questions
from projections.queries.requests import MayShow, RequestFilter, everyone, requests_page, starts
from projections.queries.topic_lists import Counted, counted_at
from projections.store.request_index import RULE, IndexedRequest, values_of
from projections.text.moments import end_at, iso, time_at
from projections.text.wording import event_text
from projections.views.events import EventGroupView, SpanView, TimelineView, TopicTimelineView, event_view
from projections.views.overviews import (
    BrokerDetailView,
    LoadView,
    PoliciesView,
    RefusedByView,
    RefusedView,
    SummaryView,
)
from projections.views.requests import RequestSummary, RequestsView
from projections.views.view import AsOfView, as_of, view_of

DAY_MS = 86_400_000
NEWEST_SHOWN = 10
REFUSALS_SCANNED_MAX = 3000
"""For all rules together, a few tens of milliseconds; divided among the rules."""
RULES_SHOWN_MAX = 100
BROKER_EVENTS_SHOWN = 20
TEXTS_SHOWN_MAX = 20
PRINCIPALS_SHOWN = 10
POLICY_SETTING = "create.topic.policy.class.name"


class Window(msgspec.Struct, frozen=True):
    """A page of a list: its time range, point in time, length and cursor."""

    since: str | None = None
    until: str | None = None
    at: str | None = None
    limit: int = 100
    cursor: str | None = None


def requests(query: Questions, which: RequestFilter, window: Window, may_show: MayShow = everyone) -> RequestsView:
    """A page of requests, the newest first. Raises BadMoment, BadPlace."""
    end = query.end(window.at)
    until = end if window.until is None else tuple(map(min, end, query.end(window.until)))
    if window.cursor is not None:
        until = tuple(map(min, until, Listing(query.parts).place(0, window.cursor)))
    since = starts(query, window.since)
    page = requests_page(query, which, end, until=until, since=since, limit=window.limit, may_show=may_show)
    cursor = None if page.next_place is None else cursor_of(page.next_place)
    shown = tuple(map(_request, page.requests))
    return RequestsView(shown, cursor, query.as_of(end))


def timeline(query: Questions, window: Window) -> TimelineView:
    """The number of events over time, in `window.limit` spans. Raises BadMoment."""
    end = query.end(window.at)
    until = end if window.until is None else tuple(map(min, end, query.end(window.until)))
    found = spans(query, starts(query, window.since), until, window.limit)
    return TimelineView(found, query.as_of(end))


def topic_timeline(query: Questions, name: str, window: Window) -> TopicTimelineView:
    """The events of a topic grouped by cause, the newest first. Raises NoTopic if there never was one, BadMoment,
    BadPlace."""
    part = query.of_topic(name)
    end = part.end(window.at)
    before = end if window.cursor is None else min(end, Listing([part]).place(0, window.cursor)[0])
    page, next_before = groups(part, name, before, window.limit)
    if not page and next(part.topic_events(name, 0, end), None) is None:
        raise NoTopic(f"there was never a topic {name!r}")
    cursor = None if next_before is None else cursor_of((next_before,))
    return TopicTimelineView(page, cursor, part.as_of(end))


def summary(query: Questions, at: str | None, now: SummaryView | None = None) -> SummaryView:
    """The summary at a point in time. `now` has the counts of the live store; the past is counted here if that is
    quick. Raises BadMoment."""
    end = query.end(at)
    cluster = query.cluster_at(end)
    newest = requests_page(
        query, RequestFilter(), end, until=end, since=(0,) * len(end), limit=NEWEST_SHOWN, scanned_max=NEWEST_SHOWN
    )
    moment = query.as_of(end)
    return msgspec.structs.replace(
        now or counted_in(NOTHING_COUNTED, counted_at(query, end)),
        brokers_registered=len(cluster.brokers),
        live=tuple(sorted(cluster.live)),
        fenced=tuple(sorted(key for key, one in cluster.brokers.items() if one.fenced)),
        refused=_refused_of_day(query, end, moment),
        newest=tuple(map(_request, newest.requests)),
        release=cluster.release,
        as_of=moment,
    )


NOTHING_COUNTED = SummaryView(
    topics=None,
    partitions=None,
    topics_pending=None,
    requests_open=None,
    under_replicated_partitions=None,
    offline_partitions=None,
    placeholders=None,
    loads=(),
    brokers_registered=0,
    live=(),
    fenced=(),
    waiting=(),
    refused=(),
    newest=(),
    release="",
    as_of=as_of(-1, None),
)


def _refused_of_day(query: Questions, end: Ends, moment: AsOfView) -> tuple[RefusedView, ...]:
    if moment.at_ms is None:
        return ()
    return tuple(_refused(query, end, starts(query, f"{max(0, moment.at_ms - DAY_MS)}ms")))


def counted_in(summary: SummaryView, counted: Counted | None) -> SummaryView:
    """A summary with these counts."""
    if counted is None:
        return summary
    health, loads = counted.tallies.health, counted.tallies.brokers
    return msgspec.structs.replace(
        summary,
        topics=counted.topics,
        partitions=counted.partitions,
        topics_pending=counted.pending,
        under_replicated_partitions=health.under_replicated,
        offline_partitions=health.offline,
        placeholders=health.placeholders,
        loads=tuple(LoadView(broker_id, *load) for broker_id, load in sorted(loads.items())),
    )


def _refused(query: Questions, end: Ends, since: Ends) -> Iterable[RefusedView]:
    rules = dict.fromkeys(rule for part in query.parts for rule in islice(values_of(part.log, RULE), RULES_SHOWN_MAX))
    scanned_max = REFUSALS_SCANNED_MAX // max(1, min(len(rules), RULES_SHOWN_MAX))
    for rule in list(rules)[:RULES_SHOWN_MAX]:
        page = requests_page(
            query,
            RequestFilter(rule=rule),
            end,
            until=end,
            since=since,
            limit=scanned_max,
            scanned_max=scanned_max,
        )
        if page.requests:
            by: Counter[str] = Counter()
            for one in page.requests:
                by[one.principal] += dict(one.outcomes).get("rejected", 0)
            yield RefusedView(
                rule=rule,
                count=by.total(),
                by=tuple(RefusedByView(*pair) for pair in by.most_common(PRINCIPALS_SHOWN)),
                more=page.next_place is not None,
                latest=_request(page.requests[0]),
            )


def policies(query: Questions, at: str | None, in_force: tuple[PolicyInForce, ...] | None) -> PoliciesView:
    """The create-topic policies, and the refusals. `in_force` are the current policies, if known. Raises BadMoment."""
    end = query.end(at)
    named = dict(query.cluster_at(end).settings).get(POLICY_SETTING, "")
    moment = query.as_of(end)
    return PoliciesView(
        class_names=tuple(name.strip() for name in named.split(",") if name.strip()),
        policies=in_force if at is None else None,
        refused=_refused_of_day(query, end, moment),
        as_of=moment,
    )


def broker(query: Questions, broker_id: int, at: str | None, load: tuple[int, int] | None = None) -> BrokerDetailView:
    """A broker at a point in time, with its newest events. `load` has its current numbers of leaders and replicas; the
    past is counted as in the summary. Raises NotThere, BadMoment."""
    end = query.end(at)
    row = query.cluster_at(end).brokers.get(BrokerId(broker_id))
    if row is None:
        raise NotThere(f"there is no broker {broker_id}")
    counted = counted_at(query, end) if load is None else None
    if counted is not None:
        load = counted.tallies.brokers.get(broker_id, (0, 0))
    part = query.parts[0]
    events = islice(newest_of_broker(part, broker_id, end[0]), BROKER_EVENTS_SHOWN)
    return BrokerDetailView(
        **msgspec.structs.asdict(row),
        leaders=None if load is None else load[0],
        replicas=None if load is None else load[1],
        events=tuple(event_view(record, part.partition) for record in events),
        as_of=query.as_of(end),
    )


def _request(one: IndexedRequest) -> RequestSummary:
    return view_of(RequestSummary, one, outcomes=dict(one.outcomes))


def _group(cause: str, records: Sequence[Recorded]) -> EventGroupView:
    first, last = records[0], records[-1]
    who = next((record.event for record in records if hasattr(record.event, "principal")), None)
    return EventGroupView(
        cause=cause,
        command=first.cause.command,
        principal=getattr(who, "principal", None),
        client_id=getattr(who, "client_id", None),
        at=iso(first.at_ms),
        at_ms=first.at_ms,
        until_at=iso(last.at_ms),
        until_at_ms=last.at_ms,
        first_offset=first.offset,
        last_offset=last.offset,
        num_events=len(records),
        types=dict(Counter(type(record.event).__name__ for record in records)),
        texts=tuple(event_text(record.event) for record in records[:TEXTS_SHOWN_MAX]),
    )


EVENTS_PER_PAGE_MAX = 2000
"""A page of a topic's timeline reads no more events."""


def spans(query: Questions, start: Ends, end: Ends, count: int) -> tuple[SpanView, ...]:
    """The number of events in each of `count` spans of equal length; empty without events.

    A binary search finds each boundary: about twenty reads, whatever the size of the log.
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
        SpanView(start_at=iso(low), start_at_ms=low, end_at=iso(high), end_at_ms=high, events=after - before)
        for (low, high), (before, after) in zip(pairwise(edges), pairwise(passed), strict=True)
    )


def _before(log: EventLog, at_ms: int, low: int, high: int) -> int:
    """The number of events at offsets from `low` until before `high` that happened before a time."""
    reached = end_at(log, datetime.fromtimestamp((at_ms - 1) / 1000, UTC))
    return max(low, min(reached, high)) - low


def groups(part: Query, name: str, before: int, limit: int) -> tuple[tuple[EventGroupView, ...], int | None]:
    """Up to `limit` groups of the events of a name below an offset, the newest first, and the offset before which the
    next page continues, None at the end. A large group may continue on the next page."""
    records = list(islice(newest_of_topic(part, name, before), EVENTS_PER_PAGE_MAX + 1))
    more = len(records) > EVENTS_PER_PAGE_MAX
    found = grouped(reversed(records[:EVENTS_PER_PAGE_MAX]))[::-1]
    page = tuple(_group(*one) for one in found[:limit])
    return page, min(one.first_offset for one in page) if len(found) > limit or more else None


def grouped(records: Iterable[Recorded]) -> list[tuple[str, list[Recorded]]]:
    """Events of one name, in order, grouped by the request id of their cause. The group of a create continues until the
    topic is ready."""
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
    return causes
