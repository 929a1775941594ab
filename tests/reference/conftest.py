"""The differential table's answers, asked once in a session, of servers that nothing else uses."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace

import pytest

from controller.runtime.stream.front_members import NODE_IDS_FROM
from tests.conftest import TABLE_SETTINGS
from tests.reference.cases import Case
from tests.reference.differences import Fleet, versions_asked
from tests.reference.golden import FILE, parse
from tests.reference.table import CASES, Answers, ask_all
from tests.support.reference_kafka import ReferenceKafka, reference_kafka
from tests.support.stream import stream
from tests.support.tools import CACHE, KAFKA_SERVER
from tests.support.topicwright import Topicwright, topicwright


@pytest.fixture(scope="session")
def kafka_answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """A real Kafka's answers; where there is no Java, those it gave when the golden file was written."""
    can_run = shutil.which("java") and (CACHE / f"java/kafka-server-{KAFKA_SERVER}").exists()
    if not can_run and os.environ.get("CI") != "true":
        return parse(FILE.read_text(encoding="utf-8"))
    with reference_kafka(tmp_path_factory.mktemp("table") / "kafka") as kafka:
        return ask_all(kafka.brokers)


@pytest.fixture(scope="session")
def embedded_answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """Topicwright's answers, in every version that it speaks; a second server forbids automatic creation."""
    folder = tmp_path_factory.mktemp("table")
    with topicwright(folder / "auto", {**TABLE_SETTINGS, "auto.create.topics.enable": "true"}) as server:
        answers = _asked_with_auto(server)
    with topicwright(folder / "no-auto", {**TABLE_SETTINGS, "auto.create.topics.enable": "false"}) as server:
        return {**answers, **_asked_without_auto(server)}


@pytest.fixture(scope="session")
def front_answers(kafka43: ReferenceKafka, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The same of a front with a worker behind it."""
    folder = tmp_path_factory.mktemp("table-front")
    settings = {**TABLE_SETTINGS, "auto.create.topics.enable": "true"}
    with stream(folder / "auto", kafka43.bootstrap, "table-auto", settings) as running:
        answers = _asked_with_auto(running.fronts[0])
    settings = {**TABLE_SETTINGS, "auto.create.topics.enable": "false"}
    with stream(folder / "no-auto", kafka43.bootstrap, "table-no-auto", settings) as running:
        return {**answers, **_asked_without_auto(running.fronts[0])}


@pytest.fixture(scope="session")
def cluster_answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The same of a process of its own before a Kafka cluster, which carries out what it decides."""
    folder = tmp_path_factory.mktemp("table-cluster")
    with reference_kafka(folder / "kafka") as kafka:
        brokers = f"cluster:{kafka.bootstrap}"
        settings = {**TABLE_SETTINGS, "node.id": str(NODE_IDS_FROM), "auto.create.topics.enable": "true"}
        with topicwright(folder / "auto", settings, brokers=brokers) as server:
            answers = _asked_with_auto(server)
        settings = {**settings, "auto.create.topics.enable": "false"}
        with topicwright(folder / "no-auto", settings, brokers=brokers) as server:
            return {**answers, **_asked_without_auto(server)}


@pytest.fixture(scope="session")
def fleet_answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The same of a front with a worker behind it, before the Kafka that holds their log."""
    folder = tmp_path_factory.mktemp("table-fleet")
    with reference_kafka(folder / "kafka") as kafka:
        settings = {**TABLE_SETTINGS, "auto.create.topics.enable": "true"}
        with stream(folder / "auto", kafka.bootstrap, "auto", settings, brokers="cluster") as running:
            answers = _asked_with_auto(running.fronts[0])
        settings = {**TABLE_SETTINGS, "auto.create.topics.enable": "false"}
        with stream(folder / "no-auto", kafka.bootstrap, "no-auto", settings, brokers="cluster") as running:
            return {**answers, **_asked_without_auto(running.fronts[0])}


_OF: Mapping[str, Fleet] = {
    "embedded": "simulated",
    "front": "simulated",
    "cluster": "cluster",
    "fleet": "workers' cluster",
}


@pytest.fixture(params=list(_OF))
def topicwright_answers(request: pytest.FixtureRequest) -> tuple[Fleet, Answers]:
    """Topicwright's answers as a process of its own, and as a front of workers; each with simulated brokers, and before
    a Kafka cluster."""
    answers: Answers = request.getfixturevalue(f"{request.param}_answers")
    return _OF[request.param], answers


def _asked_with_auto(server: Topicwright) -> Answers:
    return ask_all({1: server.kafka}, [case for case in _cases() if case.node == 1])


def _asked_without_auto(server: Topicwright) -> Answers:
    return ask_all({1: server.kafka, 3: server.kafka}, [case for case in _cases() if case.node == 3])


def _cases() -> list[Case]:
    return [replace(case, versions=versions_asked(case)) for case in CASES]
