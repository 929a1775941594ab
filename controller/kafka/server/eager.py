"""Starts a coroutine immediately instead of in the next round of the event loop (an eager task in Python 3.12).

`connection` starts request handlers with it, so requests that are read together start together and in order. A handler
that never waits needs no task.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


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
