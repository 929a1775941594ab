"""Limits on log lines and file descriptors. Logging never blocks the service."""

import json
import re
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

from controller.serving.log_lines import CHARACTERS_MAX, LINES_AT_ONCE, LINES_PER_S, LogLimits
from tests.serving.service import CREATE, Serving, Talk, codes, create, wait_until
from tests.support.tools import ROOT


class Log:
    """The log lines that pass the limits, at times set by the test."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.lines: list[dict[str, Any]] = []
        self._limits = LogLimits(lambda: self.now_s)

    def write(self, event: str, **fields: Any) -> None:
        with suppress(structlog.DropEvent):
            self.lines.append(dict(self._limits(None, "warning", {"event": event, **fields})))


def test_log_lines_are_rate_limited_with_a_suppressed_count() -> None:
    log = Log()
    for _ in range(100_000):
        log.write("authentication_failed", user="x")
        log.now_s += 0.001
    assert len(log.lines) <= LINES_AT_ONCE + 101 * LINES_PER_S
    later = [line["suppressed"] for line in log.lines if "suppressed" in line]
    assert sum(later) + len(log.lines) > 99_000, "written and suppressed lines add up"
    log.lines.clear()
    log.now_s += 1000
    log.write("authentication_failed", user="x")
    log.write("authentication_failed", user="x")
    assert ["suppressed" in line for line in log.lines] == [True, False]


def test_log_rate_limits_are_per_event() -> None:
    log = Log()
    kinds = (
        "connection_closed",
        "a controller cannot be reached",
        "quorum",
        "unsupported record: this node will not lead",
    )
    for _ in range(1000):
        for kind in kinds:
            log.write(kind)
    log.write("authentication_failed")
    assert [sum(line["event"] == kind for line in log.lines) for kind in kinds] == [LINES_AT_ONCE] * len(kinds)
    assert log.lines[-1]["event"] == "authentication_failed"


def test_log_values_are_truncated_except_traces() -> None:
    log = Log()
    log.write("connection_closed", client_id="x" * 30_000, version=3, short="y", trace="t" * 3000)
    assert len(log.lines[0]["trace"]) == 3000
    assert len(log.lines[0]["client_id"]) < CHARACTERS_MAX + 30
    assert log.lines[0]["client_id"].endswith("(30000 characters)")
    assert (log.lines[0]["version"], log.lines[0]["short"]) == (3, "y")


OPEN_FILES = 256

LIMITS_PROGRAM = """
import resource, sys
from controller.serving.listeners import connection_counts, raise_file_limit
from controller.settings.load import load_settings
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 3000))
print(raise_file_limit(), connection_counts(load_settings(overrides=sys.argv[1:])).total_max)
"""


def limits(*overrides: str) -> tuple[list[int], str]:
    """Returns the limits on open files and connections of a process, and its log output."""
    argv = [sys.executable, "-c", LIMITS_PROGRAM, *overrides]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=240, check=True)
    *logged, last = done.stdout.splitlines()
    return [int(number) for number in last.split()], "\n".join(logged) + done.stderr


def test_open_files_limit_is_raised_and_half_is_for_connections() -> None:
    assert limits("max.connections=1500") == ([3000, 1500], "")
    found, logged = limits("max.connections=1501")
    assert found == [3000, 1500]
    assert "max.connections is more than open files allow" in logged


def test_idle_connections_leave_file_descriptors_for_the_log(tmp_path: Path) -> None:
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


PROGRAM = """
import structlog
from controller.serving.log_lines import configure_logs, write_lines
configure_logs("info")
log = structlog.get_logger("topicwright")
log.debug("not this")
for n in range(2000): log.warning("connection_closed", n=n)
log.info("one", number=1, text="ä\\ud800", data=b"x")
try:
    1 / 0
except ZeroDivisionError as error:
    log.error("two", exc_info=error)
write_lines(b'{"event":"three"}\\n')
log.warning("four")
print("done")
"""


def run(before: str = "") -> subprocess.CompletedProcess[bytes]:
    program = before + PROGRAM
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=False, timeout=240)


def test_log_lines_are_json() -> None:
    done = run()
    lines = [json.loads(line) for line in done.stderr.decode("utf-8", "replace").splitlines()]
    assert len(lines) < 300, "log lines caused by clients are limited"
    lines = lines[-4:]
    assert [line["event"] for line in lines] == ["one", "two", "three", "four"]
    assert (lines[0]["level"], lines[0]["number"]) == ("info", 1)
    assert [list(line)[:3] for line in lines if line["event"] != "three"] == [["at", "level", "event"]] * 3
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", lines[0]["at"])
    assert "ZeroDivisionError" in lines[1]["exception"]
    assert done.stdout == b"done\n"


FULL = "os.dup2(os.open('/dev/full', os.O_WRONLY), 2)"
CLOSED = "read, write = os.pipe(); os.dup2(write, 2); os.close(read); os.close(write)"


@pytest.mark.parametrize("stderr", [FULL, CLOSED], ids=["full", "closed"])
def test_unwritable_log_lines_are_dropped(stderr: str) -> None:
    done = run(f"import os; {stderr}")
    assert (done.returncode, done.stdout) == (0, b"done\n")
