"""Work in turns: whose is done when, and what becomes of what nobody waits for any more."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator

import pytest

from controller.access.users import NICENESS, FairThreadPool, network_of


@pytest.fixture
def threads() -> Iterator[FairThreadPool]:
    one = FairThreadPool(1, "fair")
    yield one
    one.close()


async def test_however_much_one_brings_another_has_its_turn(threads: FairThreadPool) -> None:
    order: list[str] = []
    gate = threading.Event()
    busy = [asyncio.create_task(threads.run("storm", gate.wait))]
    busy += [asyncio.create_task(threads.run("storm", lambda: order.append("storm") or True)) for _ in range(200)]  # type: ignore[func-returns-value]
    await asyncio.sleep(0)
    others = [asyncio.create_task(threads.run(name, lambda name=name: order.append(name))) for name in ("one", "two")]  # type: ignore[misc]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*busy, *others)
    assert max(order.index("one"), order.index("two")) <= 2, "at most one of each other's before it"
    assert len(order) == 202


async def test_what_nobody_waits_for_is_not_begun_nor_kept(threads: FairThreadPool) -> None:
    begun: list[int] = []
    gate = threading.Event()
    first = asyncio.create_task(threads.run("a", gate.wait))
    gone = [asyncio.create_task(threads.run("b", lambda n=n: begun.append(n))) for n in range(100)]  # type: ignore[misc]
    await asyncio.sleep(0)
    for task in gone:
        task.cancel()
    await asyncio.gather(*gone, return_exceptions=True)
    assert threads._waiting == {}
    first.cancel()
    gate.set()
    await threads.run("c", lambda: begun.append(-1))
    assert begun == [-1], "a thread that was not waited for is free again"


async def test_nothing_is_begun_when_they_are_closed(threads: FairThreadPool) -> None:
    wrong: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: wrong.append(context))
    begun: list[int] = []
    gate = threading.Event()
    first = asyncio.create_task(threads.run("a", gate.wait))
    second = asyncio.create_task(threads.run("b", lambda: begun.append(1)))
    await asyncio.sleep(0)
    threads.close()
    gate.set()
    assert await first
    await asyncio.sleep(0.01)
    assert (begun, wrong) == ([], [])
    second.cancel()


async def test_what_goes_wrong_is_raised_where_it_is_waited_for(threads: FairThreadPool) -> None:
    def fails() -> None:
        raise KeyError("PLANTED")

    with pytest.raises(KeyError, match="PLANTED"):
        await threads.run("a", fails)
    assert await threads.run("a", lambda: 7) == 7


@pytest.mark.skipif(sys.platform != "linux", reason="no other system has niceness for each thread")
async def test_its_threads_let_the_loop_go_first(threads: FairThreadPool) -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    assert await threads.run("a", niceness) == min(niceness() + NICENESS, 19)


ADDRESSES = """
10.0.0.1                10.0.0.1
::ffff:10.0.0.1         10.0.0.1
2001:db8:1:2:3:4:5:6    2001:db8:1:2::/64
2001:db8:1:2:ff::1      2001:db8:1:2::/64
fe80::1%eth0            fe80::/64
somewhere               somewhere
some:where              some:where
"""


@pytest.mark.parametrize("line", ADDRESSES.strip().splitlines())
def test_who_is_behind_an_address(line: str) -> None:
    address, network = line.split()
    assert network_of(address) == network
