"""`python -m tests.simulation.quorum SEED [COUNT]`: live through seeds of the quorum."""

from __future__ import annotations

from collections import Counter

from tests.simulation.lives import command_line
from tests.simulation.quorum.simulation import Outcome, simulate


def _counted(outcome: Outcome) -> Counter[str]:
    return Counter(outcome.counts) + Counter(steps=outcome.steps, epochs=outcome.epochs, requests=outcome.answered)


if __name__ == "__main__":
    command_line("tests.simulation.quorum", simulate, _counted)
