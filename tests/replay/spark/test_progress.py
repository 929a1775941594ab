"""Progress of a replay: a bar on a terminal, lines elsewhere, nothing for short work."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from projections.replay.spark import session as module
from projections.replay.spark.session import progress


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def slow_job(spark: SparkSession) -> None:
    """Four tasks of half a second."""

    def rest(numbers: Any) -> Any:
        import time

        time.sleep(0.5)
        return numbers

    assert spark.sparkContext.parallelize(range(4), 4).mapPartitions(rest).count() == 4


def test_progress_is_logged_as_lines_without_a_terminal(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setattr(module, "LINE_EVERY_S", 0.1)
    with progress(spark, "rebuild"):
        slow_job(spark)
    lines = out.getvalue().splitlines()
    assert lines, "slow work is reported"
    assert all(re.fullmatch(r"rebuild: \d of 4 tasks done after \d+ s", line) for line in lines), lines


def test_progress_is_a_single_line_on_a_terminal(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    out = Terminal()
    monkeypatch.setattr(sys, "stderr", out)
    with progress(spark, "rebuild"):
        slow_job(spark)
    shown = out.getvalue().split("\r\x1b[K")
    assert shown[-1] == "", "the bar is erased at the end"
    assert re.fullmatch(r"rebuild: \d of 4 tasks done after \d+ s", shown[1]), shown


def test_short_jobs_print_no_progress(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setattr(module, "LINE_EVERY_S", 60)
    with progress(spark, "rebuild"):
        spark.range(3).count()
    assert out.getvalue() == ""


class Clock:
    """Seconds that advance only when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def lines_at(monkeypatch: pytest.MonkeyPatch, out: io.StringIO, stages: Callable[[int], list[Any]]) -> list[int]:
    """The seconds, of a hundred, at which progress is written; `stages` gives the stages of each second."""
    clock = Clock()
    monkeypatch.setattr(module, "is_connect", lambda _: True)
    monkeypatch.setattr(module, "monotonic", clock)
    monkeypatch.setattr(sys, "stderr", out)
    session, seconds = ConnectSession(), []
    with progress(session, "rebuild"):  # type: ignore[arg-type]
        for second in range(1, 101):
            clock.now, before = float(second), out.tell()
            session.handlers[0](stages=stages(second), inflight_tasks=2, operation_id="x", done=False)
            if out.tell() > before:
                seconds.append(second)
        session.handlers[0](stages=None, done=True)
    assert session.handlers == [], "the handler is unregistered"
    return seconds


def test_progress_lines_of_one_stage_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines_at(monkeypatch, io.StringIO(), lambda _: [Stage()]) == [5, 10, 20, 40, 80]


def test_progress_bar_is_redrawn_every_second(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines_at(monkeypatch, Terminal(), lambda _: [Stage()]) == list(range(1, 101))


class Gone(io.StringIO):
    """A stream whose reader has gone."""

    def write(self, _: str) -> int:
        raise OSError("gone")


def test_a_closed_output_does_not_stop_the_spark_job(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Gone())
    monkeypatch.setattr(module, "LINE_EVERY_S", 0.0)
    with progress(spark, "rebuild"):
        slow_job(spark)


class ConnectSession:
    """The part of a Spark Connect session that progress uses."""

    def __init__(self) -> None:
        self.handlers: list[Callable[..., None]] = []

    def registerProgressHandler(self, handler: Callable[..., None]) -> None:  # noqa: N802 - the names are Spark's
        self.handlers.append(handler)

    def removeProgressHandler(self, handler: Callable[..., None]) -> None:  # noqa: N802
        self.handlers.remove(handler)


class Stage:
    """A stage as Spark Connect reports it."""

    stage_id, num_tasks, num_completed_tasks = 1, 8, 3
