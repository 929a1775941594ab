"""The health of a cluster names each problem with its cause."""

from __future__ import annotations

from typing import Any

from tests.http.service import Service


async def _issues(one: Service) -> dict[str, Any]:
    health = await one.get("/v1/health")
    return {issue["kind"]: issue for issue in health["issues"]}


async def test_when_all_brokers_stopped_status_names_the_last_in_sync_replica(one: Service) -> None:
    for number in range(4):
        await one.create(f"pay.t{number}", num_partitions=3)
    for broker_id in (3, 2, 1):
        await one.request("POST", f"/v1/simulated/brokers/{broker_id}/stop")
        await one.live(*range(1, broker_id))
        await one.until(one.controller.is_reconciled)
    health = await one.get("/v1/health")
    assert health["state"] == "critical"
    assert health["summary"].startswith(
        "12 partitions of 4 topics are offline: all wait for broker 1, the last in-sync"
    )
    offline, down = health["issues"]
    since = (await one.get("/v1/brokers"))["brokers"][0]["changed_at"]
    assert (offline["kind"], offline["waits_for"], offline["began_at"]) == ("offline", [1], since)
    assert f"fenced since {since} (stopped)" in offline["cause"]
    assert offline["examples"] == ["pay.t0", "pay.t1", "pay.t2"]
    assert (down["kind"], down["waits_for"]) == ("no-live-broker", [1, 2, 3])


async def test_what_if_a_broker_is_lost(one: Service) -> None:
    await one.create("pay.safe", configs={"min.insync.replicas": "2"})
    await one.create("pay.single", assignments=[[2], [3]])
    answer = await one.get("/v1/whatif?change=lose-broker%203")
    moves = {each["after"]: each for each in answer["topics"]}
    assert moves["offline"]["examples"] == ["pay.single"]
    assert (moves["offline"]["partitions"], moves["at-min-isr"]["examples"]) == (1, ["pay.safe"])
    assert [each["replication_factor"] for each in answer["creates"]] == [3]
    assert answer["creates"][0]["error"] == "INVALID_REPLICATION_FACTOR"
    assert answer["issues"][0]["waits_for"] == [3]
    assert (await one.get("/v1/health"))["state"] == "healthy", "nothing was changed"
