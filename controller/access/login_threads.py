"""Threads that check the passwords and tokens of clients. Client addresses take turns, so a flood of logins only delays
logins from the same network."""

import asyncio
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import AddressValueError, IPv6Network
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from controller.kafka.handling import normal_host

T = TypeVar("T")
NICENESS: Final = 10


class FairTurns:
    """Places for work of one event loop, for networks in turn: a network waits for running work, and at most one item
    of work of each other network."""

    def __init__(self, places: int) -> None:
        self._free = asyncio.Semaphore(places)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By network: held by its only work that waits for a place. Locks and the semaphore serve in order."""

    async def take(self, network: str) -> None:
        """Wait for a place; the caller must call `leave`."""
        async with self._turns.setdefault(network, asyncio.Lock()):
            await self._free.acquire()

    def leave(self) -> None:
        self._free.release()


class FairThreadPool(FairTurns):
    """A thread pool that serves networks in turn. Work is not started if its requester has disconnected."""

    def __init__(self, threads: int, name: str) -> None:
        super().__init__(threads)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name, initializer=_lower_priority)
        self._closed = False

    async def run(self, network: str, work: Callable[[], T]) -> T:
        """Runs `work` in a thread. Returns or raises its result. Raises CancelledError if the pool is closed before."""
        await self.take(network)
        if self._closed:
            self.leave()  # the next one that waits ends too
            raise asyncio.CancelledError
        running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        running.add_done_callback(lambda _: self.leave())
        return await asyncio.shield(running)  # the thread is busy until its work ends, even if the requester is gone

    def close(self) -> None:
        """Stops the threads and starts no more work."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)


def _lower_priority() -> None:
    """Prefers the event loop if there are fewer cores than threads. Only Linux has niceness per thread; new threads
    inherit it."""
    if sys.platform == "linux":
        os.nice(NICENESS)


def network_of(address: str) -> str:
    """Returns the address, or for IPv6 its /64 network, because one host may use all addresses of it."""
    host = normal_host(address)
    try:
        return str(IPv6Network((host, 64), strict=False))
    except AddressValueError:
        return host
