"""Makes a log durable in a thread of its own, while the loop goes on; or while it waits a moment, where it has nothing
else to do: to go round by the loop takes longer than most disks.

A disk that keeps the loop for all of that moment is slow: the next commits leave the loop free from the beginning, and
only every so often one tries again. So a slow disk costs the loop a thirtieth of its time at most, whatever it does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

WAIT_S: Final = 0.002
"""How long the loop waits for a disk."""
FREE_AFTER_SLOW: Final = 32
"""So many commits do not wait after one that waited in vain."""


class Flusher:
    """Flushes by `flush`, which may block, one at a time; `flushed` is called after each, on the loop."""

    def __init__(self, flush: Callable[[], object], flushed: Callable[[], object]) -> None:
        self._flush, self._flushed = flush, flushed
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="flush")
        self._free = 0

    async def flush(self) -> None:
        """Make all that is written so far durable; the loop is free meanwhile. Raises what `flush` raises."""
        await asyncio.wrap_future(self._thread.submit(self._flush))
        self._flushed()

    async def flush_alone(self) -> None:
        """The same for a command that waits alone: the loop waits too, at most for `WAIT_S`."""
        if self._free:
            self._free -= 1
            await self.flush()
            return
        flushing = self._thread.submit(self._flush)
        try:
            flushing.result(WAIT_S)
        except TimeoutError:
            self._free = FREE_AFTER_SLOW
            await asyncio.wrap_future(flushing)
        self._flushed()

    def close(self) -> None:
        """End the thread, after the flush under way."""
        self._thread.shutdown()
