"""The differential table's answers, got once in a session, of servers that nothing else uses."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from controller.stream.gateway.members import NODE_IDS_FROM
from tests.conftest import TABLE_SETTINGS
from tests.reference.cases import Case
from tests.reference.differences import Fleet, versions_of, versions_that_differ
from tests.reference.golden import FILE, parse
from tests.reference.table import CASES, KAFKA_IS_SILENT, Answers, send_all
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
        return send_all(kafka.brokers, silent=KAFKA_IS_SILENT)


@pytest.fixture(scope="session")
def embedded_answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """Topicwright's answers, in every version that it speaks; a second server forbids automatic creation."""
    folder, cases = tmp_path_factory.mktemp("table"), cases_for("embedded")
    with topicwright(folder / "auto", AUTO) as server:
        answers = _answers_with_auto(server, cases)
    with topicwright(folder / "no-auto", NO_AUTO) as server:
        return {**answers, **_answers_without_auto(server, cases)}


@pytest.fixture(scope="session")
def gateway_answers(kafka44: ReferenceKafka, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The same of a gateway with a worker behind it."""
    return _answers_of_gateways("gateway", kafka44, tmp_path_factory.mktemp("table-gateway"))


@pytest.fixture(scope="session")
def cluster_answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The same of a process of its own before a Kafka cluster, which carries out what it decides."""
    folder, cases = tmp_path_factory.mktemp("table-cluster"), cases_for("cluster")
    with reference_kafka(folder / "kafka") as kafka:
        brokers, node = f"cluster:{kafka.bootstrap}", {"node.id": str(NODE_IDS_FROM)}
        with topicwright(folder / "auto", {**AUTO, **node}, brokers=brokers) as server:
            answers = _answers_with_auto(server, cases)
        with topicwright(folder / "no-auto", {**NO_AUTO, **node}, brokers=brokers) as server:
            return {**answers, **_answers_without_auto(server, cases)}


@pytest.fixture(scope="session")
def fleet_answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The same of a gateway with a worker behind it, before the Kafka that holds their log."""
    folder = tmp_path_factory.mktemp("table-fleet")
    with reference_kafka(folder / "kafka") as kafka:
        return _answers_of_gateways("fleet", kafka, folder, "cluster")


AUTO = {**TABLE_SETTINGS, "auto.create.topics.enable": "true"}
NO_AUTO = {**TABLE_SETTINGS, "auto.create.topics.enable": "false"}

_OF: Mapping[str, Fleet] = {
    "embedded": "simulated",
    "gateway": "simulated",
    "cluster": "cluster",
    "fleet": "workers' cluster",
}
"""The servers under test, and who carries their decisions out."""


@cache
def cases_for(server: str) -> Mapping[str, Case]:
    """The cases by id, each with the versions in which a server gets it."""
    golden = parse(FILE.read_text(encoding="utf-8"))
    return {
        case.id: replace(
            case,
            versions=versions_of(case) if server == "embedded" else versions_that_differ(case, _OF[server], golden),
        )
        for case in CASES
    }


@pytest.fixture(params=list(_OF))
def topicwright_answers(request: pytest.FixtureRequest) -> tuple[Fleet, Mapping[str, Case], Answers]:
    """Topicwright as a process of its own, and as a gateway of workers; each with simulated brokers, and before a Kafka
    cluster: who carries decisions out, the cases as they were sent, and the answers."""
    answers: Answers = request.getfixturevalue(f"{request.param}_answers")
    return _OF[request.param], cases_for(request.param), answers


def _answers_of_gateways(server: str, kafka: ReferenceKafka, folder: Path, brokers: str = "simulated:3") -> Answers:
    cases = cases_for(server)
    with stream(folder / "auto", kafka.bootstrap, f"table-{server}-auto", AUTO, brokers=brokers) as running:
        answers = _answers_with_auto(running.gateways[0], cases)
    with stream(folder / "no-auto", kafka.bootstrap, f"table-{server}-no-auto", NO_AUTO, brokers=brokers) as running:
        return {**answers, **_answers_without_auto(running.gateways[0], cases)}


def _answers_with_auto(server: Topicwright, cases: Mapping[str, Case]) -> Answers:
    return send_all({1: server.kafka}, [case for case in cases.values() if case.node == 1])


def _answers_without_auto(server: Topicwright, cases: Mapping[str, Case]) -> Answers:
    return send_all({1: server.kafka, 3: server.kafka}, [case for case in cases.values() if case.node == 3])
