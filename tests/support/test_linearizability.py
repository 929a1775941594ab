"""The linearizability check finds stale reads and lost creates, and accepts requests without an answer."""

import math

import pytest

from tests.support.linearizability import ABSENT, PRESENT, Operation, unexplained

CREATED = Operation("create", 0, 1, ABSENT, "a")
DELETED = Operation("delete", 4, 5, PRESENT, ABSENT)
NEVER_ANSWERED = Operation("create", 0, math.inf, ABSENT, "b")


def described(began: float, ended: float, topic: str) -> Operation:
    return Operation("describe", began, ended, topic)


@pytest.mark.parametrize(
    "history",
    [
        [],
        [CREATED, described(2, 3, "a"), DELETED, described(6, 7, ABSENT)],
        [CREATED, described(0, 1, ABSENT), described(0, 1, "a")],
        [CREATED, DELETED, described(3, 6, "a"), described(4, 6, ABSENT)],
        [CREATED, Operation("create", 0.5, 2, PRESENT), DELETED, Operation("create", 5, 6, ABSENT, "b")],
        [NEVER_ANSWERED, described(1, 2, ABSENT), described(3, 4, "b"), described(5, 6, "b")],
        [NEVER_ANSWERED, described(1, 2, ABSENT), Operation("create", 3, 4, PRESENT)],
        [CREATED, Operation("delete", 2, math.inf, PRESENT, ABSENT), described(3, 4, "a"), described(5, 6, ABSENT)],
    ],
)
def test_linearizable_histories_are_accepted(history: list[Operation]) -> None:
    assert unexplained(history) == []


@pytest.mark.parametrize(
    ("history", "found"),
    [
        ([CREATED, described(2, 3, ABSENT)], "a lost create"),
        ([CREATED, described(2, 3, "a"), DELETED, described(6, 7, "a")], "a stale describe"),
        ([CREATED, Operation("delete", 2, 3, ABSENT)], "a delete that does not find the topic"),
        ([CREATED, Operation("create", 2, 3, ABSENT, "b")], "a second create"),
        ([described(0, 1, "a"), Operation("create", 2, 3, ABSENT, "a")], "a describe of a topic that is created later"),
        ([CREATED, described(2, 3, "b")], "an id that nobody created"),
        ([NEVER_ANSWERED, described(1, 2, "b"), DELETED, described(6, 7, "b")], "a deleted topic that returns"),
        ([NEVER_ANSWERED, CREATED, DELETED, described(6, 7, "a")], "a stale describe, next to a lost answer"),
    ],
)
def test_non_linearizable_histories_are_found(history: list[Operation], found: str) -> None:
    assert unexplained(history), found
