"""Topicwright answers as Kafka 4.4 does: the same table of requests, sent to both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from controller.stream.gateway.members import NODE_IDS_FROM
from tests.conftest import TABLE_SETTINGS
from tests.reference.cases import Case, Row
from tests.reference.differences import (
    DIFFERENCES,
    Difference,
    Fleet,
    agrees,
    expected,
    versions_of,
    versions_that_differ,
)
from tests.reference.golden import FILE, parse, render
from tests.reference.table import CASES, Answers, send_all
from tests.support import tools
from tests.support.reference_kafka import reference_kafka
from tests.support.stream import stream
from tests.support.topicwright import Topicwright, topicwright

AUTO = {**TABLE_SETTINGS, "auto.create.topics.enable": "true"}
FLEETS: Mapping[str, Fleet] = {"embedded": "simulated", "cluster": "cluster", "gateway": "workers' cluster"}
"""The servers under test, and who carries their decisions out."""


def _cases() -> Iterator[tuple[str, Case]]:
    """Each server and the cases that it gets: Topicwright with simulated brokers all, in all versions. Before a cluster
    each distinct answer is requested once, and of automatic creation, which is one setting for all, only what allows
    it."""
    golden = parse(FILE.read_text(encoding="utf-8"))
    for case in CASES:
        yield "embedded", replace(case, versions=versions_of(case))
        for server in ("cluster", "gateway") if case.node == 1 else ():
            yield server, replace(case, versions=versions_that_differ(case, FLEETS[server], golden))


SENT = tuple(_cases())


def _sent(server: str, node: int = 1) -> list[Case]:
    return [case for each, case in SENT if each == server and case.node == node]


@pytest.fixture(scope="module")
def embedded(topicwright_without_auto: Topicwright, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The answers of Topicwright with simulated brokers; a second server forbids automatic creation."""
    forbidding = topicwright_without_auto.kafka
    with topicwright(tmp_path_factory.mktemp("table"), AUTO) as server:
        answers = send_all({1: server.kafka}, _sent("embedded"))
    return {**answers, **send_all({1: forbidding, 3: forbidding}, _sent("embedded", 3))}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The answers of Topicwright before a Kafka cluster, which carries out what it decides."""
    folder, settings = tmp_path_factory.mktemp("table-cluster"), {**AUTO, "node.id": str(NODE_IDS_FROM)}
    with (
        reference_kafka(folder / "kafka") as kafka,
        topicwright(folder, settings, brokers=f"cluster:{kafka.bootstrap}") as server,
    ):
        return send_all({1: server.kafka}, _sent("cluster"))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The answers of a gateway with a worker behind it, before the Kafka that holds their log."""
    folder = tmp_path_factory.mktemp("table-gateway")
    with (
        reference_kafka(folder / "kafka") as kafka,
        stream(folder / "s", kafka.bootstrap, "table", AUTO, brokers="cluster") as running,
    ):
        return send_all({1: running.gateways[0].kafka}, _sent("gateway"))


@pytest.mark.parametrize(("server", "case"), SENT, ids=lambda each: each if isinstance(each, str) else each.id)
def test_answers_as_kafka_does(request: pytest.FixtureRequest, kafka_answers: Answers, server: str, case: Case) -> None:
    answers: Answers = request.getfixturevalue(server)
    for version in case.versions:
        kafka = kafka_answers[case.id, max(version, _oldest(case))]
        wanted = expected(kafka, case, version, FLEETS[server])
        got = answers[case.id, version]
        assert agrees(got, wanted), f"v{version}: got\n{_text(got)}\nwanted\n{_text(wanted)}\nof Kafka\n{_text(kafka)}"


def _oldest(case: Case) -> int:
    """The oldest version in which Kafka got it."""
    return next(each.versions[0] for each in CASES if each.id == case.id)


def test_kafka_answers_as_the_golden_file_says(kafka_answers: Answers) -> None:
    tools.program("java")
    tools.server_classpath()
    assert render(kafka_answers) == FILE.read_text(encoding="utf-8"), (
        "Kafka answered otherwise; after a change of the table: python -m tests.reference.golden"
    )


def test_the_golden_file_can_be_read_back() -> None:
    text = FILE.read_text(encoding="utf-8")
    assert render(parse(text)) == text


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda each: each.reason)
def test_each_difference_is_one(difference: Difference) -> None:
    """A difference that changes nothing has been overtaken, and must go from the list."""
    kafka = parse(FILE.read_text(encoding="utf-8"))
    touched = [
        (case, version)
        for case in CASES
        for version in versions_of(case)
        if difference.touches(case, version, difference.fleets[0])
        and difference.change(kafka[case.id, max(version, case.versions[0])], case, version)
        != kafka[case.id, max(version, case.versions[0])]
    ]
    assert touched, f"{difference.cases!r} touches no row of the table"


def _text(rows: tuple[Row, ...]) -> str:
    return "\n".join(f"{row.subject!r} {row.code} {row.message!r} {'; '.join(row.facts)}" for row in rows)
