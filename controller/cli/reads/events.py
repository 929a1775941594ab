"""`topicwright events`: print the events of the log, or follow it; `requests`: list requests, or show one."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import chain, islice
from typing import Final

from controller.cli.arguments import DONE, NEGATIVE, print_error
from controller.cli.backend import Backend
from controller.cli.output import show, show_lines
from controller.cli.reads import common, text
from controller.cli.reads.event_lines import in_format
from projections.text.points_in_time import parse_point_in_time
from projections.views.events import EventsView, EventView
from projections.views.requests import RequestSummary, RequestsView, RequestView

NO_REQUEST: Final = (
    "no event belongs to request {!r}: the index has requests of clients, the takeover of a cluster, and decisions of "
    "other controllers (controller-…, snapshot-…), but not commands of the controller itself (kraft-…, reconcile-…)"
)


def events(options: argparse.Namespace, backend: Backend) -> int:
    kind = options.type[0] if options.type is not None and len(options.type) == 1 and not options.follow else None
    which = {"topic": options.topic, "request": options.request, "partition": options.partition}
    which |= {"type": kind, "at": options.until}
    found = _chosen(options, backend, which)
    first = next(found, None)
    if first is None:
        return _nothing_found(options, backend)
    show_lines(options, in_format(options, chain((first,), found)), paged=not options.follow)
    return DONE


def _chosen(options: argparse.Namespace, backend: Backend, which: Mapping[str, object]) -> Iterator[EventView]:
    """The matching events, in order. Raises Misuse."""
    if options.start is not None and options.since is not None:
        raise common.Misuse("give either --from or --since")
    if options.follow and (options.until is not None or options.tail is not None):
        raise common.Misuse("--follow does not end, so it cannot be used with --until or --tail")
    if options.tail is not None:
        newest = islice(filter(_filter(options), _newest_first(options, backend, which)), options.tail)
        return reversed(list(newest))
    start = _start(options, backend, which)
    if options.follow:
        return filter(_filter(options), backend.follow(from_=start, **which))
    found = chain.from_iterable(page.events for page in _pages(backend, which, from_=start))
    return filter(_filter(options), found)


def _start(options: argparse.Namespace, backend: Backend, which: Mapping[str, object]) -> int:
    """An offset at or before the first matching event. For a time it is 0 if the events are in several partitions with
    separate offsets."""
    if options.since is None:
        return int(options.start or 0)
    since_ms = _ms(options.since)
    if since_ms is None:
        return int(options.since)
    before = _page(backend, {**which, "type": None, "at": f"{max(0, since_ms - 1)}ms"})
    is_one = which["topic"] is not None or which["partition"] is not None
    several = bool(before.events) and before.events[0].partition is not None and not is_one
    return 0 if several else before.end


def _newest_first(options: argparse.Namespace, backend: Backend, which: Mapping[str, object]) -> Iterator[EventView]:
    """The events from the last one back to --from or --since."""
    first = options.start if options.start is not None else options.since
    since_ms = None if first is None else _ms(str(first))
    for page in _pages(backend, {**which, "order": "newest"}, limit=min(common.PAGE, options.tail)):
        for event in page.events:
            if first is not None and (event.offset < int(first) if since_ms is None else event.at_ms < since_ms):
                return
            yield event


def _filter(options: argparse.Namespace) -> Callable[[EventView], bool]:
    since_ms = None if options.since is None else _ms(options.since)

    def matches(event: EventView) -> bool:
        return (
            (since_ms is None or event.at_ms >= since_ms)
            and (options.type is None or event.type in options.type)
            and (options.principal is None or fnmatchcase(str(event.fields.get("principal", "")), options.principal))
        )

    return matches


def _ms(point_in_time: str) -> int | None:
    """A time as milliseconds since the epoch; None for an offset."""
    parsed = parse_point_in_time(point_in_time)
    return None if isinstance(parsed, int) else round(parsed.timestamp() * 1000)


def _nothing_found(options: argparse.Namespace, backend: Backend) -> int:
    """Say why there is no event: the topic or request is unknown, or the filters match nothing."""
    if options.request is not None:
        if not _page(backend, {"request": options.request}).events:
            return print_error(NO_REQUEST.format(options.request), NEGATIVE)
        if options.topic is not None:
            return print_error(f"request {options.request!r} has no event of topic {options.topic!r}", NEGATIVE)
    elif options.topic is not None and not _page(backend, {"topic": options.topic}).events:
        return print_error(f"no event of topic {options.topic!r} is in the log", NEGATIVE)
    if options.output in ("table", "wide"):
        show_lines(options, ["No event matches."], paged=False)
    return DONE


def _page(backend: Backend, which: Mapping[str, object]) -> EventsView:
    """A page with only the first matching event, and the end of the log."""
    return next(_pages(backend, which, limit=1))


def _pages(
    backend: Backend, which: Mapping[str, object], limit: int = common.PAGE, **more: object
) -> Iterator[EventsView]:
    return common.pages(backend, EventsView, "/events", limit=limit, **which, **more)


def requests(options: argparse.Namespace, backend: Backend) -> int:
    names = ("principal", "outcome", "rule", "api", "host")
    filters = {name: getattr(options, name) for name in names} | {"from": options.since, "to": options.until}
    if options.id is not None:
        if any(one is not None for one in filters.values()):
            raise common.Misuse("filters apply to the list, so they cannot be used with the ID of a request")
        request = backend.get(RequestView, "/requests", options.id, at=options.at)
        show(options, request, lambda style: text.request(request, style), lambda: [request.request_id])
        return DONE
    filters |= {"at": options.at}
    found: list[RequestSummary] = []
    for page in common.pages(backend, RequestsView, "/requests", limit=min(options.limit, common.PAGE), **filters):
        found += page.requests
        more = page.next_cursor is not None or len(found) > options.limit
        if len(found) >= options.limit:
            break
    del found[options.limit :]
    return show(
        options,
        {"requests": found, "as_of": page.as_of},
        lambda style: text.requests(found, page.as_of, style, more),
        lambda: (one.request_id for one in found if not one.counted),
    )
