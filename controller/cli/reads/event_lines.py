"""Events as lines: each names its topic and its request, and what belongs together is one line.

What a change of brokers does to partitions comes as an event for each of them; a run of those is one line that counts
them. A refusal is an event of the decision and one of the answer, with the same words; they are one line too. `wide`
shows every event. Of events that are followed, those that may be one line are held until nothing more comes for a
moment.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable, Iterator
from itertools import chain, groupby, islice

import msgspec

from controller.cli.reads.bursts import bursts
from controller.cli.terminal.printing import Look, as_json, as_yaml, look
from controller.cli.terminal.tables import harmless, painted
from projections.text.wording import many
from projections.views.json_types import EventView
from projections.views.lines import place

FOLDED_AT_LEAST = 4
"""So many changes of partitions in a row become one line."""
AHEAD = 1000
"""So many lines are looked at before the first is shown, where nobody waits for it."""
OF_PARTITION = frozenset(("LeaderElected", "IsrChanged", "PartitionChanged", "PlaceholderFilled"))
REFUSED = frozenset(("CreateRejected", "ChangeRejected", "CreationRefused"))
TEXT_MIN = 40
"""With less room beside the columns the words go on a line of their own."""
_MARKS = {"TopicReady": "good", "BrokerUnfenced": "good", "BrokerFenced": "bad", **dict.fromkeys(REFUSED, "bad")}


class Line(msgspec.Struct, frozen=True):
    """What is shown of an event, or of several."""

    place: str
    at: str
    type: str
    topic: str
    request: str
    text: str


def in_format(options: argparse.Namespace, events: Iterable[EventView]) -> Iterator[str]:
    """Events in the format that is wanted; for people as they come, where they are followed."""
    match options.output:
        case "json":
            return map(as_json, events)
        case "yaml":
            return (f"---\n{as_yaml(event)}".rstrip() for event in events)
        case "name":
            return (place(event.partition, event.offset) for event in events)
        case _:
            how = look(options)
            together = (
                chain.from_iterable(map(folded, bursts(events, _may_go_on))) if options.follow else folded(events)
            )
            each = map(line_of, events) if how.wide else together
            return (harmless(line, how.colour) for line in in_columns(each, how, 0 if options.follow else AHEAD))


def _may_go_on(event: EventView) -> bool:
    return event.type in OF_PARTITION or event.type in REFUSED


def line_of(event: EventView) -> Line:
    """One event."""
    topic, request = event.fields.get("topic"), event.fields.get("request_id")
    where = place(event.partition, event.offset)
    return Line(where, event.at, event.type, topic or "-", request or event.cause.request_id, event.text)


def folded(events: Iterable[EventView]) -> Iterator[Line]:
    """Lines of events, in order, with what belongs together in one."""
    for key, run in groupby(events, _run_of):
        if key is None:
            yield from _refusals_once(run)
        else:
            yield from _changes(run)


def _changes(run: Iterator[EventView]) -> Iterator[Line]:
    """A run of changes of partitions."""
    first = list(islice(run, FOLDED_AT_LEAST))
    if len(first) < FOLDED_AT_LEAST:
        yield from map(line_of, first)
    else:
        yield _counted(first, run)


def _run_of(event: EventView) -> tuple[object, ...] | None:
    """What events have in common that are shown as one; None for an event that stands for itself."""
    if event.type not in OF_PARTITION:
        return None
    return event.partition, event.cause.command, event.fields.get("reason", "")


def _counted(first: list[EventView], more: Iterator[EventView]) -> Line:
    """A run of changes of partitions, counted as they come: a run may be long."""
    topics: set[str] = set()
    partitions: set[tuple[str, int]] = set()
    elected, count, last = 0, 0, first[0]
    for event in (*first, *more):
        last = event
        count += 1
        topic = str(event.fields.get("topic"))
        topics.add(topic)
        partitions.add((topic, int(event.fields.get("partition", 0))))
        elected += event.type == "LeaderElected" or (
            event.type == "PartitionChanged" and event.fields.get("leader") is not None
        )
    reason = first[0].fields.get("reason", "")
    of_topics = f"{many(len(topics), 'topic')}" if len(topics) > 1 else next(iter(topics))
    led = f"; {many(elected, 'time')} another broker leads" if elected else ""
    why = f" ({reason})" if reason else ""
    text = (
        f"{many(len(partitions), 'partition')} of {of_topics} changed in {count} events{led}{why}; -o wide shows each"
    )
    where = f"{place(last.partition, first[0].offset)}-{last.offset}"
    topic = next(iter(topics)) if len(topics) == 1 else f"({len(topics)})"
    return Line(where, first[0].at, "PartitionsChanged", topic, first[0].cause.request_id, text)


def _refusals_once(events: Iterable[EventView]) -> Iterator[Line]:
    """Lines of events; the answer that repeats a refusal only says when the client had it."""
    refused: EventView | None = None
    for event in events:
        if refused is not None:
            if _repeats(refused, event):
                yield msgspec.structs.replace(
                    line_of(refused), text=f"{refused.text} (answered after {event.fields['waited_ms']} ms)"
                )
                refused = None
                continue
            yield line_of(refused)
        refused = event if event.type in REFUSED else None
        if refused is None:
            yield line_of(event)
    if refused is not None:
        yield line_of(refused)


def _repeats(refused: EventView, event: EventView) -> bool:
    same = ("request_id", "topic", "error_code", "message")
    return event.type == "CreateAnswered" and all(refused.fields.get(name) == event.fields.get(name) for name in same)


def in_columns(lines: Iterable[Line], how: Look, ahead: int = AHEAD) -> Iterator[str]:
    """Lines under a header. Columns are as wide as the first lines need, and grow with later ones. On a terminal words
    are wrapped, and the type is left out, which the words say."""
    widths = {"place": 8, "topic": 12, "request": 14}
    shows_type = how.width is None or how.wide
    rest = iter(lines)
    first = list(islice(rest, ahead))
    for number, line in enumerate(chain(first, rest)):
        for name, width in widths.items():
            seen = first if number == 0 and first else (line,)
            widths[name] = max(width, *(min(40, len(getattr(one, name))) for one in seen))
        if number == 0:
            head = _columns(Line("OFFSET", "TIME", "TYPE", "TOPIC", "REQUEST", ""), widths, shows_type)
            yield painted(f"{head}WHAT", "header" if how.colour else "")
        start = _columns(line, widths, shows_type)
        yield from _wrapped(start, line, how, shows_type)


def _columns(line: Line, widths: dict[str, int], shows_type: bool) -> str:
    kind = f"{line.type:<19}  " if shows_type else ""
    return (
        f"{line.place:>{widths['place']}}  {line.at:<24}  {kind}{line.topic:<{widths['topic']}}  "
        f"{line.request:<{widths['request']}}  "
    )


def _wrapped(start: str, line: Line, how: Look, is_whole: bool) -> Iterator[str]:
    mark = _MARKS.get(line.type, "") if how.colour else ""
    if is_whole or how.width is None:
        yield start + painted(line.text, mark)
        return
    room, indent = how.width - len(start), len(start)
    if room < TEXT_MIN:
        yield start.rstrip()
        room, indent = max(TEXT_MIN, how.width - 10), 10
        start = " " * indent
    for number, part in enumerate(textwrap.wrap(line.text, room) or [""]):
        yield (" " * indent if number else start) + painted(part, mark)
