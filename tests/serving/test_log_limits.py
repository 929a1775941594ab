"""Log lines are bounded in number, of each kind, and in length."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import structlog

from controller.serving.log_lines import CHARACTERS_MAX, LINES_AT_ONCE, LINES_PER_S, LogLimits


class Log:
    """Lines that came through, at times that a test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.lines: list[dict[str, Any]] = []
        self._limits = LogLimits(lambda: self.now_s)

    def write(self, event: str, **fields: Any) -> None:
        with suppress(structlog.DropEvent):
            self.lines.append(dict(self._limits(None, "warning", {"event": event, **fields})))


def test_a_flood_of_lines_is_cut_to_some_a_second_and_says_so() -> None:
    log = Log()
    for _ in range(100_000):
        log.write("authentication_failed", user="x")
        log.now_s += 0.001
    assert len(log.lines) <= LINES_AT_ONCE + 101 * LINES_PER_S
    later = [line["suppressed"] for line in log.lines if "suppressed" in line]
    assert sum(later) + len(log.lines) > 99_000, "all are accounted for"
    log.lines.clear()
    log.now_s += 1000
    log.write("authentication_failed", user="x")
    log.write("authentication_failed", user="x")
    assert ["suppressed" in line for line in log.lines] == [True, False]


def test_each_kind_has_its_bound_whoever_causes_it_and_takes_nothing_from_another() -> None:
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


@pytest.mark.parametrize("event", ["connection_closed", "http server", "a controller cannot be reached"])
def test_values_are_cut_but_not_a_trace(event: str) -> None:
    log = Log()
    log.write(event, client_id="x" * 30_000, version=3, short="y", trace="t" * 3000)
    assert len(log.lines[0]["trace"]) == 3000
    assert len(log.lines[0]["client_id"]) < CHARACTERS_MAX + 30
    assert log.lines[0]["client_id"].endswith("(30000 characters)")
    assert (log.lines[0]["version"], log.lines[0]["short"]) == (3, "y")
