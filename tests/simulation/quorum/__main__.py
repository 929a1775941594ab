"""`python -m tests.simulation.quorum --seed N`, or `--seeds A-B`: live through seeds; each that fails is printed."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.simulation.planting import live_through
from tests.simulation.quorum.simulation import Outcome, simulate


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.quorum", description=__doc__)
    parser.add_argument("--seed", type=int, help="one seed, with what came of it")
    parser.add_argument("--seeds", metavar="A-B", help="from A to below B")
    options = parser.parse_args()
    if options.seed is not None:
        print(simulate(options.seed))
        return
    first, _, end = (options.seeds or "0-300").partition("-")
    began, total = time.perf_counter(), Counter[str]()

    def lived(seed: int, failed: int, outcome: Outcome) -> None:
        total.update(outcome.counts)
        total.update(steps=outcome.steps, epochs=outcome.epochs, answered=outcome.answered)
        if (seed + 1) % 1000 == 0:
            print(f"{seed + 1 - int(first)} seeds, {failed} failed, {time.perf_counter() - began:.0f} s", flush=True)

    failed = live_through(range(int(first), int(end)), simulate, lived)
    count, seconds = int(end) - int(first), time.perf_counter() - began
    print(f"{count} seeds, {failed} failed, {count / seconds:.1f} seeds/s; {dict(sorted(total.items()))}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
