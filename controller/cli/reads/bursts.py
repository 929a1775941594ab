"""What comes bit by bit, put together again as long as more of the same may follow at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from queue import Empty, Queue
from threading import Thread
from time import monotonic  # noqa: TID251 - how long somebody at a terminal waits
from typing import TypeVar

QUIET_S = 0.2
"""A service hands on what is new every 50 ms: what belongs together comes sooner than this."""
HELD_S = 1.0
"""So late, at most, is something shown."""
BURST_MAX = 1000

_T = TypeVar("_T")


class _End:
    """Nothing more comes; `error` is why, where that is not how it should end."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def bursts(source: Iterable[_T], may_go_on: Callable[[_T], bool]) -> Iterator[list[_T]]:
    """Everything that a source gives, in order: what `may_go_on` is handed on with what follows it, until there is
    something that may not, or nothing more for a moment. Raises what the source raises, after all that it gave."""
    waiting: Queue[_T | _End] = Queue(BURST_MAX)
    Thread(target=_read, args=(source, waiting), daemon=True, name="burst").start()
    while True:
        burst, end = _burst(waiting, may_go_on)
        if burst:
            yield burst
        if end is not None:
            if end.error is not None:
                raise end.error
            return


def _read(source: Iterable[_T], waiting: Queue[_T | _End]) -> None:
    try:
        for each in source:
            waiting.put(each)
        waiting.put(_End())
    except BaseException as error:  # it is raised where it is waited for
        waiting.put(_End(error))


def _burst(waiting: Queue[_T | _End], may_go_on: Callable[[_T], bool]) -> tuple[list[_T], _End | None]:
    burst: list[_T] = []
    following, until_s = waiting.get(), monotonic() + HELD_S
    while not isinstance(following, _End):
        burst.append(following)
        wait_s = min(QUIET_S, until_s - monotonic())
        if not may_go_on(following) or len(burst) == BURST_MAX or wait_s <= 0:
            return burst, None
        try:
            following = waiting.get(timeout=wait_s)
        except Empty:
            return burst, None
    return burst, following
