"""Topicwright answers like Kafka 4.4: the same table of requests is sent to both."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

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
from tests.reference.test_fenced_broker import CASES as FENCED_CASES
from tests.support.topicwright import Topicwright

FLEETS: Mapping[str, Fleet] = {"embedded": "simulated", "cluster": "cluster", "gateway": "workers' cluster"}
"""The servers under test, and their brokers."""
FIXED_NAME = "CreateTopics: name of three dots"
"""The case that creates a topic with a fixed name: only one of the servers that share a cluster gets it."""


def _cases() -> Iterator[tuple[str, Case]]:
    """Yields each server with its cases. Topicwright with simulated brokers gets all cases, in all versions. A server
    with a target cluster gets each distinct response once. Auto-creation is one setting for all, so it gets only the
    cases that allow it."""
    golden = parse(FILE.read_text(encoding="utf-8"))
    for case in CASES:
        yield "embedded", replace(case, versions=versions_of(case))
        for server in ("cluster", "gateway") if case.node == 1 else ():
            if (server, case.id) == ("gateway", FIXED_NAME):
                continue
            yield server, replace(case, versions=versions_that_differ(case, FLEETS[server], golden))


SENT = tuple(_cases())
OLDEST = {case.id: case.versions[0] for case in CASES}
"""The oldest version in which Kafka got each case."""


def _sent(server: str, node: int = 1) -> list[Case]:
    return [case for each, case in SENT if each == server and case.node == node]


@pytest.fixture(scope="module")
def embedded(topicwright_server: Topicwright, topicwright_without_auto: Topicwright) -> Answers:
    """The responses of Topicwright with simulated brokers; a second server has auto-creation disabled."""
    forbidding = topicwright_without_auto.kafka
    answers = send_all({1: topicwright_server.kafka}, _sent("embedded"))
    return {**answers, **send_all({1: forbidding, 3: forbidding}, _sent("embedded", 3))}


@pytest.fixture(scope="module")
def cluster(cluster_server: Topicwright) -> Answers:
    """The responses of Topicwright with a Kafka target cluster."""
    return send_all({1: cluster_server.kafka}, _sent("cluster"), mark="c")


@pytest.fixture(scope="module")
def gateway(fleet_server: Topicwright) -> Answers:
    """The responses of a gateway with a worker. The Kafka that stores their log is the target cluster."""
    return send_all({1: fleet_server.kafka}, _sent("gateway"), mark="g")


@pytest.mark.parametrize("api", sorted({case.api for case in CASES}))
@pytest.mark.parametrize("server", FLEETS)
def test_responses_equal_kafkas(request: pytest.FixtureRequest, kafka_answers: Answers, server: str, api: str) -> None:
    answers: Answers = request.getfixturevalue(server)
    sent = [(case, version) for each, case in SENT if (each, case.api) == (server, api) for version in case.versions]
    assert sent, "the server gets requests of the table"
    wrong = []
    for case, version in sent:
        kafka, got = kafka_answers[case.id, max(version, OLDEST[case.id])], answers[case.id, version]
        wanted = expected(kafka, case, version, FLEETS[server])
        if not agrees(got, wanted):
            texts = f"got\n{_text(got)}\nwanted\n{_text(wanted)}\nof Kafka\n{_text(kafka)}"
            wrong.append(f"{case.id} v{version}: {texts}")
    assert not wrong, "\n\n".join(wrong)


def test_the_golden_file_has_the_responses_of_all_cases() -> None:
    text = FILE.read_text(encoding="utf-8")
    again = render(parse(text), (*CASES, *FENCED_CASES))
    assert again == text, "after a change of the table: python -m tests.reference.golden"


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda each: each.reason)
def test_every_intended_difference_changes_a_response(difference: Difference) -> None:
    """A difference without effect is obsolete, and must be removed from the list."""
    kafka = parse(FILE.read_text(encoding="utf-8"))
    touched = [
        (case, version)
        for case in CASES
        for version in versions_of(case)
        if difference.touches(case, version, difference.fleets[0])
        and difference.change(kafka[case.id, max(version, case.versions[0])], case, version)
        != kafka[case.id, max(version, case.versions[0])]
    ]
    assert touched, f"{difference.cases!r} affects no row of the table"


def _text(rows: tuple[Row, ...]) -> str:
    return "\n".join(f"{row.subject!r} {row.code} {row.message!r} {'; '.join(row.facts)}" for row in rows)


REFUSED = Row("{t}", "INVALID_CONFIG", "Unknown topic config name: x", ("id=none",))
CREATED = Row("{t}", "NONE", None, ("partitions=1", "id=some"))
ANSWER = (REFUSED, CREATED)


@pytest.mark.parametrize(
    "other",
    [
        (CREATED, REFUSED),
        (REFUSED,),
        (*ANSWER, CREATED),
        (replace(REFUSED, code="INVALID_REQUEST"), CREATED),
        (replace(REFUSED, message="Unknown topic config"), CREATED),
        (replace(REFUSED, message=None), CREATED),
        (replace(REFUSED, facts=()), CREATED),
        (REFUSED, replace(CREATED, subject="{t}b")),
        (REFUSED, replace(CREATED, facts=("partitions=2", "id=some"))),
        (REFUSED, replace(CREATED, message="created")),
    ],
)
def test_a_different_response_does_not_agree(other: tuple[Row, ...]) -> None:
    assert not agrees(other, ANSWER)
