"""Replay of a log with a target cluster: checks, rows of requests, and planted faults."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from events.catalog import CreationRefused, Recorded, TopicVanished
from events.names import TopicName
from projections.replay.rebuild.rebuild import request_rows
from tests.events.golden import history
from tests.machine.audit.planted import at, changed
from tests.replay.checks.test_invariants import Row, checked, rows_of
from tests.replay.history import shards_of

Log = list[Recorded]


FAULTS: tuple[tuple[str, Callable[[Log], Log]], ...] = (
    ("topic-exists", lambda log: changed(log, at(log, TopicVanished), topic=TopicName("never"))),
    ("cause-exists", lambda log: _caused_by(log, at(log, CreationRefused), "DeleteTopic")),
)


def _caused_by(log: Log, index: int, command: str) -> Log:
    cause = replace(log[index].cause, command=command)
    return [*log[:index], replace(log[index], cause=cause), *log[index + 1 :]]


@pytest.fixture(scope="module")
def found() -> dict[int, list[Row]]:
    """The violations in the clean log (0) and in each damaged one."""
    logs = [history("cluster"), *(fault(history("cluster")) for _, fault in FAULTS)]
    rows = rows_of(checked(logs, settle_ms=None))
    return {number: [row for row in rows if row["log_partition"] == number] for number in range(len(logs))}


def test_every_replay_passes_on_a_valid_log(found: dict[int, list[Row]]) -> None:
    assert found[0] == []


@pytest.mark.parametrize(("number", "check"), [(number, check) for number, (check, _) in enumerate(FAULTS, 1)])
def test_each_planted_fault_violates_its_invariant(found: dict[int, list[Row]], number: int, check: str) -> None:
    assert check in {row["check"] for row in found[number]}, found[number]


def test_a_change_request_ends_when_the_target_cluster_applies_it() -> None:
    rows = {row[1]: (row[3], row[4]) for row in request_rows(shards_of(history("cluster"))) if row[2] == "a"}
    assert rows == {
        "q0": ("created", 0),
        "q3": ("partitions-added", 0),
        "q4": ("rejected", 40),
    }
