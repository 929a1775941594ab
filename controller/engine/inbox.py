"""The commands that wait to be decided, in order, and how far deciding has come."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence

from controller.machine.commands.commands import AnyCommand


class Inbox:
    """Commands between those who put them and the one who decides them."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        """Nothing is waited for any more once the inbox is empty."""
        self._commands: list[AnyCommand] = []
        self._wake = asyncio.Event()
        self.straight = 0
        """How many calls of `take` in a row have not let the loop go round."""
        self._interrupted = False
        self._taken = self._ended = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def put(self, commands: Iterable[AnyCommand]) -> None:
        """Have commands decided after all that were put before."""
        self._commands.extend(commands)
        self._wake.set()

    async def take(self, most: int) -> list[AnyCommand]:
        """The next commands, as soon as there are any; those of the last call are decided by then. None at the end,
        and when `interrupt` was called."""
        self._end()
        self.straight += 1
        while not self._commands and not self.closed.is_set() and not self._interrupted:
            self._wake.clear()
            self.straight = 0
            await self._wake.wait()
        self._interrupted = False
        taken, self._commands = self._commands[:most], self._commands[most:]
        self._taken = len(taken)
        return taken

    def put_back(self, commands: Sequence[AnyCommand]) -> None:
        """The last of those that were taken are not decided: they are the next again."""
        self._commands[:0] = commands
        self._taken -= len(commands)

    def drop_all(self) -> None:
        """Nothing that was put is decided any more: let everybody go who waits for it."""
        self._commands.clear()
        while self._waiting:
            _release(self._waiting.popleft()[1])

    def interrupt(self) -> None:
        """Have `take` return, with what there is."""
        self._interrupted = True
        self._wake.set()

    def close(self) -> None:
        """Have `take` come to its end."""
        self.closed.set()
        self._wake.set()

    async def decided(self) -> None:
        """Wait until all that was put so far is decided, or dropped: what puts much in the background waits for this
        in between, and so never floods the inbox."""
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
