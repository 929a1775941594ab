"""Kafka's responses to the differential table, read once a session."""

import pytest

from tests.reference.golden import FILE, parse
from tests.reference.table import Answers


@pytest.fixture(scope="session")
def kafka_answers() -> Answers:
    """The responses of Kafka 4.4.0 in the golden file."""
    return parse(FILE.read_text(encoding="utf-8"))
