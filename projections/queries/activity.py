"""Activity over time for `/v1/timeline`: events, changes and refusals, offline partitions and fenced brokers in spans
of equal length.

Method. A binary search finds the number of events of each span, whatever the size of the log. The other numbers come
from the newest events, read backwards from the present counts: an event that took a partition offline means one less
before it. A span that begins before the oldest of these events has none of these numbers.
"""

from collections.abc import Sequence
from heapq import merge
from itertools import islice, pairwise

from msgspec.structs import replace

from controller.store.topic_indexes import Health
from events import access, catalog
from events.catalog import Partition, Recorded
from events.names import NO_LEADER, shard_key
from projections.queries.events import CHANGES, EVERY_EVENT, Window, backwards, end_before, starts
from projections.queries.past import everything
from projections.queries.query import Ends, Queries, Query
from projections.text.points_in_time import time_at
from projections.views.events import SpanView, TimelineView
from projections.views.view import times

EVENTS_READ_MAX = 2000
REFUSED = (catalog.CreateRejected, catalog.ChangeRejected, catalog.CreationRefused)


def timeline_page(query: Queries, window: Window, health: Health | None = None) -> TimelineView:
    """The activity in `window.limit` spans, with the present `health` if they end now. Raises InvalidPointInTime."""
    end, until = window.ends(query)
    found = _spans(query, starts(query, window.since), until, window.limit)
    return TimelineView(tuple(_detailed(query, found, until, health)), query.as_of(end))


def _spans(query: Queries, start: Ends, end: Ends, count: int) -> tuple[SpanView, ...]:
    """The number of events in each of `count` spans of equal length; empty without events.

    A binary search finds each boundary: about twenty reads, whatever the size of the log.
    """
    parts = [(part.log, low, high) for part, low, high in zip(query.parts, start, end, strict=True)]
    stamps = [time for log, low, high in parts if low < high for time in (time_at(log, low + 1), time_at(log, high))]
    known = [time for time in stamps if time is not None]
    if not known:
        return ()
    first, last = min(known), max(known) + 1
    edges = sorted({first + (last - first) * number // count for number in range(count + 1)})
    passed = [sum(max(low, min(end_before(log, edge), high)) - low for log, low, high in parts) for edge in edges]
    return tuple(
        SpanView(events=after - before, **times(start=low, end=high))
        for (low, high), (before, after) in zip(pairwise(edges), pairwise(passed), strict=True)
    )


def _detailed(
    query: Queries, found: Sequence[SpanView], end: Sequence[int], health: Health | None
) -> Sequence[SpanView]:
    fenced = {key for key, one in query.cluster_at(tuple(end)).brokers.items() if one.fenced}
    offline, under = (0, 0) if health is None else (health.offline, health.under_replicated)
    streams = [backwards(number, part, EVERY_EVENT, end[number], 0) for number, part in enumerate(query.parts)]
    newest_first = merge(*streams, key=lambda one: (-one[1].at_ms, -one[0], -one[1].offset))
    records = islice(newest_first, EVENTS_READ_MAX)
    detailed, rest = list(found), next(records, None)
    for place in range(len(found) - 1, -1, -1):
        changes = refused = 0
        down, worst, most = set(fenced), offline, under
        while rest is not None and rest[1].at_ms >= found[place].start_at_ms:
            number, record = rest
            event = record.event
            changes += type(event).__name__ in CHANGES
            refused += isinstance(event, REFUSED) + (event.count if isinstance(event, access.RequestsRefused) else 0)
            if isinstance(event, catalog.BrokerFenced | catalog.BrokerRegistered):
                fenced.discard(event.broker_id)
            elif isinstance(event, catalog.BrokerUnfenced):
                fenced.add(event.broker_id)
            gone, less = _effect(query.parts[number], record)
            offline, under = max(0, offline - gone), max(0, under - less)
            down, worst, most = down | fenced, max(worst, offline), max(most, under)
            rest = next(records, None)
        if rest is None and sum(end) > EVENTS_READ_MAX:
            break  # some events of this span were not read
        known = {} if health is None else {"offline": worst, "under_replicated": most}
        detailed[place] = replace(found[place], changes=changes, refused=refused, fenced=tuple(sorted(down)), **known)
    return detailed


def _effect(part: Query, record: Recorded) -> tuple[int, int]:
    """By how much an event raised the numbers of offline and of under-replicated partitions."""
    event = record.event
    before: Sequence[Partition] = ()
    after: Sequence[Partition] = ()
    if isinstance(event, catalog.PartitionChanged):
        before, after = (event.before,), (event.after,)
    elif isinstance(event, catalog.TopicCreated | catalog.PartitionsAdded):
        after = event.partitions
    elif isinstance(event, catalog.TopicDeleted | catalog.TopicVanished | catalog.TopicDiscovered):
        keys = (shard_key(event.topic),)
        rows = (part.topics_under(keys, end, everything)[0] for end in (record.offset, record.offset + 1))
        before, after = (() if row is None else row.partitions for row in rows)
    return _offline(after) - _offline(before), _under(after) - _under(before)


def _offline(partitions: Sequence[Partition]) -> int:
    return sum(one.leader == NO_LEADER for one in partitions)


def _under(partitions: Sequence[Partition]) -> int:
    return sum(len(one.isr) < len(one.replicas) for one in partitions)
