"""The time and the ids that are stamped on commands."""

from __future__ import annotations

from collections.abc import Callable

from events.names import RequestId


class Stamps:
    """What one process stamps on its commands; `boot_id` is unique to the process, `clock_ms` its wall clock, and
    `last_ms` the time of the newest event of an earlier process."""

    def __init__(self, boot_id: str, clock_ms: Callable[[], int], last_ms: int = 0) -> None:
        self._boot_id = boot_id
        self._clock_ms = clock_ms
        self._last_ms = last_ms
        self._requests = 0

    def now_ms(self, at_least_ms: int = 0) -> int:
        """The time in ms since the epoch. It never goes back, nor behind any `at_least_ms`: a deadline that a timer
        found to have passed and the clock may not agree on yet."""
        self._last_ms = max(self._last_ms, self._clock_ms(), at_least_ms)
        return self._last_ms

    def new_request_id(self, origin: str = "") -> RequestId:
        """An id that no other request has; `origin` says where it comes from."""
        self._requests += 1
        return RequestId(f"{origin}{'-' if origin else ''}{self._boot_id}-{self._requests}")
