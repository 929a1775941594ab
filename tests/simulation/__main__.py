"""`python -m tests.simulation SEED [COUNT] [--events TOPIC]`: live through seeds, one line each.

With `--events` the log's events of a topic and of all brokers are printed when a check fails.
"""

from __future__ import annotations

import argparse

from tests.simulation.simulation import simulate


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int, nargs="?", default=1)
    parser.add_argument("--events", metavar="TOPIC", help="print the events of this topic at the end")
    options = parser.parse_args()
    for seed in range(options.seed, options.seed + options.count):
        outcome = simulate(seed, show=options.events)
        answers = ", ".join(f"{api} {code}: {times}" for (api, code), times in sorted(outcome.answers.items()))
        print(f"seed {seed}: {outcome.events} events, digest {outcome.digest[:16]}; {answers}")


if __name__ == "__main__":
    main()
