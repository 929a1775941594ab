"""Pages of clients' requests (`/v1/requests`), the newest first, of one log or of several partitions.

The index finds requests by the most selective value of the filter; the other values are then compared. A page scans a
limited number of requests, so it may have fewer than its limit. A request with topics in several partitions has a part
in each. It is listed once, at its newest part, with the topics of all parts.
"""

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import partial
from heapq import merge

import msgspec
from msgspec.structs import replace

from controller.store import request_index
from events.logs.log import request_offsets
from projections.queries.events import Place, Window, next_cursor, starts
from projections.queries.past import EVENTS_PER_PAUSE, everything
from projections.queries.query import Ends, Queries, Query
from projections.text.names import is_pattern
from projections.views.requests import RequestSummary, RequestsView
from projections.views.view import view_of

SCANNED_MAX = 20_000
"""A page ends after scanning so many requests, which takes some tenths of a second."""

MayShow = Callable[[request_index.IndexedRequest], bool]
"""True if the caller may see a request."""


class RequestFilter(msgspec.Struct, frozen=True):
    """A filter of requests; None matches all. The texts but the outcome may be patterns."""

    principal: str | None = None
    outcome: str | None = None
    rule: str | None = None
    api: str | None = None
    host: str | None = None
    is_wanted: Callable[[str], bool] | None = None
    """True for the name of at least one topic."""

    def facet(self, *, is_now: bool) -> tuple[request_index.Kind, str] | None:
        """The most selective value of the filter that the index has, with its kind; None if the index has none of the
        values. The outcome is used only if `is_now`, because the index has only current outcomes."""
        values: tuple[tuple[request_index.Kind, str | None], ...] = (
            (request_index.RULE, self.rule),
            (request_index.PRINCIPAL, self.principal),
            (request_index.OUTCOME, self.outcome if is_now else None),
            (request_index.API, self.api),
        )
        return next(((kind, value) for kind, value in values if value is not None and not is_pattern(value)), None)

    def matches(self, request: request_index.IndexedRequest) -> bool:
        return (
            _matches(self.principal, request.principal)
            and _matches(self.api, request.api)
            and _matches(self.host, request.host)
            and (self.rule is None or any(_matches(self.rule, one) for one in request.rules))
            and (self.outcome is None or self.outcome in request.outcomes)
            and (self.is_wanted is None or any(map(self.is_wanted, request.topics)))
        )


def _matches(pattern: str | None, value: str) -> bool:
    return pattern is None or (fnmatchcase(value, pattern) if is_pattern(pattern) else value == pattern)


class RequestsPage(msgspec.Struct, frozen=True):
    """Requests, the newest first; `next_place` is the position at which the next page starts, None at the end."""

    requests: tuple[request_index.IndexedRequest, ...]
    next_place: Place | None


def requests_page(query: Queries, which: RequestFilter, window: Window, may_show: MayShow = everything) -> RequestsView:
    """A page of requests, the newest first. Raises InvalidPointInTime, BadPlace."""
    end, until = window.ends(query)
    since = starts(query, window.since)
    page = scan_requests(query, which, end, until=until, since=since, limit=window.limit, may_show=may_show)
    return RequestsView(tuple(map(summary_of, page.requests)), next_cursor(page.next_place), query.as_of(end))


summary_of = partial(view_of, RequestSummary)


def scan_requests(
    query: Queries,
    which: RequestFilter,
    end: Ends,
    *,
    until: Place,
    since: Place,
    limit: int,
    may_show: MayShow = everything,
    scanned_max: int = SCANNED_MAX,
) -> RequestsPage:
    """Up to `limit` requests from `since` until before `until`, with their outcomes at `end`."""
    facet = which.facet(is_now=end == query.end())
    by_time = [
        _each(number, part, facet, until[number], since[number], end[number]) for number, part in enumerate(query.parts)
    ]
    found: list[request_index.IndexedRequest] = []
    reached = list(until)
    in_order = merge(*by_time, key=lambda one: (-one[1].requested_at_ms, -one[0], -one[1].requested_offset))
    for scanned, (number, request) in enumerate(in_order):
        if len(found) == limit or scanned == scanned_max:
            return RequestsPage(tuple(found), tuple(reached))
        reached[number] = request.requested_offset
        whole = request if len(query.parts) == 1 else _whole(query, facet, number, request, end)
        if whole is not None and which.matches(whole) and may_show(whole):
            found.append(whole)
        if scanned % EVENTS_PER_PAUSE == EVENTS_PER_PAUSE - 1:
            query.parts[number].pause()
    return RequestsPage(tuple(found), None)


def _each(
    number: int, part: Query, facet: tuple[request_index.Kind, str] | None, until: int, since: int, end: int
) -> Iterator[tuple[int, request_index.IndexedRequest]]:
    for first in request_index.newest_requests(part.log, min(until, end), facet):
        if first < since:
            return
        request = request_index.request_until(part.log, first, end)
        if request is not None:
            yield number, request


def _whole(
    query: Queries,
    facet: tuple[request_index.Kind, str] | None,
    number: int,
    request: request_index.IndexedRequest,
    end: Ends,
) -> request_index.IndexedRequest | None:
    """A request merged with its parts in other partitions; None if one of these parts is newer and so lists the
    request."""
    whole = request
    for other, part in enumerate(query.parts):
        if other == number or request.counted:
            continue
        first = next(request_offsets(part.log, request.request_id), None)
        same = None if first is None else request_index.request_until(part.log, first, end[other])
        if same is None:
            continue
        is_newer = (same.requested_at_ms, other) > (request.requested_at_ms, number)
        if is_newer and (facet is None or facet in request_index.index_values(same)):
            return None
        whole = _together(whole, same)
    return whole


def _together(one: request_index.IndexedRequest, other: request_index.IndexedRequest) -> request_index.IndexedRequest:
    counts = dict(one.outcomes)
    for outcome, count in other.outcomes.items():
        counts[outcome] = counts.get(outcome, 0) + count
    return replace(
        one,
        topics=(*one.topics, *other.topics)[: request_index.NAMED_MAX],
        num_topics=one.num_topics + other.num_topics,
        outcomes=counts,
        rules=tuple(dict.fromkeys((*one.rules, *other.rules))),
    )
