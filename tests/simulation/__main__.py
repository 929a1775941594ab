"""`python -m tests.simulation NAME SEED [COUNT]` runs a simulator from seeds; `python -m tests.simulation planted`
prints the table of tests/simulation/planted.md: the number of seeds, from 0 on, until each planted bug is found."""

import argparse
import sys
import time
from collections import Counter
from typing import Final

from tests.simulation.lives import SHRINK_TRIES, Outcome, live_through
from tests.simulation.plan import from_words
from tests.simulation.planting import seeds_to_find
from tests.simulation.simulators import SIMULATORS

SHOWN_EVERY: Final = 100
SEEDS_MAX: Final = 400


def run(name: str, options: argparse.Namespace) -> bool:
    """Run a simulator and print the outcome of each seed; True if no seed failed."""
    simulate = SIMULATORS[name].simulate
    began, done = time.process_time(), Counter[str]()

    def shown() -> str:
        rate = f"{done['requests'] / (time.process_time() - began):.0f} requests/s of a core"
        return f"{done['seeds']} seeds, {done['failed']} failed, {rate}; {dict(sorted(done.items()))}"

    def lived(outcome: Outcome | None) -> None:
        done.update(seeds=1, failed=int(outcome is None))
        done.update(outcome.counts if outcome is not None else ())
        if done["seeds"] % SHOWN_EVERY == 0:
            print(shown(), flush=True)

    seeds = range(options.seed, options.seed + options.count)
    live_through(seeds, simulate, lived, module=f"tests.simulation {name}", only=options.only, tries=options.tries)
    print(shown())
    return done["failed"] == 0


def planted() -> bool:
    """Print the table; True if every bug was found."""
    found = []
    print("| planted bug | simulator | seeds that it took |\n|---|---|---|")
    for simulate, bugs, title in SIMULATORS.values():
        for bug in bugs:
            found.append(seeds_to_find(bugs, bug, simulate, SEEDS_MAX))
            print(f"| {bug} | {title} | {found[-1] or f'not found in {SEEDS_MAX}'} |", flush=True)
    return all(found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("name", choices=[*SIMULATORS, "planted"])
    parser.add_argument("seed", type=int, nargs="?", default=0, help="the first")
    parser.add_argument("count", type=int, nargs="?", default=1, help="how many")
    parser.add_argument(
        "--only", type=from_words, metavar="PLAN", help="as a shrunk failure shows it: 'faults:3 c0:7-9'"
    )
    parser.add_argument("--tries", type=int, default=SHRINK_TRIES, help="how often a failing seed is tried smaller")
    given = parser.parse_args()
    sys.exit(not (planted() if given.name == "planted" else run(given.name, given)))
