"""Starts a coroutine now instead of in the event loop's next round (what Python 3.12 calls an eager task).

So requests read together are begun together and in order, and one that needs no waiting costs no task.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


def start(coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T | asyncio.Task[T]:
    """The result if the coroutine ends without waiting, else a task that carries on from its first wait.

    Raises what the coroutine raises before its first wait. Up to there it runs in a context of its own but outside of
    any task.
    """
    context = contextvars.copy_context()
    try:
        waits_for = context.run(coroutine.send, None)
    except StopIteration as done:
        result: T = done.value
        return result
    return loop.create_task(_Started(coroutine, waits_for), context=context)


class _Started(Coroutine[Any, Any, T]):
    """A coroutine that has run up to its first wait; hands that wait to the task that takes over."""

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
