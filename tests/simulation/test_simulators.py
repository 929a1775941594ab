"""Simulations of the product with faults from a seed, and of planted bugs, which each simulator must find.

More seeds: `python -m tests.simulation NAME SEED COUNT`, and `make sim`.
"""

import os
import random
import re
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest

from tests.simulation.lives import Outcome
from tests.simulation.planting import seeds_to_find
from tests.simulation.simulators import SIMULATORS
from tests.support.tools import ROOT

SEEDS = {"process": (0, 4), "stream": (0, 2), "brokers": (2, 5, 1005), "quorum": (3, 26, 39)}
"""Fixed seeds that together reach everything in `REACHED`."""
FRESH = {"process": 3, "stream": 1, "brokers": 1, "quorum": 5}
"""The number of new seeds in each test run."""
REACHED = {
    "process": """
        kill, cut_power, restart, fill_disk, fail_syncs, slow_policies, CreateTopics 0, CreateTopics 7,
        CreateTopics 36, CreateTopics 38, CreateTopics 42, CreateTopics 44, CreateTopics 56, DeleteTopics 0,
        CreatePartitions 0, IncrementalAlterConfigs 0, Approve 0, DenyRequest 0,
        connection lost 0""",
    "stream": """
        kill, cut, outlive, stop_worker, join, lose_kafka, lose_answers, slow_down, abort_transaction, copies, lost,
        CreateTopics 0, CreateTopics 7, CreateTopics 36, CreateTopics 38, CreateTopics 41, DeleteTopics 0,
        connection lost 0""",
    "brokers": """
        kill_broker, stop_broker, pause_broker, cut_broker, clean end, elections, acknowledged, CreateTopics 0,
        ElectLeaders 0""",
    "quorum": """
        requests, kill, pause, cut, leader, candidate, prospective, truncated, clean, snapshot, disk lost, disk full,
        no room, resigned, AddRaftVoterResponse 0, RemoveRaftVoterResponse 0""",
}
"""Faults and answers that each simulator must reach, because without them it would find nothing."""
ROW = re.compile(r"^\| ([^|]+) \| [^|]+ \| (\d+) \|$", re.MULTILINE)
FOUND_AFTER = {bug: int(seeds) for bug, seeds in ROW.findall((ROOT / "tests/simulation/planted.md").read_text())}
SEEDS_TO_FIND = {"process": 40, "stream": 40, "brokers": 40, "quorum": 400}


@cache
def simulated(name: str, seed: int) -> Outcome:
    """The outcome of a seed, which is deterministic."""
    return SIMULATORS[name].simulate(seed)


@pytest.mark.parametrize("name", SIMULATORS)
def test_simulated_runs_reach_every_fault_and_break_no_rule(name: str) -> None:
    done = Counter[str]()
    fresh = (random.SystemRandom().randrange(10**9, 10**12) for _ in range(FRESH[name]))
    for seed in (*SEEDS[name], *fresh):
        done += simulated(name, seed).counts
    missing = set(re.split(r",\s+", REACHED[name].strip())) - done.keys()
    assert not missing, f"these faults or answers never occurred: {sorted(missing)}"


def test_a_simulation_seed_is_deterministic_across_processes() -> None:
    seeds = {"process": 1, "stream": 1, "brokers": 5, "quorum": 3}
    program = (
        "from tests.simulation.simulators import SIMULATORS\n"
        f"for name, seed in {seeds}.items(): print(SIMULATORS[name].simulate(seed))"
    )
    env = {**os.environ, "PYTHONHASHSEED": "12345"}
    there = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert there.returncode == 0, there.stderr
    assert there.stdout.splitlines() == [str(simulated(*each)) for each in seeds.items()]


@pytest.mark.parametrize(("name", "bug"), [(name, bug) for name, one in SIMULATORS.items() for bug in one.bugs])
def test_simulators_find_every_planted_bug(name: str, bug: str) -> None:
    """The search begins at the seed of planted.md that last found the bug."""
    simulate, bugs, _ = SIMULATORS[name]
    found = seeds_to_find(bugs, bug, simulate, SEEDS_TO_FIND[name], FOUND_AFTER[bug] - 1)
    assert found is not None, f"{bug}: not found in {SEEDS_TO_FIND[name]} seeds"
