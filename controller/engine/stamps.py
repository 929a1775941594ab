"""The times and request ids of commands.

A request id has a number and a code that only this process can compute, so that no client can guess the id of another
client's request.

The time is the wall clock's, and never goes back. While the wall clock is behind the newest stamp, because it was set
back or the event was stamped by a clock that was ahead, stamps advance at half the pace of a clock that only goes
forward: later stamps are higher, and the wall clock catches up. Timers do not use stamps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

from events.names import RequestId

PACE: Final = 0.5
"""Pace of stamps, relative to real time, while the wall clock is behind them."""
_VISIBLE_CHARACTERS: Final = 6
"""Characters of the boot id in request ids. The others are secret."""
_CODE_BYTES: Final = 5


class Stamps:
    """The stamps of one process. `boot_id` has 16 random bytes in hexadecimal, `clock_ms` is the wall clock, and
    `last_ms` the time of the newest event of an earlier process. The clock that only goes forward is the loop's."""

    def __init__(self, boot_id: str, clock_ms: Callable[[], int], last_ms: int = 0) -> None:
        self._boot_id = boot_id[:_VISIBLE_CHARACTERS]
        self._key = boot_id.encode()
        self._clock_ms = clock_ms
        self._clock_s: Callable[[], float] | None = None
        self._base_ms = last_ms
        """The newest stamp from the wall clock or a caller; `_base_s` is its time by the loop's clock."""
        self._base_s = 0.0
        self._requests = 0

    def now_ms(self, at_least_ms: int = 0) -> int:
        """The time in ms since the epoch. It never goes back, and is at least `at_least_ms`: the deadline of a timer
        that fired although the wall clock has not reached it."""
        if self._clock_s is None:
            self._clock_s = asyncio.get_running_loop().time
            self._base_s = self._clock_s()
        now_s = self._clock_s()
        due_ms = max(self._clock_ms(), at_least_ms)
        slowly_ms = self._base_ms + int((now_s - self._base_s) * 1000 * PACE)
        if due_ms < slowly_ms:
            return slowly_ms
        self._base_ms, self._base_s = due_ms, now_s
        return due_ms

    def new_request_id(self, origin: str = "") -> RequestId:
        """A unique id that cannot be guessed, with `origin` as prefix."""
        self._requests += 1
        code = blake2b(b"%d" % self._requests, key=self._key, digest_size=_CODE_BYTES).hexdigest()
        return RequestId(f"{origin}{'-' if origin else ''}{self._boot_id}-{self._requests}-{code}")
