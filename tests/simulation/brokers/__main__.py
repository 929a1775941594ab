"""`python -m tests.simulation.brokers SEED [COUNT]`: live through seeds of real brokers."""

from __future__ import annotations

from collections import Counter

from tests.simulation.brokers.simulation import Outcome, simulate
from tests.simulation.lives import command_line


def _counted(outcome: Outcome) -> Counter[str]:
    faults = sum(outcome.faults.values())
    more = Counter(requests=outcome.requests, events=outcome.events, faults=faults)
    return Counter(outcome.faults) + Counter(outcome.counts) + more


if __name__ == "__main__":
    command_line("tests.simulation.brokers", simulate, _counted)
