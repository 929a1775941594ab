"""Connections leave file descriptors for the log, however many clients come and do nothing."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import httpx

from tests.serving.service import CREATE, Serving, Talk, codes, create, wait_until
from tests.support.tools import ROOT

OPEN_FILES = 256

PROGRAM = """
import resource, sys
from controller.serving.client_listeners import connection_counts, raise_file_limit
from controller.settings.load import load_settings
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 3000))
print(raise_file_limit(), connection_counts(load_settings(overrides=sys.argv[1:])).total_max)
"""


def limits(*overrides: str) -> tuple[list[int], str]:
    """The limit on open files and on connections of a process, and what it logs."""
    argv = [sys.executable, "-c", PROGRAM, *overrides]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=240, check=True)
    *logged, last = done.stdout.splitlines()
    return [int(number) for number in last.split()], "\n".join(logged) + done.stderr


def test_the_soft_limit_is_raised_to_the_hard_one_and_half_is_kept() -> None:
    assert limits() == ([3000, 1500], "")
    assert limits("max.connections=1500") == ([3000, 1500], "")


def test_more_connections_than_open_files_allow_cost_a_warning() -> None:
    found, logged = limits("max.connections=1501")
    assert found == [3000, 1500]
    assert "max.connections is more than open files allow" in logged


def test_idle_connections_leave_the_log_writable(tmp_path: Path) -> None:
    with_limit = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({OPEN_FILES}, {OPEN_FILES}))"
    (tmp_path / "serving").mkdir()
    (tmp_path / "serving" / "sitecustomize.py").write_text(with_limit)
    server = Serving(tmp_path / "serving")
    idle: list[socket.socket] = []
    try:
        host, _, port = server.kafka.rpartition(":")
        talk = Talk(server.kafka)
        idle.extend(socket.create_connection((host, int(port)), 10) for _ in range(OPEN_FILES))
        for number in range(20):
            assert codes(talk.call(CREATE, 7, create(f"t{number}"))) == [0]
        wait_until(lambda: "file descriptors for 128 (ulimit -n)" in server.process.output, within_s=240)
        assert httpx.get(f"http://{server.http}/health/ready", timeout=240).status_code == 200
        assert "Too many open files" not in server.process.output
        talk.close()
    finally:
        for each in idle:
            each.close()
        assert server.process.stop(within_s=240) == 0, server.process.output[-3000:]
