"""`topicwright events`: print the events of the log, or follow it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from controller.cli.arguments import complain, count, meant, named
from controller.cli.commands import COMMANDS, Parsers
from controller.cli.output import show_lines
from controller.cli.reads import common
from controller.cli.reads.common import completed_by, event_types, topic_names

if TYPE_CHECKING:
    from controller.cli.backend import Backend
    from projections.views.events import EventsView, EventView

TAIL_MAX = 100_000
NO_REQUEST: Final = (
    "no event belongs to request {!r}: the index has requests of clients, the takeover of a cluster, and decisions of "
    "other controllers (controller-…, snapshot-…), but not what the controller did by itself (kraft-…, review-…)"
)


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser("events", description=f"{COMMANDS['events'].headline}.")
    of_topic = parser.add_argument("--topic", type=named, metavar="NAME", help="only events of this topic")
    completed_by(of_topic, topic_names)
    parser.add_argument("--request", type=named, metavar="ID", help="only events of this request")
    parser.add_argument("--partition", type=count, metavar="N", help="only events of this partition of the log")
    of_type = parser.add_argument(
        "--type",
        action="append",
        type=_type,
        metavar="TYPE",
        help="only events of this type, e.g. TopicCreated; repeatable",
    )
    completed_by(of_type, event_types)
    parser.add_argument(
        "--principal", metavar="PATTERN", help="only requests of this user, such as User:alice or 'User:a*'"
    )
    parser.add_argument("--from", dest="start", type=count, metavar="OFFSET", help="first offset")
    common.add_span(parser)
    parser.add_argument("--tail", type=_tail, metavar="N", help="only the last N events")
    parser.add_argument("--follow", action="store_true", help="print new events as they come, until interrupted")
    common.add_backend(parser, _events)


def _tail(text: str) -> int:
    number = count(text)
    if not 1 <= number <= TAIL_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {TAIL_MAX}")
    return number


def _type(text: str) -> str:
    known = list(event_types())
    if text not in known:
        raise argparse.ArgumentTypeError(f"{text!r} is not an event type{meant(text, known)}")
    return text


def _events(options: argparse.Namespace, backend: Backend) -> int:
    from controller.cli.reads.event_lines import in_format

    kind = options.type[0] if options.type is not None and len(options.type) == 1 and not options.follow else None
    which = {"topic": options.topic, "request": options.request, "partition": options.partition}
    which |= {"type": kind, "at": options.until}
    found = _chosen(options, backend, which)
    first = next(found, None)
    if first is None:
        return _nothing_found(options, backend)
    show_lines(options, in_format(options, chain((first,), found)), paged=not options.follow)
    return common.DONE


def _chosen(options: argparse.Namespace, backend: Backend, which: Mapping[str, object]) -> Iterator[EventView]:
    """The matching events, in order. Raises Misuse."""
    if options.start is not None and options.since is not None:
        raise common.Misuse("give either --from or --since")
    if options.follow and (options.until is not None or options.tail is not None):
        raise common.Misuse("--follow does not end: it does not go with --until or --tail")
    if options.tail is not None:
        newest = islice(filter(_filter(options), _newest_first(options, backend, which)), options.tail)
        return reversed(list(newest))
    start = _start(options, backend, which)
    found = backend.follow(from_=start, **which) if options.follow else recorded(start, which, backend)
    return filter(_filter(options), found)


def _start(options: argparse.Namespace, backend: Backend, which: Mapping[str, object]) -> int:
    """An offset at or before the first matching event."""
    if options.since is None:
        return int(options.start or 0)
    since_ms = _ms(options.since)
    return int(options.since) if since_ms is None else _first_from(since_ms, backend, which)


def _first_from(at_ms: int, backend: Backend, which: Mapping[str, object]) -> int:
    """The first offset at or after a time; 0 if the events are in several partitions with separate offsets."""
    before = _page(backend, {**which, "type": None, "at": f"{max(0, at_ms - 1)}ms"}, limit=1)
    is_one = which["topic"] is not None or which["partition"] is not None
    several = bool(before.events) and before.events[0].partition is not None and not is_one
    return 0 if several else before.end


def _newest_first(options: argparse.Namespace, backend: Backend, which: Mapping[str, object]) -> Iterator[EventView]:
    """The events from the last one back to --from or --since."""
    first = options.start if options.start is not None else options.since
    since_ms = None if first is None else _ms(str(first))
    newest = {**which, "order": "newest"}
    page = _page(backend, newest, limit=min(common.PAGE, options.tail))
    while True:
        for event in page.events:
            if first is not None and (event.offset < int(first) if since_ms is None else event.at_ms < since_ms):
                return
            yield event
        if page.next_cursor is None:
            return
        page = _page(backend, newest, cursor=page.next_cursor)


def _filter(options: argparse.Namespace) -> Callable[[EventView], bool]:
    since_ms = None if options.since is None else _ms(options.since)

    def matches(event: EventView) -> bool:
        return (
            (since_ms is None or event.at_ms >= since_ms)
            and (options.type is None or event.type in options.type)
            and (options.principal is None or fnmatchcase(str(event.fields.get("principal", "")), options.principal))
        )

    return matches


def _ms(moment: str) -> int | None:
    """A time as milliseconds since the epoch; None for an offset."""
    from projections.text.moments import parse_moment

    parsed = parse_moment(moment)
    return None if isinstance(parsed, int) else round(parsed.timestamp() * 1000)


def _nothing_found(options: argparse.Namespace, backend: Backend) -> int:
    """Say why there is no event: the topic or request is unknown, or the filters match nothing."""
    if options.request is not None:
        if not _page(backend, {"request": options.request}, limit=1).events:
            return complain(NO_REQUEST.format(options.request), common.FOUND)
        if options.topic is not None:
            return complain(f"request {options.request!r} has no event of topic {options.topic!r}", common.FOUND)
    elif options.topic is not None and not _page(backend, {"topic": options.topic}, limit=1).events:
        return complain(f"no event of topic {options.topic!r} is in the log", common.FOUND)
    if options.output in ("table", "wide"):
        show_lines(options, ["No event matches."], paged=False)
    return common.DONE


def recorded(start: int, which: Mapping[str, object], backend: Backend) -> Iterator[EventView]:
    """All events from an offset on."""
    page = _page(backend, which, from_=start)
    yield from page.events
    while page.next is not None or page.next_cursor is not None:
        following = {"from": page.next or 0} if page.next_cursor is None else {"cursor": page.next_cursor}
        page = _page(backend, {**which, **following})
        yield from page.events


def _page(backend: Backend, which: Mapping[str, object], limit: int = common.PAGE, **more: object) -> EventsView:

    return backend.get(EventsView, "/events", limit=limit, **which, **more)
