"""Pages of events, and of changes (who changed what, in which request), of one log or of several partitions.

The events of one partition are ordered by offset, those of several by time. The cursor of a page holds an offset of
each partition, so paging neither skips nor repeats events. Indexes are read forwards only. A
page with the newest events first therefore reads ranges of offsets, the last range first.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from heapq import merge
from itertools import repeat, takewhile

import msgspec
from msgspec.structs import replace

from events import access, catalog
from events.catalog import Event, Recorded
from events.codec import decode_event
from events.logs.log import EventLog, read_one, request_offsets, shard_offsets
from events.names import Offset, shard_key
from projections.queries.past import topic_of_record
from projections.queries.query import Ends, Queries, Query
from projections.text.names import is_pattern
from projections.text.points_in_time import OFFSET_END, TEXT_SHOWN_MAX, InvalidPointInTime, end_at, parse_point_in_time
from projections.views.events import EventsView, RecordedChangesView, RecordedChangeView, change_view, event_view

DIGITS = len(str(OFFSET_END))
BYTES_PER_PAGE = 4 << 20
"""The size at which a page of events ends."""
EVENTS_SCANNED_MAX = 10_000
"""A page ends after scanning so many events, which takes a tenth of a second."""
_EPOCH = datetime.fromtimestamp(0, UTC)

Place = tuple[int, ...]
"""A position in a listing: for each log partition of the listing an offset."""


class BadPlace(ValueError):
    """A position (cursor) or a partition that this log does not have; the message says what is allowed."""


class Window(msgspec.Struct, frozen=True):
    """A page of a list: its time range, point in time, length and cursor."""

    since: str | None = None
    until: str | None = None
    at: str | None = None
    limit: int = 100
    cursor: str | None = None

    def ends(self, query: Queries) -> tuple[Ends, Ends]:
        """The point in time, and the end of the range, which is not after it. Raises InvalidPointInTime, BadPlace."""
        end = query.end(self.at)
        until = end if self.until is None else tuple(map(min, end, query.end(self.until, "to")))
        if self.cursor is not None:
            until = tuple(map(min, until, Listing(query.parts).place(self.cursor)))
        return end, until


class EventFilter(msgspec.Struct, frozen=True):
    """A filter of events; None and () match all."""

    topic: str | None = None
    request_id: str | None = None
    types: tuple[str, ...] = ()
    name: str | None = None
    """A pattern of topic names."""
    principal: str | None = None
    """A pattern of principals."""
    is_wanted: Callable[[str], bool] | None = None
    """True for the topic names of the events; None matches all."""

    def matches(self, event: Event) -> bool:
        """True if the event matches. Its request is not compared, because the index of requests finds it."""
        topic = getattr(event, "topic", None)
        return (
            self.topic in (None, topic)
            and (not self.types or type(event).__name__ in self.types)
            and (self.name is None or (topic is not None and fnmatchcase(topic, self.name)))
            and (self.is_wanted is None or (topic is not None and self.is_wanted(topic)))
            and (self.principal is None or fnmatchcase(getattr(event, "principal", ""), self.principal))
        )


EVERY_EVENT = EventFilter()


def of_topics(topic: str | None) -> EventFilter:
    """The events of a topic, or of the topics whose names match a pattern."""
    return EventFilter(name=topic) if is_pattern(topic) else EventFilter(topic)


class Listed(msgspec.Struct, frozen=True):
    """A page of events, each with its log. `next_place` is the position at which the next page starts, None at the
    end."""

    events: tuple[tuple[Query, Recorded], ...]
    next_place: Place | None


class Listing:
    """The events of some log partitions (`parts`) that match a filter."""

    def __init__(self, parts: Sequence[Query], which: EventFilter = EVERY_EVENT) -> None:
        self.parts = tuple(parts)
        self._which = which

    def end(self) -> Place:
        """The position after the newest events."""
        return tuple(part.end() for part in self.parts)

    def since(self, start: str | None) -> Place:
        """The position of the parameter `from`: a time, or in a listing of one partition an offset, which may be after
        the end; None is the start. Raises BadPlace, InvalidPointInTime."""
        try:
            point_in_time = Offset(0) if start is None else parse_point_in_time(start)
        except InvalidPointInTime as error:
            raise InvalidPointInTime(f"from: {error}") from None
        if isinstance(point_in_time, datetime):
            at_ms = round(max(point_in_time, _EPOCH).timestamp() * 1000)
            return tuple(end_before(part.log, at_ms) for part in self.parts)
        if point_in_time and len(self.parts) > 1:
            raise BadPlace("from: each partition has offsets of its own: give partition or topic too, or a time")
        return (min(point_in_time, OFFSET_END - 1),) * len(self.parts)

    def place(self, cursor: str) -> Place:
        """The position of a cursor. Raises BadPlace."""
        words, count = cursor.split("-"), len(self.parts)
        if len(words) != count or not all(word.isascii() and word.isdigit() and len(word) <= DIGITS for word in words):
            raise BadPlace(f"cursor: {cursor[:TEXT_SHOWN_MAX]!r} is not the next_cursor of a page of this listing")
        return tuple(map(int, words))

    def oldest(self, place: Place, limit: int, end: Place) -> Listed:
        """Up to `limit` events from a position until before `end`, the oldest first; fewer if they are large, or if
        many do not match."""
        streams = [
            zip(repeat(number), part.records(low, high, self._which.topic, self._which.request_id))
            for number, (part, low, high) in enumerate(zip(self.parts, place, end, strict=True))
        ]
        return self._page(merge(*streams, key=lambda one: (one[1].at_ms, one[0])), place, limit, after=1)

    def newest(self, place: Place, limit: int, since: Place = ()) -> Listed:
        """Up to `limit` events below the offsets of a position, and from `since` on, the newest first; fewer as for
        `oldest`."""
        streams = [
            backwards(number, part, self._which, place[number], since[number] if since else 0)
            for number, part in enumerate(self.parts)
        ]
        in_order = merge(*streams, key=lambda one: (-one[1].at_ms, -one[0], -one[1].offset))
        return self._page(in_order, place, limit, after=0)

    def _page(self, in_order: Iterator[tuple[int, Recorded]], place: Place, limit: int, after: int) -> Listed:
        found: list[tuple[Query, Recorded]] = []
        reached, room = list(place), BYTES_PER_PAGE
        for scanned, (number, record) in enumerate(in_order):
            if len(found) == limit or room <= 0 or scanned == EVENTS_SCANNED_MAX:
                return Listed(tuple(found), tuple(reached))
            reached[number] = record.offset + after
            if self._which.matches(record.event):
                part = self.parts[number]
                found.append((part, record))
                room -= len(read_one(part.log, record.offset))
        return Listed(tuple(found), None)


def cursor_of(place: Place) -> str:
    return "-".join(map(str, place))


def next_cursor(place: Place | None) -> str | None:
    """The cursor of the next page; None at the end."""
    return None if place is None else cursor_of(place)


def listing(query: Queries, which: EventFilter = EVERY_EVENT, partition: int | None = None) -> Listing:
    """A listing of the log partitions that can hold matching events. Raises BadPlace."""
    if partition is not None:
        parts = {part.partition: part for part in query.parts}
        if partition not in parts or None in parts:
            allowed = "this log has none" if None in parts else f"allowed are 0 to {len(parts) - 1}"
            raise BadPlace(f"partition: there is no partition {partition}; {allowed}")
        return Listing((parts[partition],), which)
    return Listing(query.parts if which.topic is None else (query.of_topic(which.topic),), which)


def events_page(
    query: Queries, which: EventFilter, window: Window, partition: int | None = None, *, newest: bool = False
) -> EventsView:
    """A page of events. With `newest` the newest come first. Raises BadPlace and InvalidPointInTime."""
    found = listing(query, which, partition)
    end = query.end(window.at) if len(found.parts) > 1 else (found.parts[0].end(window.at),)
    since, cursor = found.since(window.since), None if window.cursor is None else found.place(window.cursor)
    if newest:
        page = found.newest(end if cursor is None else tuple(map(min, end, cursor)), window.limit, since)
    else:
        page = found.oldest(since if cursor is None else cursor, window.limit, end)
    views = tuple(event_view(record, part.partition) for part, record in page.events)
    return EventsView(views, sum(end), next_cursor(page.next_place))


# --- the newest first

RANGE_FIRST, RANGE_MAX = 1 << 10, 1 << 18
"""The first range of offsets to scan is small; each further one is twice as large."""


def offsets_before(log: EventLog, key: str, before: int) -> Iterator[int]:
    """The offsets of the events under a shard key below an offset, the highest first."""
    size = RANGE_FIRST
    while before > 0:
        start = max(0, before - size)
        yield from reversed(list(shard_offsets(log, key, start, before)))
        before, size = start, min(2 * size, RANGE_MAX)


def newest_of(part: Query, topic: str | None, before: int) -> Iterator[Recorded]:
    """The events of a topic name below an offset, the newest first; without a name those of brokers and settings."""
    found = part.decoded(offsets_before(part.log, shard_key(topic or ""), before))
    return (record for record in found if topic_of_record(record) == topic)


def backwards(number: int, part: Query, which: EventFilter, before: int, since: int) -> Iterator[tuple[int, Recorded]]:
    """The events of a log partition that a filter may select, the newest first, with offsets from `since` to below
    `before`."""
    offsets: Iterator[int]
    if which.request_id is not None:
        offsets = reversed([offset for offset in request_offsets(part.log, which.request_id) if offset < before])
    elif which.topic is not None:
        offsets = offsets_before(part.log, shard_key(which.topic), before)
    else:
        offsets = iter(range(before - 1, -1, -1))
    later = takewhile(lambda offset: offset >= since, offsets)
    return ((number, record) for record in part.decoded(later))


# --- changes

KINDS: tuple[type, ...] = (
    catalog.TopicCreated, catalog.PartitionsAdded, catalog.TopicConfigsChanged, catalog.TopicDeleted,
    catalog.TopicDiscovered, catalog.TopicVanished, catalog.ResourceConfigsChanged, catalog.FeaturesChanged,
    catalog.SettingsChanged, catalog.RulesApplied, access.AclsCreated, access.AclsDeleted, access.QuotasChanged,
    access.ScramCredentialSet, access.ScramCredentialRemoved,
)  # fmt: skip
CHANGES = tuple(kind.__name__ for kind in KINDS)
"""The types of events that somebody caused. Changes of brokers, leaders and ISRs are not among them."""
AFTER_CHANGE = 3
"""The rules that a change breaks, and its approval, are in one of so many events after it, in the same decision."""


def changes_page(
    query: Queries,
    window: Window,
    topic: str | None = None,
    principal: str | None = None,
    is_wanted: Callable[[str], bool] | None = None,
) -> RecordedChangesView:
    """A page of changes, the newest first. `topic` and `principal` may be patterns; `is_wanted` is true for the names
    of topics. Raises InvalidPointInTime, BadPlace."""
    which = replace(of_topics(topic), types=CHANGES, principal=principal, is_wanted=is_wanted)
    if which.topic is not None:
        query = Queries((query.of_topic(which.topic),))
    end, until = window.ends(query)
    page = Listing(query.parts, which).newest(until, window.limit, starts(query, window.since))
    views = tuple(_change(*one) for one in page.events)
    return RecordedChangesView(views, next_cursor(page.next_place), query.as_of(end))


def newest_changes(part: Query, name: str, start: int, end: int, limit: int) -> tuple[RecordedChangeView, ...]:
    """The newest changes of a topic between two offsets."""
    page = Listing((part,), EventFilter(name, types=CHANGES)).newest((end,), limit, (start,))
    return tuple(_change(*one) for one in page.events)


def _change(part: Query, record: Recorded) -> RecordedChangeView:
    after = range(record.offset + 1, min(record.offset + 1 + AFTER_CHANGE, part.end()))
    followed = [decode_event(offset, read_one(part.log, offset)).event for offset in after]
    observed = (one for one in followed if isinstance(one, catalog.RulesObserved))
    subject = [getattr(record.event, name, None) for name in ("request_id", "topic")]
    same = (one for one in observed if [one.request_id, one.topic] == subject)
    decided = (one for one in followed if isinstance(one, catalog.ApprovalDecided) and one.outcome == "approved")
    approvers = (one.principal for one in decided if [one.reason, one.name] == subject)
    return change_view(record, next(same, None), next(approvers, ""), part.partition)


# --- timelines


def starts(query: Queries, since: str | None, name: str = "from") -> Ends:
    """For each log the offset of the first event at or after a point in time (None: the start), given as the parameter
    `name`. Raises InvalidPointInTime."""
    if since is not None:
        query.end(since, name)  # raises InvalidPointInTime
    return Listing(query.parts).since(since)


def end_before(log: EventLog, at_ms: int) -> int:
    """The offset after the last event before a time."""
    return end_at(log, datetime.fromtimestamp((at_ms - 1) / 1000, UTC))
