"""The table of allowed transitions between roles, and what holds whenever one is applied."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from controller.brokers.kraft.quorum.raft import consensus
from controller.brokers.kraft.quorum.raft.consensus import TRANSITIONS
from controller.brokers.kraft.quorum.raft.effects import Role
from controller.brokers.kraft.quorum.raft.replica import LeaderAndEpoch
from controller.brokers.kraft.quorum.raft.role import ToFollower, ToLeader, ToResigned, ToUnattached, discovered
from tests.brokers.kraft.quorum.worlds import leader_of, others, quorum_of, settled

FOLDER = Path(consensus.__file__).parents[1]
PACKAGE = "controller.brokers.kraft.quorum"


def test_the_docstring_has_the_table_of_transitions() -> None:
    rows = re.findall(r"(?m)^ {4}(\w+) +-> (.+)$", consensus.__doc__ or "")
    assert {role: tuple(after.split(", ")) for role, after in rows} == {
        before.value: tuple(each.value for each in after) for before, after in TRANSITIONS.items()
    }


def test_no_modules_of_the_quorum_import_each_other_in_a_circle() -> None:
    imports = {}
    for path in FOLDER.rglob("*.py"):
        module = ".".join((PACKAGE, *path.relative_to(FOLDER).with_suffix("").parts)).removesuffix(".__init__")
        nodes = [node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.ImportFrom)]
        found = {f"{node.module}.{each.name}" for node in nodes for each in node.names}
        imports[module] = found | {node.module for node in nodes if node.module}
    while leaves := {each for each, used in imports.items() if not (used & imports.keys()) - {each}}:
        imports = {each: used for each, used in imports.items() if each not in leaves}
    assert not imports, f"a circle: {sorted(imports)}"


@pytest.mark.parametrize("before", Role)
@pytest.mark.parametrize("after", Role)
def test_other_transitions_are_rejected(before: Role, after: Role) -> None:
    if after in TRANSITIONS[before]:
        return
    core = quorum_of(leader_of(settled(1)))
    with pytest.raises(AssertionError, match=f"from {before.value} to {after.value} in epoch 1"):
        core._check(before, after, ToUnattached(core.epoch))


def test_a_leader_needs_a_majority_its_own_vote_and_an_epoch_without_a_leader() -> None:
    world = settled()
    follower = others(world)[0]
    core = quorum_of(follower)
    elected = ToLeader(frozenset({1, 2}))
    with pytest.raises(AssertionError, match="a second leader of epoch 1"):
        core._check(Role.CANDIDATE, Role.LEADER, elected)
    core.leader_id = -1
    with pytest.raises(AssertionError, match="a leader voted for itself"):
        core._check(Role.CANDIDATE, Role.LEADER, elected)
    core.voted = (follower.id, follower.disk.directory)
    core._check(Role.CANDIDATE, Role.LEADER, elected)
    for granted in ({follower.id}, {1, 77}):
        with pytest.raises(AssertionError, match="elected by 1 of 3 voters"):
            core._check(Role.CANDIDATE, Role.LEADER, ToLeader(frozenset(granted)))
    core.led_epoch = core.epoch
    with pytest.raises(AssertionError, match="leads epoch 1 after 1"):
        core._check(Role.CANDIDATE, Role.LEADER, elected)


def test_a_replica_follows_one_leader_an_epoch() -> None:
    world = settled()
    core = quorum_of(others(world)[0])
    second = LeaderAndEpoch(77, core.epoch, ("node", 77))
    assert discovered(core, second) is None
    with pytest.raises(AssertionError, match="a second leader of epoch 1"):
        core._run(0.0, ToFollower(second))
    leader = leader_of(world)
    quorum_of(leader)._run(leader.now(), ToResigned(()))
    assert discovered(quorum_of(leader), second) is None, "it led this epoch"


def test_an_epoch_does_not_decrease() -> None:
    core = quorum_of(others(settled())[0])
    with pytest.raises(AssertionError, match="epoch 0 after 1"):
        core._run(0.0, ToUnattached(0))
