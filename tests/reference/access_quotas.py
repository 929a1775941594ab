"""Steps of a user with a mutation quota (KIP-599): as many partitions as its bucket holds, then more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.reference.access_servers import logged_in
from tests.reference.access_table import ADMIN
from tests.reference.answers import code_name

Step = tuple[str, str, bool]
"""What was requested, the error's name, and whether the answer throttles the client for a while."""

USER, CLIENT = "everything", "limited"
RATE = 0.05
"""Partitions per second: a bucket of 0.55, which refills so slowly that no step of a test waits for it."""


def take_steps(address: str) -> tuple[Step, ...]:
    """Set the quota, then send requests in versions that know the error and in versions that do not."""
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
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}
    response = _call(address, client, "CreateTopics", version, topics=[topic], timeout_ms=20_000, validate_only=dry)
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
    """On a connection of its own, because one that is throttled is not read from."""
    with logged_in(address, USER, client) as wire:
        return wire.call(api, version, **body)
