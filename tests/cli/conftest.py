"""Fixtures that run commands in the process of the tests."""

import asyncio
from pathlib import Path

import pytest

from tests.cli.commands import Outcome, Printed, Run, ended, open_log
from tests.http.service import service
from tests.store.archive.archives import write_a_day

DAY_EVENTS = 320


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process, as `topicwright` does."""

    def run_it(*arguments: object) -> Outcome:
        return Outcome(ended(*arguments), *capsys.readouterr())

    return run_it


@pytest.fixture
def printed(run: Run) -> Printed:
    """Runs a command that must end with an exit code, 0 by default; returns its output."""

    def run_it(*arguments: object, code: int = 0) -> str:
        outcome = run(*arguments)
        assert outcome.code == code, outcome
        return outcome.out + outcome.err

    return run_it


@pytest.fixture
def offline(run: Run, stopped: Path) -> Run:
    """Runs a command on the folder of a stopped service."""
    return lambda *arguments: run(*arguments, "--data", stopped)


@pytest.fixture(scope="session")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a stopped service: topic a.t, deleted topics u and v, and a refused create. Tests must not change
    it."""
    data = tmp_path_factory.mktemp("stopped") / "data"

    async def live() -> None:
        log = open_log(data)
        async with service(log=log) as one:
            await one.create("a.t", num_partitions=1, configs={"retention.ms": "5"})
            await one.create("v", num_partitions=1)
            await one.create("u", num_partitions=2)
            await one.create("u", 409)
            await one.request("DELETE", "/v1/topics/v")
        log.close()

    asyncio.run(live())
    return data


@pytest.fixture(scope="session")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with a day's events. Tests must not change it."""
    folder = tmp_path_factory.mktemp("day") / "log"
    write_a_day(folder, DAY_EVENTS)
    return folder
