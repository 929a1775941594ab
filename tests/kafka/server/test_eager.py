"""Coroutines that begin at once."""

from __future__ import annotations

import asyncio
import contextvars

import pytest

from controller.kafka.server import eager
from tests.kafka.server.listener import on_each_loop

NUMBER: contextvars.ContextVar[int] = contextvars.ContextVar("NUMBER", default=0)


async def at_once(value: int) -> int:
    return value


@on_each_loop
async def test_eager_result_without_wait() -> None:
    assert eager.start(at_once(3), asyncio.get_running_loop()) == 3


@on_each_loop
async def test_eager_exception_before_first_wait() -> None:
    async def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        eager.start(fails(), asyncio.get_running_loop())


@on_each_loop
async def test_eager_continues_as_task() -> None:
    loop = asyncio.get_running_loop()
    gate: asyncio.Future[int] = loop.create_future()
    steps = []

    async def waits() -> int:
        steps.append("begun")
        first = await gate
        steps.append("resumed")
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            return first + await at_once(1)

    started = eager.start(waits(), loop)
    assert isinstance(started, asyncio.Task)
    assert steps == ["begun"]
    gate.set_result(41)
    assert await started == 42
    assert steps == ["begun", "resumed"]


@on_each_loop
async def test_eager_receives_exceptions() -> None:
    loop = asyncio.get_running_loop()
    gate: asyncio.Future[int] = loop.create_future()

    async def waits() -> str:
        try:
            await gate
        except LookupError as error:
            return f"caught {error}"
        return "missed"

    started = eager.start(waits(), loop)
    assert isinstance(started, asyncio.Task)
    gate.set_exception(LookupError("it"))
    assert await started == "caught it"


@pytest.mark.parametrize("rounds", [0, 1, 3])
@on_each_loop
async def test_eager_cancellation(rounds: int) -> None:
    loop = asyncio.get_running_loop()
    seen = []

    async def waits() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            seen.append("cleaned up")

    started = eager.start(waits(), loop)
    assert isinstance(started, asyncio.Task)
    for _ in range(rounds):
        await asyncio.sleep(0)
    started.cancel()
    with pytest.raises(asyncio.CancelledError):
        await started
    assert seen == ["cleaned up"]


@on_each_loop
async def test_eager_continues_after_cancellation() -> None:
    async def stays() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.001)
            return "retained_events"
        return "was not cancelled"

    started = eager.start(stays(), asyncio.get_running_loop())
    assert isinstance(started, asyncio.Task)
    started.cancel()
    assert await started == "retained_events"


@on_each_loop
async def test_eager_has_its_own_context() -> None:
    async def sets() -> tuple[int, int]:
        before = NUMBER.get()
        NUMBER.set(7)
        await asyncio.sleep(0)
        return before, NUMBER.get()

    NUMBER.set(5)
    started = eager.start(sets(), asyncio.get_running_loop())
    assert NUMBER.get() == 5
    assert isinstance(started, asyncio.Task)
    assert await started == (5, 7)
