"""A real Kafka for the differential table alone, and its answers, got once in a session."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.reference.golden import FILE, parse
from tests.reference.table import KAFKA_IS_SILENT, Answers, send_all
from tests.support.reference_kafka import reference_kafka
from tests.support.tools import CACHE, KAFKA_SERVER


@pytest.fixture(scope="session")
def kafka_answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """Its answers; where there is no Java, those it gave when the golden file was written."""
    can_run = shutil.which("java") and (CACHE / f"java/kafka-server-{KAFKA_SERVER}").exists()
    if not can_run and os.environ.get("CI") != "true":
        return parse(FILE.read_text(encoding="utf-8"))
    with reference_kafka(tmp_path_factory.mktemp("table") / "kafka") as kafka:
        return send_all(kafka.brokers, silent=KAFKA_IS_SILENT)
