"""A real Kafka for the differential table alone, and its answers, got once in a session."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from tests.reference.golden import FILE, parse
from tests.reference.table import KAFKA_IS_SILENT, Answers, send_all
from tests.support.reference_kafka import ReferenceKafka, reference_kafka
from tests.support.tools import CACHE, KAFKA_SERVER


@pytest.fixture(scope="session")
def table_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceKafka]:
    """Three nodes."""
    with reference_kafka(tmp_path_factory.mktemp("table") / "kafka") as kafka:
        yield kafka


@pytest.fixture(scope="session")
def kafka_answers(request: pytest.FixtureRequest) -> Answers:
    """Its answers; where there is no Java, those it gave when the golden file was written."""
    can_run = shutil.which("java") and (CACHE / f"java/kafka-server-{KAFKA_SERVER}").exists()
    if not can_run and os.environ.get("CI") != "true":
        return parse(FILE.read_text(encoding="utf-8"))
    kafka: ReferenceKafka = request.getfixturevalue("table_kafka")
    return send_all(kafka.brokers, silent=KAFKA_IS_SILENT)
