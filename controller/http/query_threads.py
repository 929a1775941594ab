"""Reading the log for a query without holding up anybody who decides.

Queries run in a few threads of their own, so that they neither keep the event loop nor the thread that syncs the log.
One address has all but one of them at most, so that its long queries do not keep those of others waiting. How many may
wait for a thread is bounded, of one address and of all: past that a query is refused at once, rather than answered when
nobody waits any more.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import ContextVar, copy_context
from typing import Any, ParamSpec, TypeVar

import msgspec
from litestar import Response

from controller.http.form.packing import packed
from events.logs.archive.store import Visits, visits
from projections.queries.query import given_up

THREADS = 4  # queries read the disk; more would take the loop's share of the interpreter
WAITING_MAX = 128  # beyond them a query is refused at once instead of late
OF_ONE_MAX = WAITING_MAX // 2

client_host: ContextVar[str] = ContextVar("client_host", default="")
"""The address of the client whose request is worked on."""

_encode = msgspec.json.Encoder().encode
_P = ParamSpec("_P")
_T = TypeVar("_T")


class TooBusy(Exception):
    """More queries wait than can be answered soon."""


class _Share:
    """The queries of one address: how many there are, and whose turn it is."""

    def __init__(self) -> None:
        self.count = 0
        self.turns = asyncio.Semaphore(THREADS - 1)


class Reading:
    """Runs the reading parts of queries."""

    def __init__(self, waiting_max: int = WAITING_MAX) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="query")
        self._waiting_max = waiting_max
        self._waiting = 0
        self._shares: dict[str, _Share] = {}

    async def run(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Do this in one of the threads; where nobody waits for it any more it ends, or never begins. Raises
        TooBusy."""
        gone, context = threading.Event(), copy_context()
        context.run(given_up.set, gone)
        context.run(visits.set, Visits())
        async with self._turn():
            try:
                return await asyncio.get_running_loop().run_in_executor(
                    self._threads, lambda: context.run(work, *args, **kwargs)
                )
            finally:
                gone.set()

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        host = client_host.get()
        share = self._shares.get(host) or _Share()
        if self._waiting >= self._waiting_max or share.count >= OF_ONE_MAX:
            raise TooBusy(f"{self._waiting} queries are waiting already; try again later")
        self._shares[host] = share
        self._waiting += 1
        share.count += 1
        try:
            async with share.turns:
                yield
        finally:
            self._waiting -= 1
            share.count -= 1
            if not share.count:
                del self._shares[host]

    async def answer(self, work: Callable[_P, object], *args: _P.args, **kwargs: _P.kwargs) -> Response[Any]:
        """Do this in one of the threads, write what it gives as JSON there too, and answer with it as
        its client wants it. Raises TooBusy."""
        return await self.run(lambda: packed(_encode(work(*args, **kwargs))))

    def close(self) -> None:
        """Let the threads end with what they are at."""
        self._threads.shutdown(wait=True, cancel_futures=True)


class Stopping:
    """`event` is set when the service begins to stop: whoever waits answers, and ends."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
