"""The comparison itself: an answer that strays from Kafka's is noticed, however little."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.reference.cases import Row
from tests.reference.differences import agrees

REFUSED = Row("{t}", "INVALID_CONFIG", "Unknown topic config name: x", ("id=none",))
CREATED = Row("{t}", "NONE", None, ("partitions=1", "id=some"))
ANSWER = (REFUSED, CREATED)


def test_the_same_answer_agrees() -> None:
    assert agrees(ANSWER, ANSWER)


def test_a_message_may_go_on_after_kafkas_words() -> None:
    assert agrees((replace(REFUSED, message=f"{REFUSED.message}; allowed are ..."), CREATED), ANSWER)


def test_an_error_for_which_kafka_has_no_words_may_have_some() -> None:
    assert agrees((REFUSED, CREATED), (replace(REFUSED, message=None), CREATED))


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
def test_another_answer_does_not(other: tuple[Row, ...]) -> None:
    assert not agrees(other, ANSWER)
