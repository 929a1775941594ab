"""The main loop of `serve`, `worker` and `gateway`: whatever ends it, the service is stopped once."""

from __future__ import annotations

import asyncio

import pytest

from controller.http.metrics import Metrics
from controller.serving.process import FAILED, reached, run_service


class Service:
    """A service that says what became of it."""

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
    monkeypatch.setattr("controller.serving.process.settle", lambda: None)


async def test_it_runs_until_it_is_to_stop(capsys: pytest.CaptureFixture[str]) -> None:
    service, stopping = Service(), asyncio.Event()
    running = asyncio.create_task(run_service(service, stopping))
    await service.started.wait()
    stopping.set()
    assert await running == 0
    assert service.seen == ["started", "stopped"]
    assert capsys.readouterr().out == "ready\n"


async def test_it_ends_when_the_service_fails() -> None:
    service = Service()
    running = asyncio.create_task(run_service(service, asyncio.Event()))
    await service.started.wait()
    service.failed.set()
    assert await running == FAILED
    assert service.seen == ["started", "stopped"]


async def test_a_service_that_failed_at_once_is_never_ready(capsys: pytest.CaptureFixture[str]) -> None:
    service = Service()
    service.failed.set()
    assert await run_service(service, asyncio.Event()) == FAILED
    assert capsys.readouterr().out == ""


async def test_a_start_under_way_is_given_up() -> None:
    service, stopping = Service(is_slow=True), asyncio.Event()
    stopping.set()
    assert await run_service(service, stopping) == 0
    assert service.seen == ["stopped"]


async def test_what_keeps_it_from_starting_is_raised() -> None:
    service = Service(OSError("address in use"))
    with pytest.raises(OSError, match="address in use"):
        await run_service(service, asyncio.Event())
    assert service.seen == ["stopped"]


async def test_what_does_not_answer_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.serving.process.RETRY_S", 0)
    answers, waits = iter(["no", "no", "yes"]), list[str]()

    async def reach() -> str:
        answer = next(answers)
        if answer == "no":
            raise ConnectionError("nobody there")
        return answer

    assert await reached("Kafka", reach, ConnectionError, waits.append) == "yes"
    assert waits == ["nobody there"] * 2
