"""The main loop of `serve`, `worker` and `gateway` stops the service once, whatever ends it."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controller.http.metrics import Metrics
from controller.serving.process import FAILED, JUMP_MS, OUTSIDE, LoopWatch, reached, run_service


class Service:
    """A service that records its starts and stops."""

    ready_line = "ready"
    metrics = Metrics()

    def __init__(self, starting: BaseException | None = None, *, is_slow: bool = False) -> None:
        self.failed, self.started = asyncio.Event(), asyncio.Event()
        self.seen: list[str] = []
        self._starting = starting
        self._is_slow = is_slow

    async def start(self) -> None:
        if self._starting is not None:
            raise self._starting
        if self._is_slow:
            await asyncio.Event().wait()
        self.seen.append("started")
        self.started.set()

    async def stop(self) -> None:
        self.seen.append("stopped")


@pytest.fixture(autouse=True)
def _garbage_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.serving.process.tune_interpreter", lambda: None)


async def test_run_service_stops_on_the_stop_event(capsys: pytest.CaptureFixture[str]) -> None:
    service, stopping = Service(), asyncio.Event()
    running = asyncio.create_task(run_service(service, stopping))
    await service.started.wait()
    stopping.set()
    assert await running == 0
    assert service.seen == ["started", "stopped"]
    assert "ready\n" in capsys.readouterr().out


async def test_run_service_ends_when_the_service_fails() -> None:
    service = Service()
    running = asyncio.create_task(run_service(service, asyncio.Event()))
    await service.started.wait()
    service.failed.set()
    assert await running == FAILED
    assert service.seen == ["started", "stopped"]


async def test_a_service_that_fails_at_start_is_never_ready(capsys: pytest.CaptureFixture[str]) -> None:
    service = Service()
    service.failed.set()
    assert await run_service(service, asyncio.Event()) == FAILED
    assert "ready" not in capsys.readouterr().out


async def test_stop_cancels_a_start_in_progress() -> None:
    service, stopping = Service(is_slow=True), asyncio.Event()
    stopping.set()
    assert await run_service(service, stopping) == 0
    assert service.seen == ["stopped"]


async def test_a_start_error_is_raised() -> None:
    service = Service(OSError("address in use"))
    with pytest.raises(OSError, match="address in use"):
        await run_service(service, asyncio.Event())
    assert service.seen == ["stopped"]


async def test_an_unreachable_server_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.serving.process.RETRY_S", 0)
    answers, waits = iter(["no", "no", "yes"]), list[str]()

    async def reach() -> str:
        answer = next(answers)
        if answer == "no":
            raise ConnectionError("nobody there")
        return answer

    assert await reached("Kafka", reach, ConnectionError, waits.append) == "yes"
    assert waits == ["nobody there"] * 2


BLOCKING = "import time\ndef blocks(seconds): time.sleep(seconds)\n"
YEAR_MS = 365 * 24 * 3_600_000


def function_of(module: str) -> Callable[[float], None]:
    """Returns a blocking function defined in a module of this name."""
    names: dict[str, Any] = {"__name__": module}
    exec(BLOCKING, names)
    blocks: Callable[[float], None] = names["blocks"]
    return blocks


class Heard:
    """Records metrics and log lines, with a wall clock that the test sets."""

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
    """A watch on the running event loop."""
    watch = LoopWatch(heard, heard, time.monotonic, heard.wall_ms)
    watch.start()
    await asyncio.sleep(0.2)
    yield watch
    watch.stop()


async def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline, "condition not reached"
        await asyncio.sleep(0.01)


async def block_as(heard: Heard, cause: str, blocks: Callable[[float], None]) -> None:
    """Block the loop until the watch has seen the cause. On a busy machine its thread may miss the first attempts."""
    deadline = time.monotonic() + 240
    while heard.longest.get(cause, 0.0) <= 0.4:
        assert time.monotonic() < deadline, heard.longest
        asyncio.get_running_loop().call_soon(blocks, 0.6)
        await asyncio.sleep(0.1)


async def test_a_blocked_event_loop_is_logged_with_its_cause(heard: Heard, watched: LoopWatch) -> None:
    blocks, cause = function_of("controller.apis.slow"), "controller.apis.slow.blocks"
    await block_as(heard, cause, blocks)
    lines = [fields for event, fields in heard.lines if fields.get("cause") == cause]
    assert max(line["ms"] for line in lines) > 400
    assert lines[0]["where"].startswith(f"{cause}:2"), "the blocking line and its caller"


@pytest.mark.parametrize(
    ("module", "cause"), [("elsewhere", OUTSIDE), ("projections.queries.deep", "projections.queries.deep.looks")]
)
async def test_the_innermost_own_function_is_the_blocking_cause(
    heard: Heard, watched: LoopWatch, module: str, cause: str
) -> None:
    names: dict[str, Any] = {"__name__": module, "blocks": function_of("elsewhere")}
    exec("def looks(seconds): blocks(seconds)\n", names)
    await block_as(heard, cause, names["looks"])


async def test_a_wall_clock_jump_is_logged_and_counted(heard: Heard, watched: LoopWatch) -> None:
    jumps = (YEAR_MS, -YEAR_MS, JUMP_MS + 1000)
    for number, jump_ms in enumerate(jumps, 1):
        heard.ahead_ms += jump_ms
        await until(lambda number=number: heard.jumps == number)  # type: ignore[misc]
    for _ in range(5):
        heard.ahead_ms += JUMP_MS // 5
        await asyncio.sleep(0.15)
    seen = [fields["ms"] for event, fields in heard.lines if event == "wall clock jumped"]
    assert [round(ms, -3) for ms in seen] == [round(ms, -3) for ms in jumps], "small corrections are no jump"


@pytest.mark.parametrize("leads", [True, False])
async def test_a_hanging_loop_ends_only_a_leader(heard: Any, leads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.serving.process.HANG_S", 0.3)
    codes: list[int] = []
    watch = LoopWatch(heard, heard, time.monotonic, heard.wall_ms, lambda: leads, codes.append)
    watch.start()
    for _ in range(20 if leads else 1):  # on a busy machine, time that the thread misses counts as suspended
        function_of("controller.apis.slow")(1.5)
        await asyncio.sleep(0)
        if codes:
            break
    watch.stop()
    assert codes == ([3] if leads else [])


async def test_run_service_watches_the_event_loop() -> None:
    service, stopping = Service(), asyncio.Event()
    running = asyncio.create_task(run_service(service, stopping))
    await until(lambda: any(thread.name == "loop-watch" for thread in threading.enumerate()))
    blocked = b'loop_blocked_seconds_max{cause="controller.http.slow.blocks"}'
    while blocked not in service.metrics.render():
        function_of("controller.http.slow")(0.6)
        await asyncio.sleep(0.1)
    stopping.set()
    assert await running == 0


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    for thread in threading.enumerate():
        if thread.name == "loop-watch":
            thread.join(10)
            assert not thread.is_alive()
