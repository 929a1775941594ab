"""`python -m tests.simulation.stream SEED [COUNT]`: live through seeds of workers and gateways."""

from __future__ import annotations

from collections import Counter

from tests.simulation.lives import command_line
from tests.simulation.stream.simulation import Outcome, simulate


def _counted(outcome: Outcome) -> Counter[str]:
    return Counter(outcome.done) + Counter(requests=outcome.requests, events=outcome.events)


if __name__ == "__main__":
    command_line("tests.simulation.stream", simulate, _counted)
