"""The auditor: it passes a clean log, and each check finds its planted fault."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from events import catalog
from events.names import BrokerId
from tests.machine.audit import planted_partitions, planted_topics
from tests.machine.audit.auditor import audit
from tests.machine.audit.planted import FAULTS, KINDS, Fault, Log, again, at, changed, clean, without
from tests.machine.audit.rules import CHECKS, OF_THE_AUDITOR

PLANTED = (planted_partitions, planted_topics)
"""The modules that plant FAULTS when they are imported."""


def answered_with_another_code(log: Log) -> Log:
    return changed(log, at(log, catalog.CreateAnswered, error_code=36), error_code=37)


def fenced_twice(log: Log) -> Log:
    return again(log, at(log, catalog.BrokerFenced))


def an_epoch_used_again(log: Log) -> Log:
    return changed(log, at(log, catalog.BrokerRegistered, broker_id=BrokerId(3)), broker_epoch=1)


def live_though_never_registered(log: Log) -> Log:
    return without(log, at(log, catalog.BrokerRegistered, broker_id=BrokerId(2)))


FOR_THE_AUDITOR = [
    ("answer-as-decided", answered_with_another_code),
    ("broker-life", fenced_twice),
    ("broker-life", an_epoch_used_again),
    ("broker-life", live_though_never_registered),
]
"""The faults of rules that the product's invariants do not have."""


def test_a_clean_log_passes() -> None:
    assert audit(clean(), settled=True) == []
    assert {type(record.event) for record in clean()} == KINDS


@pytest.mark.parametrize(("check", "plant"), [*FAULTS, *FOR_THE_AUDITOR], ids=lambda one: getattr(one, "__name__", one))
def test_a_planted_fault_is_caught(check: str, plant: Fault) -> None:
    found = {violation.check for violation in audit(plant(clean()), settled=True)}
    assert check in found, f"only {sorted(found)} found it"


def test_every_check_has_a_fault() -> None:
    assert {check for check, _ in FAULTS} == set(CHECKS) - set(OF_THE_AUDITOR)
    assert {check for check, _ in FOR_THE_AUDITOR} == set(OF_THE_AUDITOR)


def test_the_auditor_knows_nothing_of_the_machine() -> None:
    tree = ast.parse((Path(__file__).parent / "auditor.py").read_text())
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert not [name for name in imported if name.split(".")[0] in {"controller", "projections"}]
