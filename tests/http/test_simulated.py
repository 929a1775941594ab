"""What people do to simulated brokers over HTTP."""

from __future__ import annotations

import pytest

from controller.http.paths import writes as simulated
from tests.http.service import Service, service


async def test_a_broker_joins_with_the_next_id_and_fills_a_place_that_was_kept() -> None:
    async with service(settings={"enable.under.replicated.topic.creation": "true"}) as one:
        made = await one.create("t", num_partitions=1, replication_factor=4)
        assert made["partitions"][0]["replicas"] == [3, 1, 2, -1]
        assert made["partitions"][0]["offline"] == [-1]
        added = await one.request("POST", "/v1/simulated/brokers", 201, json={"rack": "here"})
        assert added == {"broker_id": 4, "rack": "here", "running": True, "delay_ms": 0}
        await one.live(1, 2, 3, 4)
        await one.until(lambda: _isr(one) == {1, 2, 3, 4})
        shown = await one.get("/v1/topics/t")
        assert (shown["partitions"][0]["replicas"], shown["placeholders"]) == ([3, 1, 2, 4], 0)


def _isr(one: object) -> set[int]:
    topic = one.api.store.durable_named("t")  # type: ignore[attr-defined]
    return set(topic.partitions[0].isr)


async def test_without_a_body_a_broker_gets_a_rack_in_turn(one: Service) -> None:
    racks = [(await one.request("POST", "/v1/simulated/brokers", 201))["rack"] for _ in range(3)]
    assert racks == ["rack-a", "rack-b", "rack-c"]


async def test_a_broker_stops_starts_and_becomes_slow(one: Service) -> None:
    assert (await one.request("POST", "/v1/simulated/brokers/2/stop"))["running"] is False
    await one.live(1, 3)
    assert (await one.request("POST", "/v1/simulated/brokers/2/start"))["running"] is True
    await one.live(1, 2, 3)
    slow = await one.request("PUT", "/v1/simulated/brokers/2/delay", json={"delay_ms": 300_000})
    assert slow["delay_ms"] == 300_000
    assert (await one.create("t", 202, timeout_ms=50))["status"] == "pending"


async def test_a_broker_that_is_not_there_and_a_bad_wish_are_refused(one: Service) -> None:
    for method, path in (("POST", "stop"), ("POST", "start"), ("PUT", "delay")):
        reply = await one.request(method, f"/v1/simulated/brokers/9/{path}", 404, json={"delay_ms": 0})
        assert (reply["error"], reply["code"]) == ("BROKER_ID_NOT_REGISTERED", 102)
        assert reply["message"] == "no simulated broker 9; known: 1, 2, 3"
    wishes = {
        b'{"delay_ms": -1}': "delay_ms: Expected `int` >= 0",
        b'{"delay_ms": 3600001}': "delay_ms: Expected `int` <= 3600000",
        b'{"delay": 1}': "delay: unknown field; allowed are delay_ms",
        b"{}": "body: Object missing required field `delay_ms`",
        b"": "body: missing; it must be JSON",
    }
    for body, message in wishes.items():
        reply = await one.request("PUT", "/v1/simulated/brokers/1/delay", 400, content=body)
        assert reply["message"] == message
    assert (
        "rack: Expected `str` of length >= 1"
        in (await one.request("POST", "/v1/simulated/brokers", 400, json={"rack": ""}))["message"]
    )
    assert tuple(one.api.cluster.live) == (1, 2, 3)


async def test_no_more_brokers_are_added_than_there_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "SIMULATED_BROKERS_MAX", 5)
    async with service() as one:
        statuses = [(await one.client.post("/v1/simulated/brokers")).status_code for _ in range(4)]
        assert statuses == [201, 201, 400, 400]
