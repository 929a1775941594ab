"""`python -m tests.simulation SEED [COUNT]`: live through seeds of one process.

With `--events TOPIC` the log's events of a topic and of all brokers are printed when a check fails.
"""

from __future__ import annotations

from collections import Counter

from tests.simulation.lives import command_line
from tests.simulation.simulation import Outcome, simulate


def _counted(outcome: Outcome) -> Counter[str]:
    faults = sum(outcome.faults.values())
    return Counter(outcome.faults) + Counter(requests=outcome.requests, events=outcome.events, faults=faults)


if __name__ == "__main__":
    command_line("tests.simulation", simulate, _counted)
