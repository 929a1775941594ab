"""The configs in force of a topic, what judges creates, and requests by address: now and then."""

from __future__ import annotations

from controller.policy.interface import PolicyInForce
from tests.http.service import POLICY, Judge, Service, owned, service
from tests.http.test_permissions import Half


async def test_configs_say_where_they_come_from() -> None:
    async with service(settings={"log.retention.ms": "7200000"}) as one:
        made = await one.create("t", configs={"cleanup.policy": "compact"})
        before = (await one.get("/v1/topics/t"))["as_of"]["offset"]
        await one.request("PATCH", "/v1/topics/t", json={"configs": {"retention.ms": 5, "cleanup.policy": None}})

        async def shown(name: str, path: str = "/v1/topics/t/configs") -> tuple[str | None, str, str | None]:
            (found,) = (each for each in (await one.get(path))["configs"] if each["name"] == name)
            assert not found["sensitive"]
            return found["value"], found["source"], found["default"]

        then = f"/v1/topics/t/configs?at={before}"
        assert await shown("retention.ms") == ("5", "DYNAMIC_TOPIC_CONFIG", "604800000")
        assert await shown("retention.ms", then) == ("7200000", "STATIC_BROKER_CONFIG", "604800000")
        assert await shown("cleanup.policy") == ("delete", "DEFAULT_CONFIG", "delete")
        assert await shown("cleanup.policy", then) == ("compact", "DYNAMIC_TOPIC_CONFIG", "delete")
        assert made["configs"] == {"cleanup.policy": "compact"}
        assert "was ever created" in (await one.get("/v1/topics/none/configs", 404))["message"]
    async with service(authorizer=Half()) as one:
        assert (await one.get("/v1/topics/open/configs", 403))["message"] == "DescribeConfigs on topic 'open' is needed"


async def test_policies_in_force_and_whom_they_refused() -> None:
    async with service(settings=POLICY, judge=Judge(owned)) as one:
        before = (await one.get("/v1/brokers"))["as_of"]["offset"]
        await one.create("orphan", 403)
        await one.create("orphan-2", 403)
        one.api.policies = (PolicyInForce("tests.Owned"),)
        shown = await one.get("/v1/policies")
        assert (shown["class_names"], shown["policies"]) == (["tests.Owned"], [{"name": "tests.Owned", "rules": []}])
        (refused,) = shown["refused"]
        assert (refused["count"], refused["by"]) == (2, [{"principal": "User:ANONYMOUS", "count": 2}])
        then = await one.get(f"/v1/policies?at={before}")
        assert (then["class_names"], then["policies"], then["refused"]) == (["tests.Owned"], None, [])


async def test_requests_are_found_by_address(one: Service) -> None:
    await one.create("t")
    assert len((await one.get("/v1/requests?host=127.0.0.1"))["requests"]) == 1
    assert (await one.get("/v1/requests?host=192.0.2.1"))["requests"] == []


async def test_a_topic_that_is_called_as_a_request_does_not_hide_it(one: Service) -> None:
    made = await one.create("t")
    await one.create(made["request_id"])
    for of, kind in (("", "topic"), ("?of=topic", "topic"), ("?of=request", "request")):
        assert (await one.get(f"/v1/explain/{made['request_id']}{of}"))["kind"] == kind, of
    await one.get("/v1/explain/none?of=topic", 404)
