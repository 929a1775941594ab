"""Topicwright answers as Kafka 4.4 does: the same table of requests, sent to both."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.reference.cases import Case, Row
from tests.reference.differences import DIFFERENCES, Difference, Fleet, agrees, expected, versions_of
from tests.reference.golden import FILE, parse, render
from tests.reference.table import CASES, Answers
from tests.support import tools


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_answers_as_kafka_does(
    case: Case, kafka_answers: Answers, topicwright_answers: tuple[Fleet, Mapping[str, Case], Answers]
) -> None:
    fleet, cases, answers = topicwright_answers
    for version in cases[case.id].versions:
        kafka = kafka_answers[case.id, max(version, case.versions[0])]
        wanted = expected(kafka, case, version, fleet)
        got = answers[case.id, version]
        assert agrees(got, wanted), f"v{version}: got\n{_text(got)}\nwanted\n{_text(wanted)}\nof Kafka\n{_text(kafka)}"


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
