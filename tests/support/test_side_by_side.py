"""Each test file belongs to exactly one group of `side_by_side`, and an interrupted run leaves no process."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.real_brokers import until
from tests.support.side_by_side import GROUPS, command
from tests.support.test_processes import alive
from tests.support.tools import ROOT


def test_every_test_file_is_in_one_group() -> None:
    files = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(files) > 100, files
    assert {str(file): _groups(file) for file in files if len(_groups(file)) != 1} == {}


def _groups(file: Path) -> list[str]:
    return [group for group in GROUPS if _runs(command(group), file)]


def _runs(argv: list[str], file: Path) -> bool:
    folders = {Path(each) for each in argv[3:] if not each.startswith("--")}
    ignored = {Path(each.removeprefix("--ignore=")) for each in argv[3:] if each.startswith("--")}
    places = {file, *file.parents}
    return not folders.isdisjoint(places) and ignored.isdisjoint(places)


SUITE = """
import os, pathlib, subprocess, sys, threading
import pytest

@pytest.fixture
def server():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    yield process
    process.kill()
    process.wait()

def test_that_takes_long(server):
    here = pathlib.Path(__file__)
    here.with_suffix(".tmp").write_text(f"{os.getppid()} {os.getpid()} {server.pid}")
    here.with_suffix(".tmp").rename(here.with_suffix(".pids"))
    threading.Event().wait()
"""
RUNNER = """
import sys, pathlib
from tests.support import side_by_side
side_by_side.GROUPS = {name: (pathlib.Path(sys.argv[1], f"test_{name}.py"),) for name in ("one", "two")}
sys.exit(side_by_side.main(["-p", "no:cacheprovider"]))
"""


@pytest.mark.parametrize(
    "end",
    [
        lambda make, _: os.kill(make, signal.SIGTERM),
        lambda make, _: os.killpg(make, signal.SIGTERM),
        lambda make, _: os.kill(make, signal.SIGKILL),
        lambda _, runner: os.kill(runner, signal.SIGKILL),
    ],
    ids=["make terminated", "its group terminated", "make killed", "the runner killed"],
)
def test_ending_make_test_leaves_no_processes(end: Callable[[int, int], None], tmp_path: Path) -> None:
    """Also if SIGINT is ignored, as in a background job of a script."""
    (tmp_path / "runner.py").write_text(RUNNER)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "Makefile").write_text(f"test:\n\t{sys.executable} runner.py {tmp_path}\n")
    for name in ("one", "two"):
        (tmp_path / f"test_{name}.py").write_text(SUITE)
    argv = ["sh", "-c", "trap '' INT; exec make test"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    make = subprocess.Popen(argv, cwd=tmp_path, env=env, start_new_session=True)
    try:
        until(lambda: len(list(tmp_path.glob("*.pids"))) == 2, 60, "both run")
        pids = {int(pid) for file in tmp_path.glob("*.pids") for pid in file.read_text().split()}
        (runner,) = {int(file.read_text().split()[0]) for file in tmp_path.glob("*.pids")}
        assert len(pids) == 5, "expected: the runner, and two pytest with a server each"
        end(make.pid, runner)
        make.wait(60)
        until(lambda: not any(map(alive, pids)), 60, "all have ended")
    finally:
        for pid in (int(pid) for file in tmp_path.glob("*.pids") for pid in file.read_text().split()):
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.killpg(make.pid, signal.SIGKILL)
        make.wait()
