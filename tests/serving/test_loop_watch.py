"""The loop is watched: what keeps it is named, and a clock that is set is noticed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controller.http.metrics import Metrics
from controller.serving.process import CAUSES_MAX, JUMP_MS, OTHER, OUTSIDE, LoopWatch, run_service

BLOCKING = "import time\ndef blocks(seconds): time.sleep(seconds)\n"
YEAR_MS = 365 * 24 * 3_600_000


def function_of(module: str) -> Callable[[float], None]:
    """A function that blocks, as a module of this name has it."""
    names: dict[str, Any] = {"__name__": module}
    exec(BLOCKING, names)
    blocks: Callable[[float], None] = names["blocks"]
    return blocks


class Heard:
    """Figures, log lines, and a wall clock that can be set."""

    def __init__(self) -> None:
        self.longest: dict[str, float] = {}
        self.jumps = 0
        self.lines: list[tuple[str, dict[str, Any]]] = []
        self.ahead_ms = 0

    def loop_blocked(self, cause: str, seconds: float) -> None:
        self.longest[cause] = max(seconds, self.longest.get(cause, 0.0))

    def clock_jumped(self) -> None:
        self.jumps += 1

    def warning(self, event: str, **fields: Any) -> None:
        self.lines.append((event, fields))

    def wall_ms(self) -> int:
        return round(time.monotonic() * 1000) + self.ahead_ms


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
async def watched(heard: Any) -> Any:
    """The running loop, watched."""
    watch = LoopWatch(heard, heard, time.monotonic, heard.wall_ms)
    watch.start()
    await asyncio.sleep(0.2)
    yield watch
    watch.stop()


async def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline, "it did not come to that"
        await asyncio.sleep(0.01)


async def test_what_keeps_the_loop_is_named_and_logged_seldom(heard: Heard, watched: LoopWatch) -> None:
    blocks = function_of("controller.apis.slow")
    blocks(0.6)
    await until(lambda: "controller.apis.slow.blocks" in heard.longest)
    assert heard.longest["controller.apis.slow.blocks"] > 0.4
    lines = [fields for event, fields in heard.lines if fields.get("cause") == "controller.apis.slow.blocks"]
    assert lines[0]["ms"] > 400
    assert lines[0]["where"].startswith("controller.apis.slow.blocks:2"), "the line, and what called it"
    for _ in range(3):
        blocks(0.3)
        await asyncio.sleep(0.1)
    assert len([event for event, _ in heard.lines if event == "event loop blocked"]) == 1, "one in ten seconds"
    assert heard.longest["controller.apis.slow.blocks"] > 0.4, "the longest stays"


async def test_what_is_not_ours_is_named_outside(heard: Heard, watched: LoopWatch) -> None:
    asyncio.get_running_loop().call_soon(function_of("elsewhere"), 0.6)
    await until(lambda: heard.longest.get(OUTSIDE, 0) > 0.4)


async def test_the_innermost_function_of_ours_is_the_cause(heard: Heard, watched: LoopWatch) -> None:
    names: dict[str, Any] = {"__name__": "projections.queries.deep", "blocks": function_of("elsewhere")}
    exec("def looks(seconds): blocks(seconds)\n", names)
    names["looks"](0.6)
    await until(lambda: heard.longest.get("projections.queries.deep.looks", 0) > 0.4)


async def test_no_more_causes_are_kept_than_a_scrape_can_bear(heard: Heard, watched: LoopWatch) -> None:
    causes = {watched._bounded(f"controller.cause{number}") for number in range(10 * CAUSES_MAX)}
    assert len(causes) <= CAUSES_MAX + 1
    assert OTHER in causes


async def test_a_wall_clock_that_is_set_is_one_line_and_counted(heard: Heard, watched: LoopWatch) -> None:
    jumps = (YEAR_MS, -YEAR_MS, JUMP_MS + 1000)
    for number, jump_ms in enumerate(jumps, 1):
        heard.ahead_ms += jump_ms
        await until(lambda number=number: heard.jumps == number)  # type: ignore[misc]
    for _ in range(5):
        heard.ahead_ms += JUMP_MS // 5
        await asyncio.sleep(0.15)
    seen = [fields["ms"] for event, fields in heard.lines if event == "wall clock jumped"]
    assert [round(ms, -3) for ms in seen] == [round(ms, -3) for ms in jumps], "a clock that is kept right is none"


@pytest.mark.parametrize("leads", [True, False])
async def test_hanging_loop_ends_a_leader_only(heard: Any, leads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.serving.process.HANG_S", 0.3)
    codes: list[int] = []
    watch = LoopWatch(heard, heard, time.monotonic, heard.wall_ms, lambda: leads, codes.append)
    watch.start()
    function_of("controller.apis.slow")(1.5)
    watch.stop()
    assert codes == ([3] if leads else [])


async def test_a_service_is_watched_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    class Service:
        ready_line = "ready"
        metrics = Metrics()
        failed = asyncio.Event()

        async def start(self) -> None:
            return None

        async def stop(self) -> None:
            return None

    monkeypatch.setattr("controller.serving.process.settle", lambda: None)
    service, stopping = Service(), asyncio.Event()
    running = asyncio.create_task(run_service(service, stopping))
    await asyncio.sleep(0.2)
    function_of("controller.http.slow")(0.6)
    await until(lambda: b'loop_blocked_seconds_max{cause="controller.http.slow.blocks"}' in service.metrics.render())
    stopping.set()
    assert await running == 0


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    for thread in threading.enumerate():
        if thread.name == "loop-watch":
            thread.join(10)
            assert not thread.is_alive()
