"""The threads of queries: how many wait, who has them, and what ends with its client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from controller.http.query_threads import OF_ONE_MAX, Reading, TooBusy, client_host
from projections.queries.query import given_up


async def test_past_a_bound_queries_are_refused_at_once() -> None:
    reading = Reading(waiting_max=1)
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()
    first = asyncio.create_task(reading.run(lambda: asyncio.run_coroutine_threadsafe(gate.wait(), loop).result()))
    await asyncio.sleep(0)
    with pytest.raises(TooBusy, match="1 queries are waiting already"):
        await reading.run(lambda: None)
    gate.set()
    assert await first
    assert await reading.run(lambda number: number + 1, 1) == 2
    reading.close()


async def test_what_nobody_waits_for_any_more_ends() -> None:
    reading = Reading(waiting_max=1)
    begun, ended = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        gone = given_up.get()
        assert gone is not None
        assert gone.wait(60), "it is given up"
        ended.set()

    waiting = asyncio.create_task(reading.run(work))
    assert await asyncio.to_thread(begun.wait, 60)
    waiting.cancel()
    assert await asyncio.to_thread(ended.wait, 60)
    assert await reading.run(lambda: given_up.get() is not None), "it makes room for others"
    reading.close()


async def test_long_queries_of_one_address_leave_a_thread_to_others() -> None:
    reading = Reading()
    may_end = threading.Event()

    async def run(host: str, work: Callable[[], object]) -> object:
        client_host.set(host)
        return await reading.run(work)

    long = [asyncio.create_task(run("10.0.0.1", lambda: may_end.wait(60))) for _ in range(OF_ONE_MAX)]
    await asyncio.sleep(0)
    assert await asyncio.wait_for(run("10.0.0.2", lambda: "at once"), 60) == "at once"
    with pytest.raises(TooBusy):
        await asyncio.create_task(run("10.0.0.1", lambda: None))
    may_end.set()
    assert all(await asyncio.gather(*long))
    assert not reading._by_host, "nothing is kept of who has gone"
    reading.close()
