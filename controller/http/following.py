"""Stream events to HTTP clients as they become durable, for `GET /v1/events/follow`.

For each client only a position in the log is stored. A client gets the next events when it has read the previous ones,
so a slow client costs nothing but its connection.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from controller.http.errors import refused
from controller.http.permissions import Reader
from controller.http.query_threads import client_host
from controller.machine.errors import ErrorCode
from projections.queries.events import EventFilter, Listing, Place, cursor_of, listing
from projections.views.events import EventView, event_view

FOLLOWERS_MAX = 64
FOLLOWERS_PER_HOST_MAX = FOLLOWERS_MAX // 2
EVENTS_PER_CHUNK = 200
POLL_S = 0.05  # the maximum delay of an event
HEARTBEAT_S = 10.0  # proxies close silent connections, often after 60 s

_encode = msgspec.json.Encoder().encode

Writer = Callable[[Sequence[EventView], Place], bytes]
"""Encodes events, and the position in the log after them, as a chunk of the response; without events, a heartbeat."""


def ndjson(events: Sequence[EventView], reached: Place) -> bytes:
    """One JSON object per line; a heartbeat is an empty line."""
    del reached
    return b"".join(_encode(one) + b"\n" for one in events) or b"\n"


def server_sent(events: Sequence[EventView], reached: Place) -> bytes:
    """Server-sent events (WHATWG HTML). The last event of a chunk has a cursor as its id, which a browser sends back
    when it reconnects; a heartbeat is a comment."""
    if not events:
        return b":\n\n"
    blocks = [b"data: " + _encode(one) + b"\n\n" for one in events]
    return b"".join(blocks[:-1]) + b"id: " + cursor_of(reached).encode() + b"\n" + blocks[-1]


class Followers:
    """Streams events to clients, and limits their number in total and per address."""

    def __init__(self, reader: Reader) -> None:
        self._queries, self._threads = reader.queries, reader.threads
        self._by_host: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._by_host.total()

    def follow(
        self,
        which: EventFilter,
        since: str | None,
        may_see: Callable[[], bool],
        partition: int | None = None,
        cursor: str | None = None,
        write: Writer = ndjson,
    ) -> AsyncIterator[bytes]:
        """Stream events from a point in time, a cursor, or now, while `may_see` returns True. Raises BadPlace,
        InvalidPointInTime, and Refused if there are too many followers."""
        if len(self) >= FOLLOWERS_MAX or self._by_host[client_host.get()] >= FOLLOWERS_PER_HOST_MAX:
            message = f"too many clients follow the events: {len(self)}"
            raise refused(503, ErrorCode.THROTTLING_QUOTA_EXCEEDED, message)
        events = listing(self._queries, which, partition)
        start = events.end() if since is None else events.since(since)
        place = start if cursor is None else events.place(cursor)
        return self._lines(events, place, write, may_see)

    async def _lines(
        self, events: Listing, place: Place, write: Writer, may_see: Callable[[], bool]
    ) -> AsyncIterator[bytes]:
        host = client_host.get()
        self._by_host[host] += 1
        silent_s = 0.0
        try:
            while may_see() and not self._threads.stopping.is_set():
                if any(at < end for at, end in zip(place, events.end(), strict=True)):
                    lines, place = await self._threads.run(self._chunk, events, place, write)
                    if lines:
                        silent_s = 0.0
                        yield lines
                    continue
                await asyncio.sleep(POLL_S)
                silent_s += POLL_S
                if silent_s >= HEARTBEAT_S:
                    silent_s = 0.0
                    yield write([], place)
        finally:
            self._by_host[host] -= 1
            self._by_host += Counter()  # drops zero counts

    def _chunk(self, events: Listing, place: Place, write: Writer) -> tuple[bytes, Place]:
        end = events.end()
        page = events.oldest(place, EVENTS_PER_CHUNK, end)
        reached = tuple(map(max, place, end)) if page.next_place is None else page.next_place
        shown = [event_view(record, part.partition) for part, record in page.events]
        return write(shown, reached) if shown else b"", reached
