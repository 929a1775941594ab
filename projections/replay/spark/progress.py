"""Shows the progress of long Spark jobs: one changing line on a terminal, a few lines elsewhere.

Lines stay in logs and mails, so only a few are written: after 5, 10, 20, 40 seconds and so on.

Spark's own progress bar writes to the terminal from Java, over other output. This module asks Spark a few times a
second which stages run and how many tasks are done; with Spark Connect, Spark calls this module.

Non-goal: a bar. Spark announces stages one after another, so the number of tasks grows, and a bar would jump back.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import monotonic  # noqa: TID251 - shown to people, never decided on
from typing import Any, TextIO

from pyspark.sql import SparkSession

from projections.replay.spark.session import is_connect

CHECK_EVERY_S = 0.2
LINE_EVERY_S = 5.0


@contextmanager
def progress(session: SparkSession, work: str) -> Iterator[None]:
    """Show the progress of Spark's jobs on standard error until the block ends; nothing for short jobs."""
    reporter = _Reporter(work, sys.stderr)
    following = _called_by_connect if is_connect(session) else _read_from_spark
    with following(session, reporter):
        try:
            yield
        finally:
            reporter.ended = True
    reporter.clear()


class _Reporter:
    def __init__(self, work: str, out: TextIO) -> None:
        self._work = work
        self._out = out
        self._is_terminal = out.isatty()
        self._started = monotonic()
        self._next = self._started + (CHECK_EVERY_S if self._is_terminal else LINE_EVERY_S)
        self._stages: dict[int, tuple[int, int]] = {}
        self.ended = False

    def update(self, stages: Iterable[tuple[int, int, int]]) -> None:
        """Update the counts from the current stages: id, tasks done, all tasks. A stage that is not listed is done."""
        now = {stage: (done, tasks) for stage, done, tasks in stages}
        finished = {stage: (tasks, tasks) for stage, (_, tasks) in self._stages.items() if stage not in now}
        self._stages = finished | now
        elapsed_s = monotonic() - self._started
        if self._stages and not self.ended and self._started + elapsed_s >= self._next:
            self._next = monotonic() + (CHECK_EVERY_S if self._is_terminal else elapsed_s)
            done, tasks = (sum(counts) for counts in zip(*self._stages.values(), strict=True))
            before, after = ("\r\x1b[K", "") if self._is_terminal else ("", "\n")
            self._write(f"{before}{self._work}: {done} of {tasks} tasks done after {int(elapsed_s)} s{after}")

    def clear(self) -> None:
        """Remove the line from the terminal."""
        if self._is_terminal:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except (OSError, ValueError):
            self.ended = True  # the reader of the output is gone; the work continues


@contextmanager
def _read_from_spark(session: SparkSession, reporter: _Reporter) -> Iterator[None]:
    tracker, stopped = session.sparkContext.statusTracker(), threading.Event()

    def report_stages() -> None:
        while not stopped.wait(CHECK_EVERY_S):
            known = [(stage, tracker.getStageInfo(stage)) for stage in tracker.getActiveStageIds()]
            reporter.update((stage, info.numCompletedTasks, info.numTasks) for stage, info in known if info is not None)

    thread = threading.Thread(target=report_stages, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


@contextmanager
def _called_by_connect(session: SparkSession, reporter: _Reporter) -> Iterator[None]:
    def called(*, stages: Iterable[Any] | None = None, **_: Any) -> None:
        reporter.update((one.stage_id, one.num_completed_tasks, one.num_tasks) for one in stages or ())

    handler: Any = called
    session.registerProgressHandler(handler)
    try:
        yield
    finally:
        session.removeProgressHandler(handler)
