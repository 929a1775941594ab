"""A flush may block the event loop briefly. After a slow flush, the next ones do not block it."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator

import pytest

from controller.engine.storage import FREE_AFTER_SLOW, WAIT_S, Flusher
from events.logs.log import LogWriteError


class SlowDisk:
    """A flush that blocks until the test releases it."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.flushes = self.flushed = 0

    def flush(self) -> None:
        self.may_go_on.wait()
        self.flushes += 1

    def note(self) -> None:
        self.flushed += 1


@pytest.fixture
def disk() -> SlowDisk:
    return SlowDisk()


@pytest.fixture
def flusher(disk: SlowDisk) -> Iterator[Flusher]:
    made = Flusher(disk.flush, disk.note)
    yield made
    disk.may_go_on.set()
    made.close()


def goes_round(work: Coroutine[object, object, None]) -> bool:
    """True if a coroutine yields to the event loop before it ends. Needs a running loop."""
    try:
        future = work.send(None)
    except StopIteration:
        return False
    work.close()
    assert isinstance(future, asyncio.Future)
    return True


async def test_a_fast_flush_runs_on_the_event_loop(
    disk: SlowDisk, flusher: Flusher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.engine.storage.WAIT_S", 600)  # longer than any delay of a busy machine
    disk.may_go_on.set()
    assert not goes_round(flusher.flush_alone())
    assert (disk.flushes, disk.flushed) == (1, 1)


async def test_a_slow_flush_moves_later_flushes_to_a_thread(disk: SlowDisk, flusher: Flusher) -> None:
    assert WAIT_S < 0.1, "the loop is blocked only briefly"
    flushing = asyncio.ensure_future(flusher.flush_alone())
    await asyncio.sleep(0)
    assert not flushing.done(), "the loop runs during a slow flush"
    disk.may_go_on.set()
    await flushing
    assert (disk.flushes, disk.flushed) == (1, 1)
    for _ in range(FREE_AFTER_SLOW):
        disk.may_go_on.clear()
        flushing = asyncio.ensure_future(flusher.flush_alone())
        asyncio.get_running_loop().call_soon(disk.may_go_on.set)  # a blocked loop would never call it
        await flushing
    assert disk.flushed == 1 + FREE_AFTER_SLOW


async def test_a_flush_error_is_raised_to_the_caller() -> None:
    def fail() -> None:
        raise LogWriteError("no disk")

    flusher = Flusher(fail, lambda: pytest.fail("a failed flush must not count"))
    for flush in (flusher.flush, flusher.flush_alone):
        with pytest.raises(LogWriteError, match="no disk"):
            await flush()
    flusher.close()
