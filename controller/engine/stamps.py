"""The time and the ids that are stamped on commands.

A request id has a number, and a code that only this process can compute: nobody finds another client's request by
counting.

The time is the wall clock's, and never goes back. While the wall clock is behind the newest stamp, because it was set
back or the event was stamped by a clock that was ahead, stamps advance at half the pace of a clock that only goes
forward: later stamps are higher, and the wall clock catches up. Nothing that waits uses stamps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

from events.names import RequestId

PACE: Final = 0.5
"""Of the time that passes, how much stamps go on while the wall clock is behind them."""
_SHOWN_CHARACTERS: Final = 6
"""Of the boot id. The characters after them are secret."""
_CODE_BYTES: Final = 5


class Stamps:
    """The stamps of one process. `boot_id` has 16 random bytes in hexadecimal, `clock_ms` is the wall clock, and
    `last_ms` the time of the newest event of an earlier process. The clock that only goes forward is the loop's."""

    def __init__(self, boot_id: str, clock_ms: Callable[[], int], last_ms: int = 0) -> None:
        self._boot_id = boot_id[:_SHOWN_CHARACTERS]
        self._key = boot_id.encode()
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
        """An id that no other request has and nobody can guess; `origin` says where the request comes from."""
        self._requests += 1
        code = blake2b(b"%d" % self._requests, key=self._key, digest_size=_CODE_BYTES).hexdigest()
        return RequestId(f"{origin}{'-' if origin else ''}{self._boot_id}-{self._requests}-{code}")
