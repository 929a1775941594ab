"""`topicwright events`: the log, event by event."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from controller.cli.commands import COMMANDS, Parsers
from controller.cli.reads import common
from controller.cli.reads.completing import completed_by, event_types, topic_names
from controller.cli.terminal.printing import show_lines
from controller.cli.terminal.usage import complain, count, named

if TYPE_CHECKING:
    from controller.cli.sources.http import Source, Which
    from projections.views.json_types import EventView

TAIL_MAX = 100_000
NO_REQUEST: Final = (
    "no event belongs to request {!r}: only requests of clients, the takeover of a cluster and decisions of other "
    "controllers (controller-…, snapshot-…) can be looked up, not what the controller did by itself (kraft-…, review-…)"
)


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser("events", description=f"Show {COMMANDS['events'].summary}.")
    of_topic = parser.add_argument("--topic", type=named, metavar="NAME", help="only events of this topic")
    completed_by(of_topic, topic_names)
    parser.add_argument("--request", type=named, metavar="ID", help="only events of this request")
    parser.add_argument("--partition", type=count, metavar="N", help="only events of this partition of the log")
    of_type = parser.add_argument(
        "--type", action="append", type=_type, metavar="TYPE", help="only these, as TopicCreated; may be repeated"
    )
    completed_by(of_type, event_types)
    parser.add_argument(
        "--principal", metavar="PATTERN", help="only what this user requested, as User:alice or 'User:a*'"
    )
    parser.add_argument("--from", dest="start", type=count, metavar="OFFSET", help="the first offset to show")
    common.add_span(parser)
    parser.add_argument("--tail", type=_tail, metavar="N", help="only the last N of them")
    parser.add_argument("--follow", action="store_true", help="keep showing new events, until interrupted")
    common.add_source(parser, _events)


def _tail(text: str) -> int:
    number = count(text)
    if not 1 <= number <= TAIL_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {TAIL_MAX}")
    return number


def _type(text: str) -> str:
    from controller.cli.terminal.parser import meant

    known = list(event_types())
    if text not in known:
        raise argparse.ArgumentTypeError(f"{text!r} is no type of event{meant(text, known)}")
    return text


def _events(options: argparse.Namespace, source: Source) -> int:
    from controller.cli.reads.event_lines import in_format
    from controller.cli.sources.http import Which

    kind = options.type[0] if options.type is not None and len(options.type) == 1 and not options.follow else None
    which = Which(options.topic, options.request, options.partition, kind, options.until)
    found = _chosen(options, source, which)
    first = next(found, None)
    if first is None:
        return _nothing_found(options, source)
    show_lines(options, in_format(options, chain((first,), found)), paged=not options.follow)
    return common.DONE


def _chosen(options: argparse.Namespace, source: Source, which: Which) -> Iterator[EventView]:
    """The events that are wanted, in order. Raises Misuse."""
    if options.start is not None and options.since is not None:
        raise common.Misuse("--from and --since both say where to begin: give one")
    if options.follow and (options.until is not None or options.tail is not None):
        raise common.Misuse("--follow has no end: it goes without --until and --tail")
    if options.tail is not None:
        newest = islice(filter(_filter(options), _newest_first(options, source, which)), options.tail)
        return reversed(list(newest))
    start = _start(options, source, which)
    found = source.follow(start, which) if options.follow else recorded(start, which, source)
    return filter(_filter(options), found)


def _start(options: argparse.Namespace, source: Source, which: Which) -> int:
    """The offset to read from: one that is not after the first event that is wanted."""
    if options.since is None:
        return int(options.start or 0)
    since_ms = _ms(options.since)
    return int(options.since) if since_ms is None else _first_from(since_ms, source, which)


def _first_from(at_ms: int, source: Source, which: Which) -> int:
    """Where the events of a time begin; 0 where they are in several partitions, each with offsets of its own."""
    from msgspec.structs import replace

    before = source.events(0, 1, replace(which, kind=None, at=f"{max(0, at_ms - 1)}ms"))
    is_one = which.topic is not None or which.partition is not None
    several = bool(before.events) and before.events[0].partition is not None and not is_one
    return 0 if several else before.end


def _newest_first(options: argparse.Namespace, source: Source, which: Which) -> Iterator[EventView]:
    """The events that there are, from the last one back to where the wanted ones begin."""
    first = options.start if options.start is not None else options.since
    since_ms = None if first is None else _ms(str(first))
    page = source.events(0, min(common.PAGE, options.tail), which, newest=True)
    while True:
        for event in page.events:
            if first is not None and (event.offset < int(first) if since_ms is None else event.at_ms < since_ms):
                return
            yield event
        if page.next_cursor is None:
            return
        page = source.events(0, common.PAGE, which, page.next_cursor, newest=True)


def _filter(options: argparse.Namespace) -> Callable[[EventView], bool]:
    since_ms = None if options.since is None else _ms(options.since)

    def is_wanted(event: EventView) -> bool:
        return (
            (since_ms is None or event.at_ms >= since_ms)
            and (options.type is None or event.type in options.type)
            and (options.principal is None or fnmatchcase(str(event.fields.get("principal", "")), options.principal))
        )

    return is_wanted


def _ms(moment: str) -> int | None:
    """A time in ms since the epoch; None for an offset."""
    from projections.text.moments import parse_moment

    parsed = parse_moment(moment)
    return None if isinstance(parsed, int) else round(parsed.timestamp() * 1000)


def _nothing_found(options: argparse.Namespace, source: Source) -> int:
    """Say why there is no event: what was named is in no event at all, or not in these."""
    from controller.cli.sources.http import Which

    if options.request is not None:
        if not source.events(0, 1, Which(request_id=options.request)).events:
            return complain(NO_REQUEST.format(options.request), common.FOUND)
        if options.topic is not None:
            return complain(f"request {options.request!r} has no event of topic {options.topic!r}", common.FOUND)
    elif options.topic is not None and not source.events(0, 1, Which(options.topic)).events:
        return complain(f"no event speaks of a topic {options.topic!r}", common.FOUND)
    if options.output in ("table", "wide"):
        show_lines(options, ["There are no such events."], paged=False)
    return common.DONE


def recorded(start: int, which: Which, source: Source) -> Iterator[EventView]:
    """The events from an offset on, page by page."""
    page = source.events(start, common.PAGE, which)
    yield from page.events
    while page.next is not None or page.next_cursor is not None:
        page = source.events(page.next or 0, common.PAGE, which, page.next_cursor)
        yield from page.events
