"""The project runs on each supported Python that is installed: this one, and others on the PATH."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.pins import environment, others, packages
from tests.support.processes import Process
from tests.support.tools import ROOT, cached

HERE = sys.version_info.minor
DEMO_STEPS = (
    r"On the service at 127\.0\.0\.1:\d+",
    r"demo\.orders is created: 3 partitions, factor 3",
    r"all wait for broker 3, fenced since",
    r"demo\.refunds is rejected: .* \(INVALID_REPLICATION_FACTOR, by validation:live-brokers\)",
    r"healthy: 3 of 3 brokers live, 0 of 3 partitions offline",
    r"because broker 3 is live \(started\)",
    r"no topic 'demo\.refunds' was ever created",
    r"demo\.orders is deleted",
)
PYTHONS = {HERE: sys.executable, **others()}


def _environment(minor: int) -> Mapping[str, str]:
    if minor == HERE:
        return {**os.environ, "PYTHONPATH": str(ROOT)}
    cached(str(packages(minor).relative_to(ROOT / ".cache")))
    return environment(minor)


@pytest.mark.parametrize("minor", PYTHONS)
def test_modules_and_demo_run_on_each_python_with_warnings_as_errors(minor: int, tmp_path: Path) -> None:
    env = _environment(minor)
    argv = [PYTHONS[minor], "-B", "-W", "error", str(ROOT / "tests" / "deploy" / "on_each_python.py")]
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"modules of Python 3.{minor}\n" in done.stdout
    assert "Warning" not in done.stderr
    at = 0
    for step in DEMO_STEPS:
        found = re.compile(step).search(done.stdout, at)
        assert found is not None, f"no {step!r} after {done.stdout[:at][-200:]!r} in:\n{done.stdout}"
        at = found.end()
    assert not list(tmp_path.iterdir()), "the demo leaves no file"


@pytest.mark.parametrize("minor", [each for each in PYTHONS if each != HERE])
def test_a_voter_with_open_connections_stops_on_each_python(minor: int, tmp_path: Path) -> None:
    places = ["--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", str(tmp_path / "data")]
    argv = [PYTHONS[minor], "-B", "-m", "controller.cli.main", "serve", "--brokers", "kraft", *places]
    with ExitStack() as open_now, Process(argv, cwd=tmp_path, env=_environment(minor)) as process:
        for address in process.wait_for_line(r"^ready kafka=(\S+) http=(\S+)$", within_s=240).groups():
            host, _, port = address.rpartition(":")
            open_now.enter_context(socket.create_connection((host, int(port)), 60))
        assert process.stop(within_s=240) == 0
