"""One answer for all who ask at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """A question that many put often. It is asked once at a time; those who come while it is under way share the next
    answer, never the one that was asked for before they came."""

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask
        self._under_way: asyncio.Task[T] | None = None
        self._following: asyncio.Task[T] | None = None

    async def answer(self) -> T:
        """The answer to the question as of now. Raises what asking raises."""
        if self._following is None:
            self._following = asyncio.create_task(self._ask_after(self._under_way))
            self._following.add_done_callback(_heard)
        return await asyncio.shield(self._following)

    async def _ask_after(self, before: asyncio.Task[T] | None) -> T:
        if before is not None:
            await asyncio.wait((before,))
        self._under_way, self._following = self._following, None
        return await self._ask()


def _heard(task: asyncio.Task[T]) -> None:
    """Whoever asked may have been cancelled meanwhile: that nobody hears of a failure then is not worth a log line."""
    if not task.cancelled():
        task.exception()
