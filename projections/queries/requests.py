"""Clients' requests, the newest first, a page at a time: of one log, or of several partitions together.

A request is found by the value that the fewest have, and looked at for the others. A page looks at so many requests and
no more: it may have fewer than its limit, and says where to go on. A request of several partitions is shown once, where
its newest part is, with what the others have added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from heapq import merge

import msgspec
from msgspec.structs import replace

from projections.queries.listing import Place
from projections.queries.past import EVENTS_PER_STRETCH
from projections.queries.query import Ends, Query, Questions
from projections.store.request_index import (
    API,
    NAMED_MAX,
    OUTCOME,
    PRINCIPAL,
    RULE,
    IndexedRequest,
    Kind,
    newest_requests,
    request_until,
)
from projections.text.moments import end_at, parse_moment

_EPOCH = datetime.fromtimestamp(0, UTC)
LOOKED_AT_MAX = 20_000
"""Of requests: how many a page looks at before it ends, some tenths of a second."""

MayShow = Callable[[IndexedRequest], bool]
"""Whether a request is shown."""


def everyone(request: IndexedRequest) -> bool:
    """Shows the requests of everyone."""
    return True


class RequestFilter(msgspec.Struct, frozen=True):
    """Which requests: all, or those with each of the values that are given."""

    principal: str | None = None
    outcome: str | None = None
    rule: str | None = None
    api: str | None = None
    host: str | None = None

    def found_by(self, *, is_now: bool) -> RequestFilter:
        """The value by which to find them: the one that the fewest have. Outcomes change, so they find what is now."""
        if self.rule is not None:
            return RequestFilter(rule=self.rule)
        if self.principal is not None:
            return RequestFilter(principal=self.principal)
        if self.outcome is not None and is_now:
            return RequestFilter(outcome=self.outcome)
        return RequestFilter(api=self.api)

    @property
    def facet(self) -> tuple[Kind, str] | None:
        """The value of one that has a single value; None of one without."""
        values: tuple[tuple[Kind, str | None], ...] = (
            (RULE, self.rule),
            (PRINCIPAL, self.principal),
            (OUTCOME, self.outcome),
            (API, self.api),
        )
        return next(((kind, value) for kind, value in values if value is not None), None)

    def has(self, request: IndexedRequest) -> bool:
        """Whether a request is one of them."""
        return (
            self.principal in (None, request.principal)
            and self.api in (None, request.api)
            and self.host in (None, request.host)
            and (self.rule is None or self.rule in request.rules)
            and (self.outcome is None or any(self.outcome == outcome for outcome, _ in request.outcomes))
        )


class RequestsPage(msgspec.Struct, frozen=True):
    """Requests, the newest first; `next_place` is where the next page goes on, None at the end."""

    requests: tuple[IndexedRequest, ...]
    next_place: Place | None


def starts(query: Questions, since: str | None) -> Ends:
    """For each log the offset of the first event at or after a moment; None is the beginning. Raises BadMoment."""
    if since is None:
        return (0,) * len(query.parts)
    moment = parse_moment(since)
    if isinstance(moment, datetime):
        before = max(moment, _EPOCH) - timedelta(milliseconds=1)
        return tuple(end_at(part.log, before) for part in query.parts)
    query.end(since)  # raises where it is not reached, or where the log has partitions
    return (moment,)


def requests_page(
    query: Questions,
    which: RequestFilter,
    end: Ends,
    *,
    until: Place,
    since: Place,
    limit: int,
    may_show: MayShow = everyone,
    looked_at_max: int = LOOKED_AT_MAX,
) -> RequestsPage:
    """Up to `limit` requests that were made before `until` and not before `since`, as they fared with the events before
    `end`."""
    by = which.found_by(is_now=end == query.end())
    by_time = [
        _each(number, part, by.facet, until[number], since[number], end[number])
        for number, part in enumerate(query.parts)
    ]
    found: list[IndexedRequest] = []
    reached = list(until)
    in_order = merge(*by_time, key=lambda one: (-one[1].requested_at_ms, -one[0], -one[1].requested_offset))
    for looked_at, (number, request) in enumerate(in_order):
        if len(found) == limit or looked_at == looked_at_max:
            return RequestsPage(tuple(found), tuple(reached))
        reached[number] = request.requested_offset
        whole = request if len(query.parts) == 1 else _whole(query, by, number, request, end)
        if whole is not None and which.has(whole) and may_show(whole):
            found.append(whole)
        if looked_at % EVENTS_PER_STRETCH == EVENTS_PER_STRETCH - 1:
            query.parts[number].rest()
    return RequestsPage(tuple(found), None)


def _each(
    number: int, part: Query, facet: tuple[Kind, str] | None, until: int, since: int, end: int
) -> Iterator[tuple[int, IndexedRequest]]:
    for first in newest_requests(part.log, min(until, end), facet):
        if first < since:
            return
        request = request_until(part.log, first, end)
        if request is not None:
            yield number, request


def _whole(
    query: Questions, by: RequestFilter, number: int, request: IndexedRequest, end: Ends
) -> IndexedRequest | None:
    """A request with its parts in other partitions; None where it is found with one of these."""
    whole = request
    for other, part in enumerate(query.parts):
        if other == number or request.counted:
            continue
        first = next(part.log.request_offsets(request.request_id), None)
        same = None if first is None else request_until(part.log, first, end[other])
        if same is None:
            continue
        if (same.requested_at_ms, other) > (request.requested_at_ms, number) and by.has(same):
            return None
        whole = _together(whole, same)
    return whole


def _together(one: IndexedRequest, other: IndexedRequest) -> IndexedRequest:
    counts = dict(one.outcomes)
    for outcome, count in other.outcomes:
        counts[outcome] = counts.get(outcome, 0) + count
    return replace(
        one,
        topics=(*one.topics, *other.topics)[:NAMED_MAX],
        num_topics=one.num_topics + other.num_topics,
        outcomes=tuple(counts.items()),
        rules=tuple(dict.fromkeys((*one.rules, *other.rules))),
    )
