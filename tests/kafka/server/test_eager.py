"""Eager tasks start their coroutine immediately."""

import asyncio
import contextvars

import pytest

from controller.kafka.server import eager
from tests.kafka.server.listener import on_each_loop

NUMBER: contextvars.ContextVar[int] = contextvars.ContextVar("NUMBER", default=0)


async def at_once(value: int) -> int:
    return value


@on_each_loop
async def test_eager_start_continues_as_a_task() -> None:
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


async def catches(gate: asyncio.Future[None]) -> str:
    """Wait for the gate; after an exception, wait once more."""
    try:
        await gate
    except (LookupError, asyncio.CancelledError) as error:
        await asyncio.sleep(0.001)
        return f"caught {type(error).__name__}"
    return "missed"


@pytest.mark.parametrize("rounds", [0, 1, 3])
@pytest.mark.parametrize("error", [LookupError, asyncio.CancelledError])
@on_each_loop
async def test_eager_task_receives_exceptions(error: type[BaseException], rounds: int) -> None:
    loop = asyncio.get_running_loop()
    gate: asyncio.Future[None] = loop.create_future()
    started = eager.start(catches(gate), loop)
    assert isinstance(started, asyncio.Task)
    for _ in range(rounds):
        await asyncio.sleep(0)
    if error is LookupError:
        gate.set_exception(LookupError("it"))
    else:
        started.cancel()
    assert await started == f"caught {error.__name__}"


@on_each_loop
async def test_eager_task_has_its_own_context() -> None:
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
