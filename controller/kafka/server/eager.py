"""When work starts on the event loop: `start` begins a coroutine immediately instead of in the next iteration (an eager
task in Python 3.12), and `Turns` divides the work of many clients between iterations.

`connection` starts request handlers with `start`, so requests that are read together start together and in order. A
handler that never waits needs no task.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine
from time import perf_counter  # noqa: TID251 - for how long work blocks the loop
from types import TracebackType
from typing import Any, Final, TypeVar

T = TypeVar("T")
TURN_S: Final = 0.01
"""For how long work of `Turns` may block the event loop in one iteration."""


def start(coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T | asyncio.Task[T]:
    """The result if the coroutine returns without waiting, else a task that continues from its first wait.

    Raises what the coroutine raises before its first wait. Until then it runs in its own context, without a task.
    """
    context = contextvars.copy_context()
    try:
        waits_for = context.run(coroutine.send, None)
    except StopIteration as done:
        result: T = done.value
        return result
    return loop.create_task(_Started(coroutine, waits_for), context=context)


class _Started(Coroutine[Any, Any, T]):
    """A coroutine after its first step, for a new task: the task waits for the same future, then continues the rest."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], waits_for: Any) -> None:
        self._coroutine = coroutine
        self._first: list[Any] = [waits_for]

    def send(self, value: Any) -> Any:
        return self._first.pop() if self._first else self._coroutine.send(value)

    def throw(self, typ: Any, val: Any = None, tb: TracebackType | None = None) -> Any:
        self._first.clear()
        return self._coroutine.throw(typ) if val is None and tb is None else self._coroutine.throw(typ, val, tb)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Any:
        raise TypeError("only a task may run this")


class Turns:
    """Runs one piece of work after another, and leaves the loop to others in between."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._waiting: deque[Callable[[], None]] = deque()

    def add(self, work: Callable[[], None]) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._run)
        self._waiting.append(work)

    def _run(self) -> None:
        ends_s = self._clock() + TURN_S
        try:
            while self._waiting and self._clock() < ends_s:
                self._waiting.popleft()()
        finally:
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._run)
