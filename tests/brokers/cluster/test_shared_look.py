"""Questions that many put at the same time."""

from __future__ import annotations

import asyncio

import pytest

from controller.brokers.cluster.shared_look import Shared


class Asked:
    """Counts how often it is asked, and answers when told to: with the count, or with an error."""

    def __init__(self) -> None:
        self.count = 0
        self.gate = asyncio.Semaphore(0)
        self.wrong: set[int] = set()

    async def __call__(self) -> int:
        self.count += 1
        number = self.count
        await self.gate.acquire()
        if number in self.wrong:
            raise OSError(number)
        return number


async def _settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_who_comes_while_it_is_asked_shares_the_next_answer() -> None:
    asked = Asked()
    shared = Shared(asked)
    first = [asyncio.create_task(shared.answer()) for _ in range(3)]
    await _settled()
    later = [asyncio.create_task(shared.answer()) for _ in range(3)]
    await _settled()
    assert asked.count == 1, "one at a time"
    asked.gate.release()
    assert await asyncio.gather(*first) == [1, 1, 1]
    asked.gate.release()
    assert await asyncio.gather(*later) == [2, 2, 2], "never what was asked before they came"
    asked.gate.release()
    assert await shared.answer() == 3


async def test_a_failure_is_theirs_who_asked_and_nobody_elses() -> None:
    asked = Asked()
    asked.wrong = {1}
    shared = Shared(asked)
    first = [asyncio.create_task(shared.answer()) for _ in range(2)]
    await _settled()
    later = asyncio.create_task(shared.answer())
    for _ in range(2):
        asked.gate.release()
    for each in first:
        with pytest.raises(OSError, match="1"):
            await each
    assert await later == 2


async def test_who_gives_up_leaves_the_others_their_answer() -> None:
    asked = Asked()
    shared = Shared(asked)
    gives_up, waits = (asyncio.create_task(shared.answer()) for _ in range(2))
    await _settled()
    gives_up.cancel()
    await _settled()
    asked.gate.release()
    assert await waits == 1
    assert gives_up.cancelled()


async def test_nobody_left_to_hear_of_a_failure() -> None:
    asked = Asked()
    asked.wrong = {1}
    shared = Shared(asked)
    only = asyncio.create_task(shared.answer())
    await _settled()
    only.cancel()
    asked.gate.release()
    await _settled()
    asked.gate.release()
    assert await shared.answer() == 2
