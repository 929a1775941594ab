"""`python -m tests.simulation.quorum --seed N`, or `--seeds A-B`: live through seeds; each that fails is printed."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter

from tests.simulation.quorum.simulation import simulate


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
    began, failed, total = time.perf_counter(), 0, Counter[str]()
    for seed in range(int(first), int(end)):
        try:
            outcome = simulate(seed)
        except Exception as error:
            failed += 1
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
            if failed == 1:
                traceback.print_exc()
            continue
        total.update(outcome.counts)
        total.update(steps=outcome.steps, epochs=outcome.epochs, answered=outcome.answered)
        if (seed + 1) % 1000 == 0:
            print(f"{seed + 1 - int(first)} seeds, {failed} failed, {time.perf_counter() - began:.0f} s", flush=True)
    count, seconds = int(end) - int(first), time.perf_counter() - began
    print(f"{count} seeds, {failed} failed, {count / seconds:.1f} seeds/s; {dict(sorted(total.items()))}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
