"""Commands that run in this process."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.cli.commands import Outcome, Printed, Run, ended, open_log
from tests.http.service import service


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process, as `topicwright` would."""

    def run_it(*arguments: object) -> Outcome:
        return Outcome(ended(*arguments), *capsys.readouterr())

    return run_it


@pytest.fixture
def printed(run: Run) -> Printed:
    """Runs a command that ends with an exit code, 0 by default; returns all that it prints."""

    def run_it(*arguments: object, code: int = 0) -> str:
        outcome = run(*arguments)
        assert outcome.code == code, outcome
        return outcome.out + outcome.err

    return run_it


@pytest.fixture(scope="session")
def _stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
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


@pytest.fixture
def stopped(_stopped: Path, tmp_path: Path) -> Path:
    """The folder of a service that has stopped: topics a.t and u, v deleted, one create refused."""
    return Path(shutil.copytree(_stopped, tmp_path / "data"))
