"""The real controller through many seeds of faults, and the simulator itself.

More seeds: `SIMULATION_SEEDS=1000 pytest tests/simulation`, or `python -m tests.simulation FIRST COUNT`.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.bugs import BUGS
from tests.simulation.planting import seeds_to_find
from tests.simulation.simulation import simulate
from tests.support.tools import ROOT

SEEDS = int(os.environ.get("SIMULATION_SEEDS", "40"))
SEEDS_TO_FIND = 40
RARE = {"pending creates are forgotten at a restart": 10}
"""From which seed on to look for what takes many, so that it takes few: docs/testing.md has how many from 0 on."""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_answer_is_true_and_all_ends_well(seed: int) -> None:
    outcome = simulate(seed)
    assert outcome.events > 0, f"seed {seed} did nothing"


def test_the_seeds_reach_what_matters() -> None:
    """The simulator would find nothing if its clients were never answered, or nothing ever failed."""
    outcomes = [simulate(seed, life_s=4.0) for seed in range(1000, 1012)]
    answers = {what for outcome in outcomes for what in outcome.answers}
    wanted = {("CreateTopics", code) for code in (0, 7, 36, 38, 42, 44, 56)}
    wanted |= {("DeleteTopics", 0), ("CreatePartitions", 0), ("IncrementalAlterConfigs", 0), ("connection lost", 0)}
    assert wanted <= answers, f"never answered: {sorted(wanted - answers)}"
    faults = {fault for outcome in outcomes for fault in outcome.faults}
    assert {"kill", "cut_power", "restart", "fill_disk", "fail_syncs", "slow_policies"} <= faults, sorted(faults)


@pytest.mark.parametrize("bug", list(BUGS))
def test_a_planted_bug_is_found(bug: str) -> None:
    found = seeds_to_find(BUGS, bug, simulate, SEEDS_TO_FIND, RARE.get(bug, 0))
    assert found is not None, f"{bug}: not found in {SEEDS_TO_FIND} seeds"


def test_a_seed_gives_the_same_log_byte_for_byte_in_any_process() -> None:
    seed = 1
    here, again = simulate(seed), simulate(seed)
    assert here == again, "the same seed in the same process"
    program = f"from tests.simulation.simulation import simulate; print(simulate({seed}).digest)"
    there = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.strip() == here.digest, "the same seed in another process, with other hashes"
