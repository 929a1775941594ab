"""Slow work in a few threads, taken from each party in turn: however much one party brings, another waits for no more
than what runs now and one piece of each other party.

A piece of work whose requester has gone is not begun.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import AddressValueError, IPv6Network
from typing import Any, Final, TypeVar

from controller.kafka.session import normal_host

T = TypeVar("T")
NICENESS: Final = 10


class FairThreads:
    """A few threads; to be used from one event loop."""

    def __init__(self, threads: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name, initializer=_stand_back)
        self._free = threads
        self._closed = False
        self._waiting: dict[str, dict[asyncio.Future[Any], Callable[[], Any]]] = {}
        """By party, in the order in which they have their turn; of each its work, oldest first."""

    async def run(self, party: str, work: Callable[[], T]) -> T:
        """What `work` returns, or raises, once it was this party's turn."""
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(party, {})[outcome] = work
        self._begin()
        try:
            return await outcome
        finally:
            queue = self._waiting.get(party, {})
            queue.pop(outcome, None)
            if not queue:
                self._waiting.pop(party, None)

    def close(self) -> None:
        """Let the threads end; nothing more is begun."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _begin(self) -> None:
        while self._free > 0 and self._waiting and not self._closed:
            party = next(iter(self._waiting))
            queue = self._waiting.pop(party)
            outcome = next(iter(queue))
            work = queue.pop(outcome)
            if queue:
                self._waiting[party] = queue
            if not outcome.done():
                self._free -= 1
                running = asyncio.get_running_loop().run_in_executor(self._threads, work)
                running.add_done_callback(partial(self._ended, outcome))

    def _ended(self, outcome: asyncio.Future[Any], running: asyncio.Future[Any]) -> None:
        self._free += 1
        if running.cancelled():
            outcome.cancel()
        elif (error := running.exception()) is None and not outcome.done():
            outcome.set_result(running.result())
        elif error is not None and not outcome.done():
            outcome.set_exception(error)
        self._begin()


def _stand_back() -> None:
    """Let the loop go first where there are fewer cores than threads. Linux alone has niceness for each thread, which
    those that it starts inherit."""
    if sys.platform == "linux":
        os.nice(NICENESS)


def party_of(address: str) -> str:
    """Who is behind an address: of IPv6 the first 64 bits, since one host has all addresses of such a network."""
    host = normal_host(address)
    try:
        return str(IPv6Network((host, 64), strict=False))
    except AddressValueError:
        return host
