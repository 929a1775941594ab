"""Events handed on as they become durable, for as long as somebody listens.

A follower is a position in the log, so a slow one costs nothing but its connection: it is sent the next lines when it
has taken the last ones.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from controller.http.errors import refused
from controller.http.query_threads import Reading, Stopping, client_host
from controller.machine.errors import ErrorCode
from projections.queries.listing import Listing, Place, cursor_of, listing
from projections.queries.query import Questions
from projections.views import to_json
from projections.views.json_types import EventView

FOLLOWERS_MAX = 64  # each holds a connection and a queue
OF_ONE_MAX = FOLLOWERS_MAX // 2  # of one address, so that there is room for others
EVENTS_PER_CHUNK = 200
LOOK_EVERY_S = 0.05  # so late, at most, is an event shown
SIGN_OF_LIFE_S = 10.0  # proxies close what is silent for longer, often after 60 s

_encode = msgspec.json.Encoder().encode

Form = Callable[[Sequence[EventView], Place], bytes]
"""Writes some events, with the place after them; without events, a sign of life."""


def ndjson(events: Sequence[EventView], reached: Place) -> bytes:
    """One JSON object a line; a sign of life is an empty line."""
    del reached
    return b"".join(_encode(one) + b"\n" for one in events) or b"\n"


def server_sent(events: Sequence[EventView], reached: Place) -> bytes:
    """Server-sent events, as browsers read them (WHATWG HTML): the last of those written together has the cursor to go
    on at as its id, which a browser that lost the connection sends back; a sign of life is a comment."""
    if not events:
        return b":\n\n"
    blocks = [b"data: " + _encode(one) + b"\n\n" for one in events]
    return b"".join(blocks[:-1]) + b"id: " + cursor_of(reached).encode() + b"\n" + blocks[-1]


class Followers:
    """Those who listen."""

    def __init__(self, query: Questions, reading: Reading, stopping: Stopping) -> None:
        self._query = query
        self._reading = reading
        self._stopping = stopping
        self._by_host: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._by_host.total()

    def follow(
        self,
        start: int | None,
        topic: str | None,
        request_id: str | None,
        may_see: Callable[[], bool],
        partition: int | None = None,
        cursor: str | None = None,
        write: Form = ndjson,
    ) -> AsyncIterator[bytes]:
        """Events from an offset or a cursor on, or from now, in one of the forms, for as long as the client may see
        them. Raises BadPlace, and Refused where too many listen already."""
        if len(self) >= FOLLOWERS_MAX or self._by_host[client_host.get()] >= OF_ONE_MAX:
            message = f"{len(self)} clients follow the events already"
            raise refused(503, ErrorCode.THROTTLING_QUOTA_EXCEEDED, message)
        events = listing(self._query, topic, request_id, partition)
        place = events.end() if start is None and cursor is None else events.place(start or 0, cursor)
        return self._lines(events, place, write, may_see)

    async def _lines(
        self, events: Listing, place: Place, write: Form, may_see: Callable[[], bool]
    ) -> AsyncIterator[bytes]:
        host = client_host.get()
        self._by_host[host] += 1
        silent_s = 0.0
        try:
            while may_see() and not self._stopping.event.is_set():
                if any(at < end for at, end in zip(place, events.end(), strict=True)):
                    lines, place = await self._reading.run(self._chunk, events, place, write)
                    if lines:
                        silent_s = 0.0
                        yield lines
                    continue
                await asyncio.sleep(LOOK_EVERY_S)
                silent_s += LOOK_EVERY_S
                if silent_s >= SIGN_OF_LIFE_S:
                    silent_s = 0.0
                    yield write([], place)
        finally:
            self._by_host[host] -= 1
            self._by_host += Counter()  # forget who has none

    def _chunk(self, events: Listing, place: Place, write: Form) -> tuple[bytes, Place]:
        end = events.end()
        page = events.page(place, EVENTS_PER_CHUNK, end)
        reached = tuple(map(max, place, end)) if page.next_place is None else page.next_place
        shown = [to_json.event(record, partition) for partition, record in page.events]
        return write(shown, reached) if shown else b"", reached
