"""`POST /v1/changes`: many changes of topics in one request."""

from typing import Any

from tests.http.service import Rules, Service, service


async def test_many_changes_get_their_outcomes_in_order(one: Service) -> None:
    await one.create("old", num_partitions=1)
    changes: list[dict[str, Any]] = [
        {"type": "create", "name": "a", "num_partitions": 2, "replication_factor": 2},
        {"type": "create", "name": "a"},
        {"type": "alter", "name": "old", "configs": {"retention.ms": 5}},
        {"type": "alter", "name": "old", "num_partitions": 3},
        {"type": "alter", "name": "none", "num_partitions": 3},
        {"type": "alter", "name": "old"},
        {"type": "delete", "name": "none"},
    ]
    end = one.log.durable_offset
    dry = await one.request("POST", "/v1/changes?validate_only=true", json={"changes": changes})
    assert one.log.durable_offset == end, "a dry run writes nothing"
    assert [each["code"] for each in dry["results"]] == [0, 0, 0, 0, 3, 42, 3], "each by itself"
    made = await one.request("POST", "/v1/changes", json={"changes": changes})
    assert [each["code"] for each in made["results"]] == [0, 36, 0, 0, 3, 42, 3]
    assert [each["name"] for each in made["results"]] == [each["name"] for each in changes]
    assert made["results"][1]["rule"] == "validation:exists"
    assert made["results"][0]["partitions"] == dry["results"][0]["partitions"]
    assert [part["partition"] for part in made["results"][3]["partitions"]] == [1, 2]
    assert [part["replicas"] for part in made["results"][3]["partitions"]] == [
        part["replicas"] for part in (await one.get("/v1/topics/old"))["partitions"][1:]
    ]
    gone = {"changes": [{"type": "delete", "name": "old"}]}
    assert (await one.request("POST", "/v1/changes?validate_only=true", json=gone))["results"][0]["code"] == 0
    await one.get("/v1/topics/old")
    await one.request("POST", "/v1/changes", json=gone)
    await one.get("/v1/topics/old", 404)


async def test_deletion_as_a_dry_run(one: Service) -> None:
    await one.create("t")
    assert (await one.request("DELETE", "/v1/topics/t?validate_only=true"))["code"] == 0
    await one.get("/v1/topics/t")
    await one.request("DELETE", "/v1/topics/none?validate_only=true", 404)


async def test_limits_and_errors_of_many_changes(one: Service) -> None:
    async def refused(body: object, **more: Any) -> str:
        return str((await one.request("POST", "/v1/changes", 400, json=body, **more))["message"])

    create = {"type": "create", "name": "t"}
    assert "length >= 1" in await refused({"changes": []})
    assert "length <= 100" in await refused({"changes": [create] * 101})
    large = [{**create, "name": "u", "num_partitions": 9_999}, {"type": "alter", "name": "t", "assignments": [[1]] * 2}]
    assert await refused({"changes": large}) == "changes: 10001 partitions; all changes of a request may have 10000"
    assert await refused({"changes": [{**create, "x": 1}]}) == "changes[0].x: unknown field"
    move = "changes[0].type: Invalid value 'move'; allowed are create, alter, delete"
    assert await refused({"changes": [{"type": "move", "name": "t"}]}) == move
    assert await refused({"changes": [{**create, "configs": {"a": []}}]}) != ""
    assert await refused({"x": 1}) == "x: unknown field; allowed are changes"
    key = {"Idempotency-Key": "k"}
    assert await refused({"changes": [create]}, headers=key) == "Idempotency-Key: not allowed with many changes"
    await one.get("/v1/topics/t", 404)


async def test_each_of_many_changes_needs_its_permission() -> None:
    rules = Rules(lambda _, operation, kind, name: operation == "Create" and name == "mine")
    async with service(authorizer=rules) as one:
        changes = [{"type": "create", "name": name} for name in ("mine", "theirs")]
        made = await one.request("POST", "/v1/changes", json={"changes": changes})
        assert [each["error"] for each in made["results"]] == ["NONE", "TOPIC_AUTHORIZATION_FAILED"]
