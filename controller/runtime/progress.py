"""How far deciding has come: lets background work wait for what it put, so that it never floods the inbox."""

from __future__ import annotations

import asyncio
from collections import deque


class Progress:
    """Counts the commands of one inbox, which is worked off in order.

    `begun` and `ended` frame the work on some commands from its front; `release_all` goes with emptying it.
    """

    def __init__(self) -> None:
        self._ended = 0
        self._at_work = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def begun(self, count: int) -> None:
        """So many commands left the inbox and are worked on."""
        self._at_work = count

    def ended(self, count: int) -> None:
        """The work on them is over."""
        self._at_work = 0
        self._ended += count
        while self._waiting and self._waiting[0][0] <= self._ended:
            _release(self._waiting.popleft()[1])

    def release_all(self) -> None:
        """Nothing that was put is worked on any more: let everybody go."""
        while self._waiting:
            _release(self._waiting.popleft()[1])

    async def reached(self, inbox_length: int) -> None:
        """Wait until the work on everything is over that is in the inbox, or worked on, now."""
        ahead = self._at_work + inbox_length
        if ahead:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append((self._ended + ahead, future))
            await future


def _release(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
