"""One answer for all who look at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """A look that many take often. One is under way at a time; those who come meanwhile share the next answer, never
    the one that was begun before they came."""

    def __init__(self, look: Callable[[], Awaitable[T]]) -> None:
        self._look = look
        self._under_way: asyncio.Task[T] | None = None
        self._following: asyncio.Task[T] | None = None

    async def answer(self) -> T:
        """The answer as of now. Raises what the look raises."""
        if self._following is None:
            self._following = asyncio.create_task(self._look_after(self._under_way))
            self._following.add_done_callback(_heard)
        return await asyncio.shield(self._following)

    async def _look_after(self, before: asyncio.Task[T] | None) -> T:
        if before is not None:
            await asyncio.wait((before,))
        self._under_way, self._following = self._following, None
        return await self._look()


def _heard(task: asyncio.Task[T]) -> None:
    """Whoever waited may have been cancelled meanwhile: that nobody hears of a failure then is not worth a log line."""
    if not task.cancelled():
        task.exception()
