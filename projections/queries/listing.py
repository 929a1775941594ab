"""Pages of events, of one log or of several partitions, the oldest or the newest first.

The events of one partition are ordered by offset, those of several by time. The cursor of a page holds an offset of
each partition, so paging neither skips nor repeats events. Indexes are read forwards only: for the newest first they
are read in ranges, the last range first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge

import msgspec

from events.catalog import Event, Recorded
from events.codec import decode_event
from events.logs.log import EventLog
from events.names import CLUSTER_SHARD, shard_key
from projections.queries.past import EVENTS_PER_REST
from projections.queries.query import BYTES_PER_PAGE, Query, Questions
from projections.store.topic_indexes import CREATION_TYPES, creation_offsets
from projections.text.moments import OFFSET_END, TEXT_SHOWN_MAX

DIGITS = len(str(OFFSET_END))
EVENTS_PER_READ = 100
"""A filtered listing reads no more events at once."""

Place = tuple[int, ...]
"""An offset in each part of a listing."""


class BadPlace(ValueError):
    """A place or partition that this log does not have; the message says what is allowed."""


class Listed(msgspec.Struct, frozen=True):
    """A page of events, each with its partition (None in a log without partitions). `next_place` is the start of the
    next page, None at the end."""

    events: tuple[tuple[int | None, Recorded], ...]
    next_place: Place | None


class Listing:
    """The events of some parts: all, or those of a topic, a request, or both."""

    def __init__(self, parts: Sequence[Query], topic: str | None = None, request_id: str | None = None) -> None:
        self.parts = tuple(parts)
        self._topic = topic
        self._request_id = request_id

    def end(self) -> Place:
        """The place after the newest events."""
        return tuple(part.end() for part in self.parts)

    def place(self, start: int, cursor: str | None) -> Place:
        """The place of an offset, in a listing of one part, or of a cursor. Raises BadPlace."""
        count = len(self.parts)
        if cursor is None:
            if start and count > 1:
                raise BadPlace("from: each partition has offsets of its own: give partition or topic too, or cursor")
            return (start,) * count
        words = cursor.split("-")
        if len(words) != count or not all(word.isascii() and word.isdigit() and len(word) <= DIGITS for word in words):
            raise BadPlace(f"cursor: {cursor[:TEXT_SHOWN_MAX]!r} is not the next_cursor of a page of this listing")
        return tuple(map(int, words))

    def page(self, place: Place, limit: int, end: Place) -> Listed:
        """Up to `limit` events from a place until before `end`; fewer if they are large."""
        if len(self.parts) == 1:
            return self._page_of_one(place[0], limit, end[0])
        streams = [self._each(number, place[number], end[number]) for number in range(len(self.parts))]
        found: list[tuple[int, Recorded]] = []
        reached, room = list(place), BYTES_PER_PAGE
        for number, record in merge(*streams, key=lambda one: (one[1].at_ms, one[0])):
            found.append((number, record))
            reached[number] = record.offset + 1
            room -= self.parts[number].size_of(record)
            if len(found) == limit or room <= 0:
                return Listed(tuple(found), tuple(reached))
        return Listed(tuple(found), None)

    def _page_of_one(self, start: int, limit: int, end: int) -> Listed:
        (part,) = self.parts
        page = part.events(start, limit, end, topic=self._topic, request_id=self._request_id)
        events = tuple((part.partition, record) for record in page.records)
        return Listed(events, None if page.next_offset is None else (page.next_offset,))

    def _each(self, number: int, start: int, end: int) -> Iterator[tuple[int, Recorded]]:
        part, place = self.parts[number], start if start < end else None
        while place is not None:
            page = part.events(place, EVENTS_PER_READ, end, topic=self._topic, request_id=self._request_id)
            for record in page.records:
                yield number, record
            place = page.next_offset


def cursor_of(place: Place) -> str:
    """The cursor of a place."""
    return "-".join(map(str, place))


def listing(
    query: Questions, topic: str | None = None, request_id: str | None = None, partition: int | None = None
) -> Listing:
    """The events of the parts that can hold them. Raises BadPlace."""
    if partition is not None:
        parts = {part.partition: part for part in query.parts}
        if partition not in parts or None in parts:
            allowed = "this log has none" if None in parts else f"allowed are 0 to {len(parts) - 1}"
            raise BadPlace(f"partition: there is no partition {partition}; {allowed}")
        return Listing((parts[partition],), topic, request_id)
    return Listing(query.parts if topic is None else (query.of_topic(topic),), topic, request_id)


RANGE_FIRST, RANGE_MAX = 1 << 10, 1 << 18
"""The first range of offsets to scan is small; each further one is twice as large."""
EVENTS_SCANNED_MAX = 10_000
"""A page ends after so many events: a tenth of a second."""


def offsets_before(log: EventLog, key: str, before: int) -> Iterator[int]:
    """The offsets of the events under a shard key below an offset, the highest first."""
    size = RANGE_FIRST
    while before > 0:
        start = max(0, before - size)
        yield from reversed(list(log.shard_offsets(key, start, before)))
        before, size = start, min(2 * size, RANGE_MAX)


def newest_of_topic(part: Query, name: str, before: int) -> Iterator[Recorded]:
    """The events of a name below an offset, the newest first."""
    found = _decoded(part, offsets_before(part.log, shard_key(name), before))
    return (record for record in found if getattr(record.event, "topic", None) == name)


def newest_of_broker(part: Query, broker_id: int, before: int) -> Iterator[Recorded]:
    """The events of a broker's registration and life below an offset, the newest first."""
    found = newest_of_cluster(part, before)
    return (record for record in found if getattr(record.event, "broker_id", None) == broker_id)


def newest_of_cluster(part: Query, before: int) -> Iterator[Recorded]:
    """The events that concern every topic below an offset, the newest first."""
    return _decoded(part, offsets_before(part.log, CLUSTER_SHARD, before))


class EventFilter(msgspec.Struct, frozen=True):
    """A filter of events; None and () match all."""

    topic: str | None = None
    request_id: str | None = None
    types: tuple[str, ...] = ()

    def matches(self, event: Event) -> bool:
        """Whether the event passes the filter."""
        return (
            self.topic in (None, getattr(event, "topic", None))
            and self.request_id in (None, getattr(event, "request_id", None))
            and (not self.types or type(event).__name__ in self.types)
        )


def newest_first(listing: Listing, which: EventFilter, place: Place, limit: int) -> Listed:
    """Up to `limit` matching events below the offsets of a place, the newest first; fewer if they are large, or if many
    do not match."""
    streams = [_before(number, part, which, place[number]) for number, part in enumerate(listing.parts)]
    found: list[tuple[int | None, Recorded]] = []
    reached, room = list(place), BYTES_PER_PAGE
    in_order = merge(*streams, key=lambda one: (-one[1].at_ms, -one[0], -one[1].offset))
    for scanned, (number, record) in enumerate(in_order):
        if len(found) == limit or room <= 0 or scanned == EVENTS_SCANNED_MAX:
            return Listed(tuple(found), tuple(reached))
        reached[number] = record.offset
        if which.matches(record.event):
            part = listing.parts[number]
            found.append((part.partition, record))
            room -= part.size_of(record)
    return Listed(tuple(found), None)


def oldest_first(listing: Listing, which: EventFilter, place: Place, limit: int, end: Place) -> Listed:
    """Up to `limit` matching events from a place until before `end`, the oldest first; fewer as in `newest_first`."""
    found: list[tuple[int | None, Recorded]] = []
    scanned = 0
    while True:
        page = listing.page(place, limit - len(found), end)
        found += [one for one in page.events if which.matches(one[1].event)]
        scanned += len(page.events)
        if page.next_place is None or len(found) == limit or scanned >= EVENTS_SCANNED_MAX:
            return Listed(tuple(found), page.next_place)
        place = page.next_place


def _before(number: int, part: Query, which: EventFilter, before: int) -> Iterator[tuple[int, Recorded]]:
    offsets: Iterator[int]
    if which.request_id is not None:
        offsets = reversed([offset for offset in part.log.request_offsets(which.request_id) if offset < before])
    elif which.topic is not None:
        offsets = offsets_before(part.log, shard_key(which.topic), before)
    elif which.types == CREATION_TYPES:
        offsets = creation_offsets(part.log, before)
    else:
        offsets = iter(range(before - 1, -1, -1))
    return ((number, record) for record in _decoded(part, offsets))


def _decoded(part: Query, offsets: Iterator[int]) -> Iterator[Recorded]:
    for count, offset in enumerate(offsets, 1):
        if count % EVENTS_PER_REST == 0:
            part.rest()
        yield decode_event(offset, part.log.read_one(offset))
