"""Real brokers and their controller through seeds of faults, and the simulator itself.

More seeds: `python -m tests.simulation.brokers FIRST COUNT`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.brokers.bugs import BUGS
from tests.simulation.brokers.simulation import simulate
from tests.simulation.planting import seeds_to_find

QUICK = (
    "a fenced broker stays leader",
    "an outdated report of an in-sync set counts",
    "a replica that is not in sync is elected without unclean election",
)
"""Planted bugs that few seeds find; `python -m tests.simulation.planted` tries all."""


def test_brokers_that_live_and_die_lose_nothing() -> None:
    done, answers = Counter[str](), Counter[tuple[str, int]]()
    for seed in (2, 5, 1005):
        outcome = simulate(seed)
        done.update(outcome.faults)
        done.update(outcome.counts)
        answers.update(outcome.answers)
    wanted = {"kill_broker", "stop_broker", "pause_broker", "cut_broker", "clean end", "elections", "acknowledged"}
    assert wanted <= done.keys(), f"never happened: {sorted(wanted - done.keys())}"
    assert {("CreateTopics", 0), ("ElectLeaders", 0)} <= answers.keys(), f"never answered so: {sorted(answers)}"


def test_a_seed_is_lived_through_the_same_way_again() -> None:
    assert simulate(11, life_s=6.0) == simulate(11, life_s=6.0)


@pytest.mark.parametrize("bug", QUICK)
def test_a_planted_bug_is_found(bug: str) -> None:
    found = seeds_to_find(BUGS, bug, simulate, 3)
    assert found is not None, f"{bug}: not found in 3 seeds"
