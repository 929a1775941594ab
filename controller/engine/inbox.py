"""The queue of commands to decide, in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence

from controller.machine.commands.commands import AnyCommand


class Inbox:
    """Commands that were submitted and not decided."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        """Set when `take` must return once the inbox is empty."""
        self._commands: list[AnyCommand] = []
        self._wake = asyncio.Event()
        self.takes_without_yield = 0
        """Consecutive `take` calls that did not yield to the event loop."""
        self._interrupted = False
        self._taken = self._ended = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def enqueue(self, commands: Iterable[AnyCommand]) -> None:
        """Add commands at the end."""
        self._commands.extend(commands)
        self._wake.set()

    async def take(self, most: int) -> list[AnyCommand]:
        """Wait for the next commands; those of the last call count as decided. Returns none when closed, and after
        `interrupt`."""
        self._end()
        self.takes_without_yield += 1
        while not self._commands and not self.closed.is_set() and not self._interrupted:
            self._wake.clear()
            self.takes_without_yield = 0
            await self._wake.wait()
        self._interrupted = False
        taken, self._commands = self._commands[:most], self._commands[most:]
        self._taken = len(taken)
        return taken

    def return_to_head(self, commands: Sequence[AnyCommand]) -> None:
        """Return undecided commands to the head of the queue."""
        self._commands[:0] = commands
        self._taken -= len(commands)

    def drop_all(self) -> None:
        """Drop all commands and release everyone who waits for them."""
        self._commands.clear()
        while self._waiting:
            _release(self._waiting.popleft()[1])

    def interrupt(self) -> None:
        """Make `take` return with the commands that are there."""
        self._interrupted = True
        self._wake.set()

    def close(self) -> None:
        """Make `take` return no commands once the inbox is empty."""
        self.closed.set()
        self._wake.set()

    async def decided(self) -> None:
        """Wait until all commands enqueued so far are decided or dropped. Background work calls this between its
        commands, so that it never floods the inbox."""
        ahead = self._taken + len(self._commands)
        if ahead:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append((self._ended + ahead, future))
            await future

    def _end(self) -> None:
        self._ended, self._taken = self._ended + self._taken, 0
        while self._waiting and self._waiting[0][0] <= self._ended:
            _release(self._waiting.popleft()[1])


def _release(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
