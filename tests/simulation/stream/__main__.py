"""`python -m tests.simulation.stream SEED [COUNT]`: live through seeds; what came of each, or how it failed."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.simulation.planting import live_through
from tests.simulation.stream.simulation import Outcome, simulate


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.stream", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int, nargs="?", default=1)
    options = parser.parse_args()
    began, done = time.process_time(), Counter[str]()

    def lived(seed: int, failed: int, outcome: Outcome) -> None:
        done.update(outcome.done, requests=sum(outcome.answers.values()), events=outcome.events)

    failed = live_through(range(options.seed, options.seed + options.count), simulate, lived)
    spent = time.process_time() - began
    speed = done["requests"] / spent
    print(f"{options.count} seeds, {failed} failed, {speed:.0f} requests/s; {dict(sorted(done.items()))}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
