"""The same permissions in a real Kafka and in Topicwright: each user gets the same codes for all that it requests."""

from __future__ import annotations

import re

import pytest

from tests.reference.access_answers import Row
from tests.reference.access_quotas import Step, take_steps
from tests.reference.access_servers import Answers, kafka_with_users, send_all, topicwright_with_users
from tests.reference.access_table import USERS

Both = tuple[Answers, Answers]
Steps = tuple[tuple[Step, ...], tuple[Step, ...]]

OTHER_CONFIGS = re.compile(r"16 .*")
"""Configs of client metrics: Topicwright has none, and says so to those who may know."""
OF_ALL_BROKERS = "4 "
"""Kafka always has one config of all brokers, for eligible leader replicas, and lets nobody replace all without it;
Topicwright has those that somebody set."""


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> tuple[Both, Steps]:
    """Both servers taken through the table, and then through the steps of quotas."""
    folder = tmp_path_factory.mktemp("access")
    with kafka_with_users(folder / "kafka") as kafka:
        of_kafka = send_all(kafka), take_steps(kafka)
    with topicwright_with_users(folder / "topicwright") as topicwright:
        of_topicwright = send_all(topicwright), take_steps(topicwright)
    return (of_kafka[0], of_topicwright[0]), (of_kafka[1], of_topicwright[1])


@pytest.mark.parametrize("user", USERS)
def test_a_user_gets_the_codes_that_kafka_gives(taken: tuple[Both, Steps], user: str) -> None:
    kafka, topicwright = taken[0]
    mine = [key for key in kafka if key[0] == user]
    assert mine, "the table has requests of this user"
    assert {key: topicwright[key] for key in mine} == {
        key: tuple(_as_topicwright(key[1], row) for row in kafka[key]) for key in mine
    }


def _as_topicwright(request: str, row: Row) -> Row:
    """Kafka's row, but for configs that Topicwright does not have."""
    subject, code, _ = row
    if subject == OF_ALL_BROKERS and code in ("NONE", "INVALID_CONFIG"):
        return subject, "NONE", ""
    if "Configs" in request and OTHER_CONFIGS.fullmatch(subject) and code in ("NONE", "INVALID_CONFIG"):
        return subject, "INVALID_REQUEST", ""
    return row


def test_a_mutation_quota_stops_whom_it_stops_in_kafka(taken: tuple[Both, Steps]) -> None:
    kafka, topicwright = taken[1]
    assert topicwright == kafka
    seen = {(code, is_silenced) for _, code, is_silenced in kafka}
    assert {("NONE", False), ("NONE", True), ("THROTTLING_QUOTA_EXCEEDED", True)} <= seen, "the steps go over the quota"
