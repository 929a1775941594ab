"""Replaying with Spark on two cores, beside a plain Python loop over the same log in the same run.

    python -m benchmarks.replay [--events 2000000] [--topics 100000] [--growth] [--json]

Logs are generated (`benchmarks.generate`), uniform and with half of all events in one topic. `--growth` rebuilds logs
of a tenth, the whole and three times the size, to show that time grows with events. Each work runs twice; the better
run counts, and the first, which starts Spark's workers, is in the note. Memory is the proportional set size, at its
highest, of Java and of the Python processes below this one.
"""

from __future__ import annotations

import argparse
import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from pyspark.sql import SparkSession

from benchmarks.figures import Figure, show
from benchmarks.generate import generate
from controller.machine.apply import apply
from controller.machine.state import DictTopics, State
from events.codec import decode_event
from projections.replay.export import export, exported
from projections.replay.invariants import look as look_at_events
from projections.replay.invariants import violations
from projections.replay.log_ref import LogRef, looked_at, open_ref
from projections.replay.rebuild import rebuilt_topics
from projections.replay.session import spark_session

EVENTS = 2_000_000
TOPICS = 100_000
REACH_REBUILD = "250,000"
REACH_INVARIANTS = "500,000"
MIB = 1 << 20


class Measured(NamedTuple):
    """How long work took at best and the first time, in seconds."""

    best_s: float
    first_s: float

    def rate(self, events: int) -> float:
        """Events a second."""
        return events / self.best_s

    def note(self, events: int) -> str:
        """What to say beside the rate."""
        return f"{events:,} events in {self.best_s:.1f} s; first run {self.first_s:.1f} s"


def measured(work: Callable[[], object], runs: int = 2) -> Measured:
    """Run work a few times."""
    took = []
    for _ in range(runs):
        started = time.perf_counter()
        work()
        took.append(time.perf_counter() - started)
    return Measured(min(took), took[0])


def plain_loop(ref: LogRef) -> int:
    """Fold a whole log in one Python process; how many topics there are."""
    topics = DictTopics()
    state = State(topics)
    gc.disable()
    try:
        with looked_at(ref) as log:
            for offset, value in log.read():
                apply(state, decode_event(offset, value))
    finally:
        gc.enable()
    return len(topics.by_key)


def rebuild_with_hashes(spark: SparkSession, ref: LogRef, events: int) -> int:
    """Rebuild every topic with the hash of its state; how many there are."""
    frame = rebuilt_topics(spark, ref, events)
    row = frame.selectExpr("count(*) as topics", "bit_xor(xxhash64(state_hash)) as all").collect()[0]
    return int(row.topics)


def check_export(spark: SparkSession, folder: Path) -> None:
    """Check every invariant on an export; there must be no violation."""
    found = violations(spark, look_at_events(exported(spark, folder)))
    broken = found.count()
    assert broken == 0, f"{broken} violations in a generated log"


class Memory:
    """The highest proportional set sizes of Java and of Python workers, in MiB."""

    def __init__(self) -> None:
        self.java = 0.0
        self.workers = 0.0

    def look(self) -> None:
        """Measure once."""
        java = workers = 0
        for process in _children(os.getpid()):
            size = _pss_bytes(process)
            if _name(process).startswith("java"):
                java += size
            else:
                workers += size
        self.java, self.workers = max(self.java, java / MIB), max(self.workers, workers / MIB)


@contextmanager
def memory() -> Iterator[Memory]:
    """Watch memory meanwhile."""
    seen, stopped = Memory(), threading.Event()

    def watch() -> None:
        while not stopped.wait(0.5):
            seen.look()

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield seen
    finally:
        stopped.set()
        watching.join()


def _children(root: int) -> Iterator[int]:
    for task in Path(f"/proc/{root}/task").iterdir():
        try:
            children = (task / "children").read_text().split()
        except OSError:
            continue
        for child in map(int, children):
            yield child
            yield from _children(child) if Path(f"/proc/{child}").exists() else ()


def _pss_bytes(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


def _name(process: int) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:
        return ""


def replayed(spark: SparkSession, folder: Path, events: int, topics: int, skewed: bool) -> list[Figure]:
    """Every figure of one log."""
    shape = "half of the events in one topic" if skewed else "uniform"
    ref, count = _log(folder / f"log-{skewed}", events, topics, skewed)
    plain = measured(lambda: plain_loop(ref), 1)
    with memory() as seen:
        rebuild = measured(lambda: rebuild_with_hashes(spark, ref, count))
        out = folder / f"export-{skewed}"
        exporting = measured(lambda: export(spark, ref, out), 1)
        invariants = measured(lambda: check_export(spark, out))
    sizes = f"Java {seen.java:,.0f} MiB, Python workers {seen.workers:,.0f} MiB"
    return [
        _figure(f"plain Python loop, no hashes, one core; {shape}", plain, count),
        _figure(f"Spark: rebuild with hashes; {shape}", rebuild, count, REACH_REBUILD),
        _figure(f"Spark: export to Parquet; {shape}", exporting, count),
        _figure(f"Spark: all invariants on the export; {shape}", invariants, count, REACH_INVARIANTS),
        Figure(f"memory at its highest; {shape}", "MiB", seen.java + seen.workers, note=sizes),
    ]


def grown(spark: SparkSession, folder: Path, events: int, topics: int) -> list[Figure]:
    """Rebuilding a tenth, the whole and three times as much."""
    figures = []
    for size, named in ((events // 10, topics // 10), (events, topics), (3 * events, 3 * topics)):
        ref, count = _log(folder / f"grown-{size}", size, named, False)
        with memory() as seen:
            took = measured(lambda ref=ref, count=count: rebuild_with_hashes(spark, ref, count))  # type: ignore[misc]
        sizes = f"{took.note(count)}; Java {seen.java:,.0f} MiB, Python workers {seen.workers:,.0f} MiB"
        figures.append(Figure(f"Spark: rebuild of {count:,} events", "events/s", took.rate(count), note=sizes))
    return figures


def _log(folder: Path, events: int, topics: int, skewed: bool) -> tuple[LogRef, int]:
    count = generate(folder, events, topics, skewed=skewed)
    return open_ref(str(folder)), count


def _figure(work: str, took: Measured, events: int, reach: str = "") -> Figure:
    return Figure(work, "events/s", took.rate(events), reach=reach, note=took.note(events))


def run(events: int = EVENTS, topics: int = TOPICS, growth: bool = False) -> list[Figure]:
    """Measure all on two cores."""
    spark = spark_session("local[2]", settings={"spark.driver.memory": "2g"})
    with TemporaryDirectory(prefix="topicwright-bench-") as folder:
        place = Path(folder)
        figures = [*replayed(spark, place, events, topics, False), *replayed(spark, place, events, topics, True)]
        figures += grown(spark, place, events, topics) if growth else []
    spark.stop()
    return figures


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--topics", type=int, default=TOPICS)
    parser.add_argument("--growth", action="store_true", help="rebuild logs of three sizes too")
    parser.add_argument("--json", action="store_true", help="print JSON")
    asked = parser.parse_args()
    show(run(asked.events, asked.topics, asked.growth), asked.json)


if __name__ == "__main__":
    main()
