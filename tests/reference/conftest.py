"""Kafka's answers to the differential table, read once in a session."""

from __future__ import annotations

import pytest

from tests.reference.golden import FILE, parse
from tests.reference.table import Answers


@pytest.fixture(scope="session")
def kafka_answers() -> Answers:
    """Those of Kafka 4.4.0 when the golden file was written."""
    return parse(FILE.read_text(encoding="utf-8"))
