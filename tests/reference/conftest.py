"""The differential table's answers, asked once in a session, of servers that nothing else uses."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace

import pytest

from tests.conftest import TABLE_SETTINGS
from tests.reference.differences import versions_asked
from tests.reference.golden import FILE, parse
from tests.reference.table import CASES, Answers, ask_all
from tests.support.reference_kafka import reference_kafka
from tests.support.tools import CACHE, KAFKA_SERVER
from tests.support.topicwright import topicwright


@pytest.fixture(scope="session")
def kafka_answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """A real Kafka's answers; where there is no Java, those it gave when the golden file was written."""
    can_run = shutil.which("java") and (CACHE / f"java/kafka-server-{KAFKA_SERVER}").exists()
    if not can_run and os.environ.get("CI") != "true":
        return parse(FILE.read_text(encoding="utf-8"))
    with reference_kafka(tmp_path_factory.mktemp("table") / "kafka") as kafka:
        return ask_all(kafka.brokers)


@pytest.fixture(scope="session")
def topicwright_answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """Topicwright's answers, in every version that it speaks; a second server forbids automatic creation."""
    folder = tmp_path_factory.mktemp("table")
    cases = [replace(case, versions=versions_asked(case)) for case in CASES]
    with topicwright(folder / "auto", {**TABLE_SETTINGS, "auto.create.topics.enable": "true"}) as server:
        answers = ask_all({1: server.kafka}, [case for case in cases if case.node == 1])
    with topicwright(folder / "no-auto", {**TABLE_SETTINGS, "auto.create.topics.enable": "false"}) as server:
        return {**answers, **ask_all({1: server.kafka, 3: server.kafka}, [case for case in cases if case.node == 3])}
