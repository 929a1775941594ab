"""Log lines: JSON, one a line, and never an obstacle."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from controller.serving.log_lines import LINES_A_MINUTE, OF_STRANGERS, TEXT_CHARACTERS_MAX, SparingLines
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
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, stderr=stderr, check=False, timeout=60
    )


def test_lines_are_json_one_a_line() -> None:
    done = run(subprocess.PIPE)
    lines = [json.loads(line) for line in done.stderr.decode("utf-8", "replace").splitlines()]
    assert [line["event"] for line in lines] == ["one", "two", "three", "four"]
    assert (lines[0]["level"], lines[0]["number"]) == ("info", 1)
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


def sparing(lines: SparingLines, event: str, minute: int, **more: str) -> dict[str, object] | None:
    """A line as it is written, None where it is not."""
    stamp = f"2026-01-01T00:{minute:02d}:30Z"
    try:
        return dict(lines(None, "warning", {"event": event, "timestamp": stamp, **more}))
    except structlog.DropEvent:
        return None


@pytest.mark.parametrize("event", sorted(OF_STRANGERS))
def test_lines_that_strangers_cause_are_bounded(event: str) -> None:
    lines = SparingLines()
    written = [sparing(lines, event, 1) for _ in range(LINES_A_MINUTE + 50)]
    assert all(written[:LINES_A_MINUTE])
    assert not any(written[LINES_A_MINUTE:])
    first, second = sparing(lines, event, 2), sparing(lines, event, 2)
    assert first is not None
    assert second is not None
    assert (first.get("left_out_before"), second.get("left_out_before")) == (50, None)


def test_other_lines_are_all_written_as_they_are() -> None:
    lines = SparingLines()
    written = [sparing(lines, "decided", 1, topic="t" * 5000) for _ in range(LINES_A_MINUTE + 50)]
    assert all(line is not None and line["topic"] == "t" * 5000 for line in written)


def test_what_strangers_say_is_cut() -> None:
    line = sparing(SparingLines(), "connection_closed", 1, client_id="x" * 32_767, reason="short")
    assert line is not None
    assert line["client_id"] == "x" * TEXT_CHARACTERS_MAX + "… (32767 characters)"
    assert line["reason"] == "short"
