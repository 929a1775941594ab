"""The auditor: it passes a clean log, and each check finds its planted fault."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.machine.audit import planted_cluster, planted_partitions, planted_topics
from tests.machine.audit.auditor import audit
from tests.machine.audit.planted import FAULTS, KINDS, Fault, clean
from tests.machine.audit.real_auditor import RealAuditor

PLANTED = (planted_cluster, planted_partitions, planted_topics)
"""The modules that plant FAULTS when they are imported."""


def test_a_clean_log_passes() -> None:
    assert audit(clean(), settled=True) == []
    assert {type(record.event) for record in clean()} == KINDS


@pytest.mark.parametrize(("check", "plant"), FAULTS, ids=lambda one: getattr(one, "__name__", one))
def test_a_planted_fault_is_caught(check: str, plant: Fault) -> None:
    found = {violation.check for violation in audit(plant(clean()), settled=True, of=RealAuditor)}
    assert check in found, f"only {sorted(found)} found it"


def test_the_auditor_knows_nothing_of_the_machine() -> None:
    tree = ast.parse((Path(__file__).parent / "auditor.py").read_text())
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert not [name for name in imported if name.split(".")[0] in {"controller", "projections"}]
