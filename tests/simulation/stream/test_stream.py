"""The distributed engine through seeds of faults, and the simulator itself: what is planted has to be found.

More seeds: `python -m tests.simulation.stream FIRST COUNT`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.planting import seeds_to_find
from tests.simulation.stream.bugs import BUGS
from tests.simulation.stream.simulation import simulate

SEEDS = 10
SEEDS_TO_FIND = 40
RARE = {"every fence counts": 34, "Faust's driver starts from the committed offset": 15}
"""From which seed on to look for what takes many, so that it takes few: docs/testing.md has how many from 0 on."""


def test_no_command_is_lost_and_none_is_decided_twice() -> None:
    done, answers = Counter[str](), Counter[tuple[str, int]]()
    for seed in range(SEEDS):
        outcome = simulate(seed)
        done.update(outcome.done)
        answers.update(outcome.answers)
    faults = {
        "kill",
        "cut",
        "outlive",
        "stop_worker",
        "join",
        "lose_kafka",
        "lose_answers",
        "slow_down",
        "abort_transaction",
        "copies",
        "lost",
    }
    assert faults <= done.keys(), f"never happened: {sorted(faults - done.keys())}"
    wanted = {("CreateTopics", code) for code in (0, 7, 36, 38, 41)} | {("DeleteTopics", 0), ("connection lost", 0)}
    assert wanted <= answers.keys(), f"never answered: {sorted(wanted - answers.keys())}"


def test_a_seed_is_lived_through_the_same_way_again() -> None:
    assert simulate(1) == simulate(1)


@pytest.mark.parametrize("bug", list(BUGS))
def test_a_planted_bug_is_found(bug: str) -> None:
    found = seeds_to_find(BUGS, bug, simulate, SEEDS_TO_FIND, RARE.get(bug, 0))
    assert found is not None, f"{bug}: not found in {SEEDS_TO_FIND} seeds"
