"""Events handed on as they become durable, for as long as somebody listens.

A follower is a position in the log, so a slow one costs nothing but its connection: it is sent the next lines when it
has taken the last ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec

from controller.http import shaping
from controller.http.errors import refused
from controller.http.reading import Reading
from controller.http.stopping import Stopping
from controller.machine.errors import ErrorCode
from projections.query import Query

FOLLOWERS_MAX = 64
EVENTS_PER_CHUNK = 200
LOOK_EVERY_S = 0.05
SIGN_OF_LIFE_S = 10.0

_encode = msgspec.json.Encoder().encode


class Followers:
    """Those who listen."""

    def __init__(self, query: Query, reading: Reading, stopping: Stopping) -> None:
        self._query = query
        self._reading = reading
        self._stopping = stopping
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def follow(self, start: int | None, topic: str | None, request_id: str | None) -> AsyncIterator[bytes]:
        """Lines of JSON from an offset on, or from now. Raises Refused where too many listen already."""
        if self._count >= FOLLOWERS_MAX:
            message = f"{FOLLOWERS_MAX} clients follow the events already"
            raise refused(503, ErrorCode.THROTTLING_QUOTA_EXCEEDED, message)
        return self._lines(self._query.end() if start is None else start, topic, request_id)

    async def _lines(self, offset: int, topic: str | None, request_id: str | None) -> AsyncIterator[bytes]:
        self._count += 1
        silent_s = 0.0
        try:
            while not self._stopping.event.is_set():
                if offset < self._query.end():
                    lines, offset = await self._reading.run(self._chunk, offset, topic, request_id)
                    if lines:
                        silent_s = 0.0
                        yield lines
                    continue
                await asyncio.sleep(LOOK_EVERY_S)
                silent_s += LOOK_EVERY_S
                if silent_s >= SIGN_OF_LIFE_S:
                    silent_s = 0.0
                    yield b"\n"
        finally:
            self._count -= 1

    def _chunk(self, offset: int, topic: str | None, request_id: str | None) -> tuple[bytes, int]:
        end = self._query.end()
        page = self._query.events(offset, EVENTS_PER_CHUNK, end, topic=topic, request_id=request_id)
        lines = b"".join(_encode(shaping.event(record)) + b"\n" for record in page.records)
        return lines, end if page.next_offset is None else page.next_offset
