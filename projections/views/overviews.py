"""What shows many things at once, from the log alone: requests by time, a summary, timelines, one broker.

They only read the log, so they may run in any thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice

import msgspec

from controller.policy.in_force import PolicyInForce
from events.names import BrokerId
from projections.queries.backwards import newest_of_broker
from projections.queries.counting import Counted, counted_at
from projections.queries.listing import Listing, cursor_of
from projections.queries.query import AsOf, Ends, NoTopic, NotThere, Questions
from projections.queries.requests import MayShow, RequestFilter, everyone, requests_page, starts
from projections.queries.timeline import Fold, Span, folds, spans
from projections.store.request_index import RULE, IndexedRequest, values_of
from projections.text.moments import iso
from projections.text.wording import in_words
from projections.views import overview_types as types
from projections.views import to_json
from projections.views.json_types import AsOfView

DAY_MS = 86_400_000
NEWEST_SHOWN = 10
REFUSALS_LOOKED_AT_MAX = 3000
"""Of all rules together, some tens of milliseconds: the more rules, the earlier counting ends."""
RULES_SHOWN_MAX = 100
BROKER_EVENTS_SHOWN = 20
TEXTS_SHOWN_MAX = 20
PRINCIPALS_SHOWN = 10
POLICY_SETTING = "create.topic.policy.class.name"


class Window(msgspec.Struct, frozen=True):
    """Which part of a list: of which time, as of when, how many, and from where the page before has ended."""

    since: str | None = None
    until: str | None = None
    at: str | None = None
    limit: int = 100
    cursor: str | None = None


def requests(
    query: Questions, which: RequestFilter, window: Window, may_show: MayShow = everyone
) -> types.RequestsView:
    """A page of requests, the newest first. Raises BadMoment, BadPlace."""
    end = query.end(window.at)
    until = end if window.until is None else tuple(map(min, end, query.end(window.until)))
    if window.cursor is not None:
        until = tuple(map(min, until, Listing(query.parts).place(0, window.cursor)))
    since = starts(query, window.since)
    page = requests_page(query, which, end, until=until, since=since, limit=window.limit, may_show=may_show)
    cursor = None if page.next_place is None else cursor_of(page.next_place)
    shown = tuple(map(_request, page.requests))
    return types.RequestsView(shown, cursor, to_json.as_of(query.as_of(end)))


def timeline(query: Questions, window: Window) -> types.TimelineView:
    """How many events happened when; the limit is the number of spans. Raises BadMoment."""
    end = query.end(window.at)
    until = end if window.until is None else tuple(map(min, end, query.end(window.until)))
    found = spans(query, starts(query, window.since), until, window.limit)
    return types.TimelineView(tuple(map(_span, found)), to_json.as_of(query.as_of(end)))


def topic_timeline(query: Questions, name: str, window: Window) -> types.TopicTimelineView:
    """A topic's history folded by cause, the newest first. Raises NoTopic where there never was one, BadMoment,
    BadPlace."""
    part = query.of_topic(name)
    end = part.end(window.at)
    before = end if window.cursor is None else min(end, Listing([part]).place(0, window.cursor)[0])
    page = folds(part, name, before, window.limit)
    if not page.folds and next(part.topic_events(name, 0, end), None) is None:
        raise NoTopic(f"no event speaks of a topic {name!r}")
    cursor = None if page.next_before is None else cursor_of((page.next_before,))
    return types.TopicTimelineView(tuple(map(_fold, page.folds)), cursor, to_json.as_of(part.as_of(end)))


def summary(query: Questions, at: str | None, now: types.SummaryView | None = None) -> types.SummaryView:
    """The summary of a moment; `now` has what the live store counts, and no more: of then it is counted here, where
    that is little work. Raises BadMoment."""
    end = query.end(at)
    cluster = query.cluster_at(end)
    newest = requests_page(
        query, RequestFilter(), end, until=end, since=(0,) * len(end), limit=NEWEST_SHOWN, looked_at_max=NEWEST_SHOWN
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
        as_of=to_json.as_of(moment),
    )


NOTHING_COUNTED = types.SummaryView(
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
    as_of=AsOfView(-1, None, None),
)


def _refused_of_day(query: Questions, end: Ends, moment: AsOf) -> tuple[types.RefusedView, ...]:
    if moment.at_ms is None:
        return ()
    return tuple(_refused(query, end, starts(query, f"{max(0, moment.at_ms - DAY_MS)}ms")))


def counted_in(shape: types.SummaryView, counted: Counted | None) -> types.SummaryView:
    """A summary with what was counted of topics and partitions."""
    if counted is None:
        return shape
    trouble, loads = counted.tallies.trouble, counted.tallies.brokers
    return msgspec.structs.replace(
        shape,
        topics=counted.topics,
        partitions=counted.partitions,
        topics_pending=counted.pending,
        under_replicated_partitions=trouble.under_replicated,
        offline_partitions=trouble.leaderless,
        placeholders=trouble.placeholders,
        loads=tuple(types.LoadView(broker_id, *load) for broker_id, load in sorted(loads.items())),
    )


def _refused(query: Questions, end: Ends, since: Ends) -> Iterable[types.RefusedView]:
    rules = dict.fromkeys(rule for part in query.parts for rule in islice(values_of(part.log, RULE), RULES_SHOWN_MAX))
    looked_at_max = REFUSALS_LOOKED_AT_MAX // max(1, min(len(rules), RULES_SHOWN_MAX))
    for rule in list(rules)[:RULES_SHOWN_MAX]:
        page = requests_page(
            query,
            RequestFilter(rule=rule),
            end,
            until=end,
            since=since,
            limit=looked_at_max,
            looked_at_max=looked_at_max,
        )
        if page.requests:
            by: Counter[str] = Counter()
            for one in page.requests:
                by[one.principal] += dict(one.outcomes).get("rejected", 0)
            yield types.RefusedView(
                rule=rule,
                count=by.total(),
                by=tuple(types.RefusedByShape(*pair) for pair in by.most_common(PRINCIPALS_SHOWN)),
                more=page.next_place is not None,
                latest=_request(page.requests[0]),
            )


def policies(query: Questions, at: str | None, in_force: tuple[PolicyInForce, ...] | None) -> types.PoliciesView:
    """What judges creates, and what was refused; `in_force` are the policies of now, where they are known. Raises
    BadMoment."""
    end = query.end(at)
    named = dict(query.cluster_at(end).settings).get(POLICY_SETTING, "")
    moment = query.as_of(end)
    return types.PoliciesView(
        class_names=tuple(name.strip() for name in named.split(",") if name.strip()),
        policies=in_force if at is None else None,
        refused=_refused_of_day(query, end, moment),
        as_of=to_json.as_of(moment),
    )


def broker(
    query: Questions, broker_id: int, at: str | None, load: tuple[int, int] | None = None
) -> types.BrokerDetailView:
    """One broker as it was at a moment, with the newest events of its own; `load` has how many partitions it leads now
    and how many replicas it has: of then they are counted, as in the summary. Raises NotThere, BadMoment."""
    end = query.end(at)
    row = query.cluster_at(end).brokers.get(BrokerId(broker_id))
    if row is None:
        raise NotThere(f"there is no broker {broker_id}")
    counted = counted_at(query, end) if load is None else None
    if counted is not None:
        load = counted.tallies.brokers.get(broker_id, (0, 0))
    part = query.parts[0]
    events = islice(newest_of_broker(part, broker_id, end[0]), BROKER_EVENTS_SHOWN)
    return types.BrokerDetailView(
        **msgspec.structs.asdict(to_json.broker(row)),
        leaders=None if load is None else load[0],
        replicas=None if load is None else load[1],
        events=tuple(to_json.event(record, part.partition) for record in events),
        as_of=to_json.as_of(query.as_of(end)),
    )


def _request(one: IndexedRequest) -> types.RequestSummary:
    return to_json.shape(types.RequestSummary, one, outcomes=dict(one.outcomes))


def _span(one: Span) -> types.SpanShape:
    return to_json.shape(types.SpanShape, one)


def _fold(one: Fold) -> types.FoldShape:
    first, last = one.records[0], one.records[-1]
    who = next((record.event for record in one.records if hasattr(record.event, "principal")), None)
    return types.FoldShape(
        cause=one.cause,
        command=first.cause.command,
        principal=getattr(who, "principal", None),
        client_id=getattr(who, "client_id", None),
        at=iso(first.at_ms),
        at_ms=first.at_ms,
        until_at=iso(last.at_ms),
        until_at_ms=last.at_ms,
        first_offset=first.offset,
        last_offset=last.offset,
        num_events=len(one.records),
        types=dict(Counter(type(record.event).__name__ for record in one.records)),
        texts=tuple(in_words(record.event) for record in one.records[:TEXTS_SHOWN_MAX]),
    )
