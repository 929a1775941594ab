"""`make bench`: every benchmark of the embedded controller and of its replay, one after another, in one table."""

from __future__ import annotations

import argparse

from benchmarks import append, creates, rebuild, replay, standing
from benchmarks.figures import show


def main() -> None:
    """Run from the command line; takes about seven minutes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--without-kafka", action="store_true", help="measure Topicwright alone")
    options = parser.parse_args()
    with_kafka = not options.without_kafka
    embedded = [*creates.run(with_kafka), *standing.run(with_kafka), *append.run(), *rebuild.run()]
    show([*embedded, *replay.run_small()], options.json)


if __name__ == "__main__":
    main()
