"""Replays with Spark on two cores, compared with a plain Python loop over the same log in the same run.

    python -m benchmarks.replay [--events 2000000] [--topics 100000] [--growth] [--json]

Logs are generated (`benchmarks.generate`), uniform, and with half of all events in one topic. `--growth` rebuilds logs
of a tenth, the whole and three times the size, to show that time grows with events. Each job runs three times: Java
needs two runs for compilation; the best run counts. The note has the first run, which starts the workers, and the
processor seconds (user and system, of all processes). Memory is the highest proportional set size of Java and of the
Python processes below this one.
"""

import gc
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.figures import Figure, command_line
from benchmarks.generate import generate
from benchmarks.usage import usage
from controller.machine.apply import apply
from controller.machine.state import DictTopics, State
from events.codec import decode_event
from projections.replay.checks.checking import check_here, check_in_buckets
from projections.replay.export import export, exported
from projections.replay.log.log_ref import LogRef
from projections.replay.log.secondary import frozen_log
from projections.replay.outcome import ReplayError
from projections.replay.rebuild.rebuild import HASHES, hash_rows
from projections.replay.runner import Runner
from projections.replay.shards import fold_shards
from projections.replay.spark.session import OnSpark, check_java, spark_session

EVENTS = 2_000_000
TOPICS = 100_000
SMALL_EVENTS, SMALL_TOPICS = 200_000, 10_000
"""The size for the table of all benchmarks."""


class Measured(NamedTuple):
    """Seconds of the best and of the first run, and the lowest number of processor seconds."""

    best_s: float
    first_s: float
    core_s: float

    def rate(self, events: int) -> float:
        return events / self.best_s

    def note(self, events: int) -> str:
        """Returns the note on the rate."""
        took = f"{events:,} events in {self.best_s:.1f} s, {self.core_s:.1f} s of a core"
        return took if self.first_s == self.best_s else f"{took}; first run {self.first_s:.1f} s"


def measured(work: Callable[[], object], runs: int = 3) -> Measured:
    """Run and measure the work several times."""
    took, core_s = [], []
    for _ in range(runs):
        with usage() as seen:
            started = time.perf_counter()
            work()
            took.append(time.perf_counter() - started)
        core_s.append(seen.core_s)
    return Measured(min(took), took[0], min(core_s))


def plain_loop(ref: LogRef) -> int:
    """Fold a whole log in one Python process; returns the number of topics."""
    topics = DictTopics()
    state = State(topics)
    gc.disable()
    try:
        with frozen_log(ref.path) as log:
            for offset, value in log.read():
                apply(state, decode_event(offset, value))
    finally:
        gc.enable()
    return len(topics)


def rebuild_with_hashes(runner: Runner, ref: LogRef, events: int) -> int:
    """Rebuild every topic with the hash of its state; returns the number of topics."""
    return len(fold_shards(runner, ref, {0: events}, hash_rows, HASHES))


def check_export(runner: Runner | None, folder: str, events: int) -> None:
    """Check every invariant on an export, in this process without a runner; fail if one is violated."""
    source = partial(exported, folder, {0: events})
    checked = check_here(source, limit=1) if runner is None else check_in_buckets(runner, source, limit=1)
    assert not checked.rows, f"violations in a generated log: {checked.rows}"


def replayed(runner: Runner, folder: Path, events: int, topics: int, skewed: bool) -> list[Figure]:
    """All figures of one log."""
    shape = "half of the events in one topic" if skewed else "uniform"
    ref, count = _log(folder / f"log-{skewed}", events, topics, skewed)
    plain = measured(lambda: plain_loop(ref), 1)
    with usage() as seen:
        rebuild = measured(lambda: rebuild_with_hashes(runner, ref, count))
        out = str(folder / f"export-{skewed}")
        exporting = measured(lambda: export(runner, ref, out, {0: count}), 1)
        invariants = measured(lambda: check_export(runner, out, count))
    here = measured(lambda: check_export(None, out, count), 1)
    sizes = f"Java {seen.java:,.0f} MiB, Python workers {seen.workers:,.0f} MiB"
    return [
        _figure(f"plain Python loop, no hashes, one core; {shape}", plain, count),
        _figure(f"Spark: rebuild with hashes; {shape}", rebuild, count),
        _figure(f"Spark: export to Parquet; {shape}", exporting, count),
        _figure(f"Spark: all invariants on the export; {shape}", invariants, count),
        _figure(f"in one process: all invariants on the export; {shape}", here, count),
        Figure(f"memory at its highest; {shape}", "MiB", seen.java + seen.workers, note=sizes),
    ]


def grown(runner: Runner, folder: Path, events: int, topics: int) -> list[Figure]:
    """Measures rebuilds of a tenth of the events, of all, and of three times as many."""
    figures = []
    for size, named in ((events // 10, topics // 10), (events, topics), (3 * events, 3 * topics)):
        ref, count = _log(folder / f"grown-{size}", size, named, False)
        with usage() as seen:
            took = measured(lambda ref=ref, count=count: rebuild_with_hashes(runner, ref, count))  # type: ignore[misc]
        sizes = f"{took.note(count)}; Java {seen.java:,.0f} MiB, Python workers {seen.workers:,.0f} MiB"
        figures.append(Figure(f"Spark: rebuild of {count:,} events", "events/s", took.rate(count), note=sizes))
    return figures


def _log(folder: Path, events: int, topics: int, skewed: bool) -> tuple[LogRef, int]:
    count = generate(folder, events, topics, skewed=skewed)
    return LogRef(str(folder), folder), count


def _figure(work: str, took: Measured, events: int) -> Figure:
    core_us = took.core_s / events * 1e6
    return Figure(work, "events/s", took.rate(events), note=took.note(events), core_us=core_us)


def run(events: int = EVENTS, topics: int = TOPICS, growth: bool = False) -> list[Figure]:
    """Measure everything on two cores."""
    try:
        check_java()
    except ReplayError as absent:
        raise SystemExit(str(absent)) from None
    spark = spark_session("local[2]")
    with TemporaryDirectory(prefix="topicwright-bench-") as folder:
        place = Path(folder)
        runner = OnSpark(spark)
        figures = [*replayed(runner, place, events, topics, False), *replayed(runner, place, events, topics, True)]
        figures += grown(runner, place, events, topics) if growth else []
    spark.stop()
    return figures


def run_small() -> list[Figure]:
    """Measure a small log, where Spark's own start weighs more."""
    return run(SMALL_EVENTS, SMALL_TOPICS)


if __name__ == "__main__":
    command_line(run, __doc__)
