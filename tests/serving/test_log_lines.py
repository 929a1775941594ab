"""Log lines: JSON, one a line, and never an obstacle."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from tests.support.tools import ROOT

PROGRAM = """
import structlog
from controller.serving.log_lines import configure_logs, write_lines
configure_logs("info")
log = structlog.get_logger("topicwright")
log.debug("not this")
log.info("one", number=1, text="ä\\ud800", data=b"x")
try:
    1 / 0
except ZeroDivisionError as error:
    log.error("two", exc_info=error)
write_lines(b'{"event":"three"}\\n')
log.warning("four")
print("done")
"""


def run(stderr: int | None, program: str = PROGRAM) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, stderr=stderr, check=False, timeout=240
    )


def test_lines_are_json_one_a_line() -> None:
    done = run(subprocess.PIPE)
    lines = [json.loads(line) for line in done.stderr.decode("utf-8", "replace").splitlines()]
    assert [line["event"] for line in lines] == ["one", "two", "three", "four"]
    assert (lines[0]["level"], lines[0]["number"]) == ("info", 1)
    assert [list(line)[:3] for line in lines if line["event"] != "three"] == [["at", "level", "event"]] * 3
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", lines[0]["at"])
    assert "ZeroDivisionError" in lines[1]["exception"]
    assert done.stdout == b"done\n"


def test_lines_that_cannot_be_written_are_dropped() -> None:
    full = Path("/dev/full")
    with full.open("wb") as device:
        done = run(device.fileno())
    assert (done.returncode, done.stdout) == (0, b"done\n")


def test_a_closed_pipe_is_no_obstacle() -> None:
    program = "import os, sys; read, write = os.pipe(); os.dup2(write, 2); os.close(read); os.close(write)" + PROGRAM
    done = run(None, program)
    assert (done.returncode, done.stdout) == (0, b"done\n")


def test_lines_that_clients_cause_are_bounded() -> None:
    program = PROGRAM.replace('log.debug("not this")', "for n in range(2000): log.warning('connection_closed', n=n)")
    lines = [json.loads(line) for line in run(subprocess.PIPE, program).stderr.decode("utf-8", "replace").splitlines()]
    assert len(lines) < 300
    assert [line["event"] for line in lines][-4:] == ["one", "two", "three", "four"]
