"""Concurrent calls that share an answer."""

from __future__ import annotations

import asyncio

import pytest

from controller.brokers.cluster.link import SharedCall


class Source:
    """Counts its calls. Answers with the count, or an error, when released."""

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


async def test_callers_during_a_call_share_the_next_answer() -> None:
    source = Source()
    shared = SharedCall(source)
    first = [asyncio.create_task(shared.answer()) for _ in range(3)]
    await _settled()
    later = [asyncio.create_task(shared.answer()) for _ in range(3)]
    await _settled()
    assert source.count == 1, "one at a time"
    source.gate.release()
    assert await asyncio.gather(*first) == [1, 1, 1]
    source.gate.release()
    assert await asyncio.gather(*later) == [2, 2, 2], "never of a call made before they came"
    source.gate.release()
    assert await shared.answer() == 3


async def test_a_failure_reaches_only_its_callers() -> None:
    source = Source()
    source.wrong = {1}
    shared = SharedCall(source)
    first = [asyncio.create_task(shared.answer()) for _ in range(2)]
    await _settled()
    later = asyncio.create_task(shared.answer())
    for _ in range(2):
        source.gate.release()
    for each in first:
        with pytest.raises(OSError, match="1"):
            await each
    assert await later == 2


async def test_a_cancelled_caller_does_not_cancel_the_others() -> None:
    source = Source()
    shared = SharedCall(source)
    gives_up, waits = (asyncio.create_task(shared.answer()) for _ in range(2))
    await _settled()
    gives_up.cancel()
    await _settled()
    source.gate.release()
    assert await waits == 1
    assert gives_up.cancelled()


async def test_a_failure_without_callers_is_not_logged() -> None:
    source = Source()
    source.wrong = {1}
    shared = SharedCall(source)
    only = asyncio.create_task(shared.answer())
    await _settled()
    only.cancel()
    source.gate.release()
    await _settled()
    source.gate.release()
    assert await shared.answer() == 2
