"""The consensus through many seeds of faults, and the simulator itself: what is planted has to be found.

More seeds: `python -m tests.simulation.quorum SEED COUNT`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.planting import seeds_to_find
from tests.simulation.quorum.bugs import BUGS
from tests.simulation.quorum.simulation import simulate

SEEDS = 400
SHARES = 10
SEEDS_TO_FIND = 400
RARE = {"a vote is forgotten at a restart": 51}
"""From which seed on to look for what takes many, so that it takes few: docs/testing.md has how many from 0 on."""


@pytest.mark.parametrize("share", range(SHARES))
def test_no_seed_breaks_the_quorum(share: int) -> None:
    done: Counter[str] = Counter()
    for seed in range(share, SEEDS, SHARES):
        outcome = simulate(seed)
        done.update(outcome.counts, answered=outcome.answered)
    wanted = {"answered", "kill", "pause", "cut", "leader", "candidate", "prospective", "truncated", "clean"}
    assert wanted <= done.keys(), f"never happened: {sorted(wanted - done.keys())}"


def test_the_seeds_reach_all_faults() -> None:
    done: Counter[str] = Counter()
    for seed in range(1000, 1040):
        done.update(simulate(seed).counts)
    wanted = {
        "snapshot",
        "disk lost",
        "disk full",
        "no room",
        "resigned",
        "AddRaftVoterResponse 0",
        "RemoveRaftVoterResponse 0",
    }
    assert wanted <= done.keys(), f"never happened: {sorted(wanted - done.keys())}"


@pytest.mark.parametrize("seed", [3, 11])
def test_a_seed_is_reproducible(seed: int) -> None:
    assert simulate(seed) == simulate(seed)


@pytest.mark.parametrize("bug", list(BUGS))
def test_a_planted_bug_is_found(bug: str) -> None:
    found = seeds_to_find(BUGS, bug, simulate, SEEDS_TO_FIND, RARE.get(bug, 0))
    assert found is not None, f"{bug}: not found in {SEEDS_TO_FIND} seeds"
