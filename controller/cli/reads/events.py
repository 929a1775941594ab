"""`topicwright events` and `changes`: print the events of the log, or follow it; print who changed what.

A line has the topic and request of an event; related events share one. A change of a broker causes an event per
partition. Consecutive events of this kind become one line with counts. A refusal is recorded by two events with the
same message, the decision and the answer; they become one line too. `wide` and `--follow` print every event.
"""

import argparse
from collections.abc import Iterable, Iterator
from itertools import chain, groupby, islice
from typing import Final, NamedTuple

from controller.cli.arguments import DONE, NEGATIVE, print_error
from controller.cli.backend import Backend
from controller.cli.output import Style, as_json, as_yaml, show, show_lines, style_of, with_local_times
from controller.cli.reads import common
from projections.text.names import is_pattern
from projections.text.wording import many
from projections.views.events import EventsView, EventView, RecordedChangesView, RecordedChangeView
from projections.views.lines import place, when, wrapped

JOINED_AT_LEAST = 4
"""The minimum number of consecutive partition changes that become one line."""
AHEAD = 1000
"""Lines read ahead to size the columns, unless events are followed."""
OF_PARTITION, ANSWERED = "PartitionChanged", "CreateAnswered"
REFUSED = frozenset(("CreateRejected", "ChangeRejected", "CreationRefused"))
TEXT_MIN, INDENT = 40, 10
"""The minimum width of the text column; with less room, the text goes on its own line, indented."""
OF_TYPE, COLUMN_MAX = 2, 40
"""The number of the column with the type, and the width to which columns grow."""
_MARKS = {"TopicReady": "good", "BrokerUnfenced": "good", "BrokerFenced": "bad", **dict.fromkeys(REFUSED, "bad")}


class Line(NamedTuple):
    """The columns of one or more events. `place` is the partition and offset, `at` the time."""

    place: str
    at: str
    type: str
    topic: str
    request: str
    text: str


def in_format(options: argparse.Namespace, events: Iterable[EventView]) -> Iterator[str]:
    match options.output:
        case "json":
            return map(as_json, events)
        case "yaml":
            return (f"---\n{as_yaml(event)}".rstrip() for event in events)
        case "name":
            return (place(event.partition, event.offset) for event in events)
        case _:
            style = style_of(options)
            each = map(line_of, events) if style.wide or options.follow else joined(events)
            return (
                with_local_times(line, style.colour) for line in in_columns(each, style, 1 if options.follow else AHEAD)
            )


def line_of(event: EventView) -> Line:
    topic, request = event.fields.get("topic"), event.fields.get("request_id")
    where = place(event.partition, event.offset)
    return Line(where, event.at, event.type, topic or "-", request or event.cause.request_id, event.text)


def joined(events: Iterable[EventView]) -> Iterator[Line]:
    """Lines of events, in order; related events are joined. An answer that repeats a refusal only adds its delay."""
    for key, related in groupby(events, _run_of):
        run = iter(related)
        first = list(islice(run, JOINED_AT_LEAST)) if key is not None else []
        if len(first) == 2 and first[0].type in REFUSED and first[1].type == ANSWERED:
            text = f"{first[0].text} (answered after {first[1].fields['waited_ms']} ms)"
            yield line_of(first[0])._replace(text=text)
        elif len(first) == JOINED_AT_LEAST and first[0].type == OF_PARTITION:
            yield _counted(first, run)
        else:
            yield from map(line_of, chain(first, run))


def _run_of(event: EventView) -> tuple[object, ...] | None:
    """The key that joined events share; None for an event that is not joined."""
    if event.type == OF_PARTITION:
        return event.partition, event.cause.command, event.fields.get("reason", "")
    if event.type in REFUSED or event.type == ANSWERED:
        return tuple(map(event.fields.get, ("request_id", "topic", "error_code", "message")))
    return None


def _counted(first: list[EventView], more: Iterator[EventView]) -> Line:
    """One line for consecutive partition changes. There may be very many, so they are not collected in a list."""
    topics: set[str] = set()
    partitions: set[tuple[str, int]] = set()
    count = elected = 0
    for last in chain(first, more):
        count += 1
        topic = str(last.fields.get("topic"))
        topics.add(topic)
        partitions.add((topic, int(last.fields.get("partition", 0))))
        elected += last.fields["before"]["leader"] != last.fields["after"]["leader"]
    reason = first[0].fields.get("reason", "")
    of_topics = many(len(topics), "topic") if len(topics) > 1 else topic
    led = f"; {many(elected, 'leader change')}" if elected else ""
    why = f" ({reason})" if reason else ""
    changed = f"{many(len(partitions), 'partition')} of {of_topics} changed in {count} events"
    where = f"{place(last.partition, first[0].offset)}-{last.offset}"
    topic = topic if len(topics) == 1 else f"({len(topics)})"
    text = f"{changed}{led}{why}; -o wide shows each"
    return Line(where, first[0].at, "PartitionsChanged", topic, first[0].cause.request_id, text)


def in_columns(lines: Iterable[Line], style: Style, ahead: int = AHEAD) -> Iterator[str]:
    """Lines under a header. Columns fit `ahead` lines at a time, and never become narrower. On a terminal the text is
    wrapped, and the type is left out, since the text implies it."""
    widths, terminal = [8, 4, 19, 12, 14], None if style.wide else style.width

    def columns(line: Line) -> str:
        cells = [f"{line.place:>{widths[0]}}", *map(str.ljust, line[1:-1], widths[1:])]
        return "".join(f"{cell}  " for number, cell in enumerate(cells) if terminal is None or number != OF_TYPE)

    rest, header = iter(lines), [Line("OFFSET", "TIME", "TYPE", "TOPIC", "REQUEST", "WHAT")]
    while some := list(islice(rest, ahead)):
        for number, width in enumerate(widths):
            widths[number] = max(width, *(min(COLUMN_MAX, len(line[number])) for line in some))
        yield from (style.painted(columns(each) + each.text, "header") for each in header)
        header = []
        for line in some:
            start, mark = columns(line), _MARKS.get(line.type, "")
            if terminal is not None and terminal - len(start) < TEXT_MIN:
                yield start.rstrip()
                start = " " * INDENT
            for part in wrapped(start, line.text, terminal):
                yield part[: len(start)] + style.painted(part[len(start) :], mark)


NO_REQUEST: Final = (
    "no event belongs to request {!r}: these ids can be found: requests of clients, the takeover of a cluster, and "
    "decisions of other controllers (controller-…, snapshot-…); not commands of this controller (kraft-…, reconcile-…)"
)


def events(options: argparse.Namespace, backend: Backend) -> int:
    if options.follow and (options.until is not None or options.tail is not None):
        raise common.Misuse("--follow does not end, so it cannot be used with --until or --tail")
    which = {"topic": options.topic, "request": options.request, "principal": options.principal}
    which |= {"partition": options.partition, "from": options.since or 0}
    which |= {"type": options.type[0] if len(options.type) == 1 else None}
    every: Iterator[EventView]
    if options.follow:
        every = backend.follow(**which)
    else:
        which |= {"at": options.until, "order": None if options.tail is None else "newest"}
        which |= {"limit": min(common.PAGE, options.tail or common.PAGE)}
        found = common.pages(backend, EventsView, "/events", **which)
        every = (event for page in found for event in page.events)
    chosen: Iterator[EventView] = (one for one in every if not options.type or one.type in options.type)
    if options.tail is not None:
        chosen = iter([*islice(chosen, options.tail)][::-1])
    first = next(chosen, None)
    if first is None:
        return _nothing_found(options, backend)
    show_lines(options, in_format(options, chain((first,), chosen)), paged=not options.follow)
    return DONE


def changes(options: argparse.Namespace, backend: Backend) -> int:
    which = {"topic": options.name, "principal": options.principal, "label": options.label, "at": options.at}
    which |= {"from": options.since, "to": options.until, "limit": min(options.limit, common.PAGE)}
    found: list[RecordedChangeView] = []
    for page in common.pages(backend, RecordedChangesView, "/changes", **which):
        found += page.changes
        if len(found) >= options.limit:
            break
    del found[options.limit :]
    answer, offsets = {"changes": found, "as_of": page.as_of}, (place(one.partition, one.offset) for one in found)

    def lines(style: Style) -> Iterable[str]:
        return in_columns((_change_line(one, style) for one in found), style) if found else ["Nothing was changed."]

    return show(options, answer, lines, lambda: offsets, when(page.as_of))


def _change_line(one: RecordedChangeView, style: Style) -> Line:
    by = "" if one.principal in one.text else one.principal
    more = {"by": by, "breaks": ", ".join(one.rules), "approved by": one.approved_by}
    text = "; ".join([one.text, *(f"{verb} {what}" for verb, what in more.items() if what)])
    where, topic = place(one.partition, one.offset), one.topic or "-"
    return Line(where, style.age(one.at), one.type, topic, one.request_id or "-", text)


def _nothing_found(options: argparse.Namespace, backend: Backend) -> int:
    """Say why there is no event: the topic or request is unknown, or the filters match nothing."""

    def is_unknown(**which: str) -> bool:
        return not backend.get(EventsView, "/events", limit=1, **which).events

    if options.request is not None:
        if is_unknown(request=options.request):
            return print_error(NO_REQUEST.format(options.request), NEGATIVE)
        if options.topic is not None:
            return print_error(f"request {options.request!r} has no event of topic {options.topic!r}", NEGATIVE)
    elif options.topic is not None and not is_pattern(options.topic) and is_unknown(topic=options.topic):
        return print_error(f"no event of topic {options.topic!r} is in the log", NEGATIVE)
    if options.output in ("table", "wide"):
        show_lines(options, ["No event matches."], paged=False)
    return DONE
