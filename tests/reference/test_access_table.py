"""Permissions in a real Kafka and in Topicwright: each user gets the same error codes for all its requests."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.reference.access_servers import kafka_with_users, logged_in, send_all, topicwright_with_users
from tests.reference.access_table import ADMIN, USERS
from tests.reference.answers import code_name
from tests.reference.cases import topic
from tests.reference.golden import recorded

Both = tuple[dict[str, Any], dict[str, Any]]

OF_ALL_BROKERS = "4 "
"""For eligible leader replicas, Kafka always has one config of all brokers, and rejects a replacement without it.
Topicwright has only the configs that a user set."""


USER, CLIENT = "everything", "limited"
RATE = 0.05
"""Partitions a second: the bucket of 0.55 refills so slowly that no step waits for it."""


Step = tuple[str, str, bool]
"""The request, the error's name, and True if the response throttles the client."""


def take_steps(address: str) -> tuple[Step, ...]:
    """Steps of a user with a mutation quota (KIP-599): the quota is set, then requests come in versions with and
    without its error code."""
    entity = [{"entity_type": "user", "entity_name": USER}, {"entity_type": "client-id", "entity_name": CLIENT}]
    ops = [{"key": "controller_mutation_rate", "value": RATE, "remove": False}]
    with logged_in(address, ADMIN) as admin:
        response = admin.call("AlterClientQuotas", 1, entries=[{"entity": entity, "ops": ops}], validate_only=False)
        assert response["entries"][0]["error_code"] == 0, response
        _wait_for_quota(admin)
    return tuple(_steps(address))


def _wait_for_quota(admin: Any) -> None:
    while not admin.call("DescribeClientQuotas", 1, components=[], strict=False)["entries"]:
        pass


def _steps(address: str) -> Iterator[Step]:
    yield _create(address, 7, "quota.a", 4, "another")
    yield _create(address, 7, "quota.dry", 1, CLIENT, dry=True)
    yield _create(address, 7, "quota.b", 4)
    yield _create(address, 7, "quota.c", 1)
    yield _create(address, 7, "quota.dry", 1, CLIENT, dry=True)
    yield _create(address, 7, "quota.a", 1)
    yield _create(address, 6, "quota.c", 1)
    yield _create(address, 5, "quota.c", 1)
    yield _create(address, 2, "quota.d", 1)
    yield _create(address, 7, "quota.e", 1)
    yield _grow(address, 3, "quota.a", 5)
    yield _grow(address, 2, "quota.a", 5)
    yield _delete(address, 5, "quota.c")
    yield _delete(address, 4, "quota.c")
    yield _create(address, 7, "quota.f", 1, "another")


def _create(address: str, version: int, name: str, partitions: int, client: str = CLIENT, *, dry: bool = False) -> Step:
    topics = [topic(name, partitions)]
    response = _call(address, client, "CreateTopics", version, topics=topics, timeout_ms=20_000, validate_only=dry)
    code = response["topics"][0]["error_code"]
    return f"create {name} v{version} as {client}", code_name(code), response["throttle_time_ms"] > 0


def _grow(address: str, version: int, name: str, count: int) -> Step:
    topic = {"name": name, "count": count, "assignments": None}
    response = _call(
        address, CLIENT, "CreatePartitions", version, topics=[topic], timeout_ms=20_000, validate_only=False
    )
    return f"grow {name} v{version}", code_name(response["results"][0]["error_code"]), response["throttle_time_ms"] > 0


def _delete(address: str, version: int, name: str) -> Step:
    response = _call(address, CLIENT, "DeleteTopics", version, topic_names=[name], timeout_ms=20_000)
    return (
        f"delete {name} v{version}",
        code_name(response["responses"][0]["error_code"]),
        response["throttle_time_ms"] > 0,
    )


def _call(address: str, client: str, api: str, version: int, **body: Any) -> Any:
    """Uses a new connection, because a server does not read from a throttled one."""
    with logged_in(address, USER, client) as wire:
        return wire.call(api, version, **body)


def _answers(address: str) -> dict[str, Any]:
    """The responses of a server to the table, and then to the steps with quotas."""
    rows = {f"{user}: {request}": found for (user, request), found in send_all(address).items()}
    answers: dict[str, Any] = json.loads(json.dumps({**rows, "quotas": take_steps(address)}))
    return answers


def answers_of_kafka(folder: Path) -> dict[str, Any]:
    with kafka_with_users(folder) as address:
        return _answers(address)


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Both:
    """The responses of Kafka and of Topicwright."""
    with topicwright_with_users(tmp_path_factory.mktemp("access")) as address:
        return recorded("permissions"), _answers(address)


@pytest.mark.parametrize("user", USERS)
def test_authorization_error_codes_equal_kafkas(taken: Both, user: str) -> None:
    kafka, topicwright = taken
    mine = [name for name in kafka if name.startswith(f"{user}: ")]
    assert mine, "the table has requests of this user"
    assert {name: topicwright[name] for name in mine} == {
        name: [_as_topicwright(row) for row in kafka[name]] for name in mine
    }


def _as_topicwright(row: list[str]) -> list[str]:
    """Kafka's row, without configs that Topicwright does not have."""
    subject, code, _ = row
    if subject == OF_ALL_BROKERS and code in ("NONE", "INVALID_CONFIG"):
        return [subject, "NONE", ""]
    return row


def test_mutation_quota_codes_and_throttling_equal_kafkas(taken: Both) -> None:
    kafka, topicwright = (each["quotas"] for each in taken)
    assert topicwright == kafka
    seen = {(code, is_silenced) for _, code, is_silenced in kafka}
    assert {("NONE", False), ("NONE", True), ("THROTTLING_QUOTA_EXCEEDED", True)} <= seen, "the steps exceed the quota"
