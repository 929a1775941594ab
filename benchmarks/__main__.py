"""`make bench`: benchmarks that together take about a quarter of an hour, in one table and as JSON.

If Kafka's jars, Java or Spark are missing, a line names each benchmark that needs them, like one that failed. The
duration of each benchmark goes to standard error.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.figures import Figure, show
from tests.support.tools import KAFKA_SERVER

Run = Callable[[bool], Sequence[Figure]]
"""Runs a benchmark; True also measures Kafka."""
QUORUM_CREATES = 90


def _of(name: str) -> Any:
    """Import a module of this folder on use, because its dependencies may be missing."""
    return import_module(f"benchmarks.{name}")


def _quorum() -> Sequence[Figure]:
    """Measure creates and commits of a quorum without faults."""
    quorum = _of("quorum")
    found = {name: quorum.Measured() for name in (quorum.OURS, quorum.KAFKAS)}
    quorum.measure(
        found, argparse.Namespace(creates=QUORUM_CREATES, rounds=0, release=KAFKA_SERVER, clusters=",".join(found))
    )
    return [figure for figure in quorum.figures(found[quorum.OURS], found[quorum.KAFKAS]) if figure.unit == "ms"]


GROUPS: dict[str, Run] = {
    "creates": lambda with_kafka: _of("creates").run(with_kafka),
    "append": lambda _: _of("append").run(),
    "rebuild": lambda _: _of("rebuild").run(),
    "stream": lambda with_kafka: _of("stream").run() if with_kafka else (),
    "quorum": lambda with_kafka: _quorum() if with_kafka else (),
    "replay": lambda _: _of("replay").run_small(),
    "many-topics": lambda with_kafka: _of("many_topics").run(with_kafka),
}
"""The benchmarks by name, the most important first."""


def measured(name: str, run: Run, with_kafka: bool) -> tuple[list[Figure], bool]:
    """Returns the figures of one of GROUPS, or a line with the reason for a failure; and False if it failed."""
    started, failed = time.perf_counter(), False
    try:
        figures = list(run(with_kafka))
    except (SystemExit, ImportError) as absent:
        figures = [_line(name, f"not measured: {absent}")]
    except Exception as error:
        figures, failed = [_line(name, f"failed: {' '.join(str(error).split())[:300] or type(error).__name__}")], True
    print(f"{name}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    return figures, not failed


def _line(name: str, why: str) -> Figure:
    return Figure(name, "", None, note=why)


def main() -> None:
    """Run from the command line. Exits with 1 if a benchmark failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write JSON to a file too")
    parser.add_argument("--without-kafka", action="store_true", help="measure Topicwright alone")
    parser.add_argument("--only", choices=GROUPS, action="append", help="only these")
    options = parser.parse_args()
    figures: list[Figure] = []
    good = True
    for name in options.only or GROUPS:
        found, as_it_should_be = measured(name, GROUPS[name], not options.without_kafka)
        figures += found
        good = good and as_it_should_be
        if options.keep is not None:  # after each benchmark, so that a later failure loses nothing
            options.keep.write_bytes(msgspec.json.encode(figures) + b"\n")
    show(figures, options.json)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
