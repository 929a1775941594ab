"""The time and the ids that are stamped on commands.

The time is the wall clock's, and never goes back. While the wall clock is behind what was stamped already, because it
was set back or an event was stamped by a clock that was ahead, stamps go on at half the pace of a clock that only goes
forward: what comes later is stamped later, and the wall clock catches up. Nothing that waits goes by them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from events.names import RequestId

PACE: Final = 0.5
"""Of the time that passes, how much stamps go on while the wall clock is behind them."""


class Stamps:
    """What one process stamps on its commands; `boot_id` is unique to the process, `clock_ms` its wall clock, and
    `last_ms` the time of the newest event of an earlier process. The clock that only goes forward is the loop's."""

    def __init__(self, boot_id: str, clock_ms: Callable[[], int], last_ms: int = 0) -> None:
        self._boot_id = boot_id
        self._clock_ms = clock_ms
        self._clock_s: Callable[[], float] | None = None
        self._base_ms = last_ms
        """The newest stamp that was the wall clock's, or a given one, and when that was."""
        self._base_s = 0.0
        self._requests = 0

    def now_ms(self, at_least_ms: int = 0) -> int:
        """The time in ms since the epoch. It never goes back, nor behind any `at_least_ms`: a deadline that a timer
        found to have passed and the clock may not agree on yet."""
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
        """An id that no other request has; `origin` says where it comes from."""
        self._requests += 1
        return RequestId(f"{origin}{'-' if origin else ''}{self._boot_id}-{self._requests}")
