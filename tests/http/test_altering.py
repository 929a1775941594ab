"""Changes of topics and of simulated brokers over HTTP."""

import pytest

from controller.http import writes as simulated
from tests.http.service import Rules, Service, service


async def test_patch_alters_and_resets_topic_configs(one: Service) -> None:
    await one.create("t", configs={"retention.ms": 5, "cleanup.policy": "compact"})
    body = {"configs": {"retention.ms": 7, "cleanup.policy": None, "unclean.leader.election.enable": True}}
    before = one.log.durable_offset
    tried = await one.request("PATCH", "/v1/topics/t?validate_only=true", json=body)
    assert one.log.durable_offset == before, "a dry run writes nothing"
    made = await one.request("PATCH", "/v1/topics/t", json=body)
    assert made["configs"] == tried["configs"] == {"retention.ms": "7", "unclean.leader.election.enable": "true"}
    assert (await one.get("/v1/topics/t"))["configs"] == made["configs"]
    row = (await one.get(f"/v1/requests/{made['request_id']}"))["topics"][0]
    assert row["status"] == "configs-changed"


async def test_patch_adds_partitions(one: Service) -> None:
    await one.create("t", num_partitions=1)
    assert (await one.request("PATCH", "/v1/topics/t", json={"num_partitions": 3}))["num_partitions"] == 3
    by_hand = {"num_partitions": 4, "assignments": [[3, 1, 2]]}
    assert (await one.request("PATCH", "/v1/topics/t", json=by_hand))["num_partitions"] == 4
    assert (await one.get("/v1/topics/t"))["partitions"][3]["replicas"] == [3, 1, 2]


# request | status, error, and the start of the message
WRONG = """
PATCH topics/t {}                                         | 400 INVALID_REQUEST body: give either configs or num_partitions
PATCH topics/t {"configs": {"retention.ms": 1}, "num_partitions": 3} | 400 INVALID_REQUEST body: give either configs or num_partitions
PATCH topics/t {"configs": {"retention.ms": 1}, "assignments": [[1]]} | 400 INVALID_REQUEST assignments: only allowed with num_partitions
PATCH topics/t {"configs": {"retention.ms": "soon"}}      | 400 INVALID_CONFIG Invalid value soon for configuration retention.ms
PATCH topics/t {"partitions": 3}                          | 400 INVALID_REQUEST partitions: unknown field; allowed are configs, num_part
PATCH topics/t {"num_partitions": 1}                      | 400 INVALID_PARTITIONS The topic t currently has 2 partition(s); 1 would not be
PATCH topics/t {"num_partitions": 3, "assignments": [[9, 1, 2]]} | 400 INVALID_REPLICA_ASSIGNMENT The manual partition assignment includes broker 9
PATCH topics/none {"num_partitions": 3}                   | 404 UNKNOWN_TOPIC_OR_PARTITION This server does not host this topic-partition.
POST simulated/brokers/9/stop                             | 404 BROKER_ID_NOT_REGISTERED no simulated broker 9; known: 1, 2, 3
POST simulated/brokers/9/start                            | 404 BROKER_ID_NOT_REGISTERED no simulated broker 9; known: 1, 2, 3
PUT simulated/brokers/9/delay {"delay_ms": 0}             | 404 BROKER_ID_NOT_REGISTERED no simulated broker 9; known: 1, 2, 3
PUT simulated/brokers/1/delay {"delay_ms": -1}            | 400 INVALID_REQUEST delay_ms: Expected `int` >= 0
PUT simulated/brokers/1/delay {"delay_ms": 3600001}       | 400 INVALID_REQUEST delay_ms: Expected `int` <= 3600000
PUT simulated/brokers/1/delay {"delay": 1}                | 400 INVALID_REQUEST delay: unknown field; allowed are delay_ms
PUT simulated/brokers/1/delay {}                          | 400 INVALID_REQUEST body: Object missing required field `delay_ms`
PUT simulated/brokers/1/delay                             | 400 INVALID_REQUEST body: missing; it must be JSON
POST simulated/brokers {"rack": ""}                       | 400 INVALID_REQUEST rack: Expected `str` of length >= 1
"""  # noqa: E501


async def test_invalid_changes_are_refused(one: Service) -> None:
    await one.create("t")
    for line in WRONG.strip().splitlines():
        case, expected = (column.strip() for column in line.split("|", 1))
        method, path, body = f"{case} ".split(" ", 2)
        answer = await one.client.request(method, f"/v1/{path}", content=body.strip())
        reply = answer.json()
        assert f"{answer.status_code} {reply['error']} {reply['message']}".startswith(expected), f"{case}: {reply}"
    shown = await one.get("/v1/topics/t")
    assert (shown["num_partitions"], shown["configs"]) == (2, {})
    assert tuple(one.api.cluster.live) == (1, 2, 3)


async def test_patch_requires_alter_configs_or_alter_on_the_topic() -> None:
    changes = {"AlterConfigs": {"configs": {"retention.ms": 7}}, "Alter": {"num_partitions": 5}}
    for operation in changes:
        denied = (operation, "Topic")
        async with service(authorizer=Rules(lambda _, *given: given[:2] != denied)) as one:  # noqa: B023
            await one.create("t")
            for needed, body in changes.items():
                expected = 403 if needed == operation else 200
                answer = await one.request("PATCH", "/v1/topics/t", expected, json=body)
                assert (answer["error"] == "TOPIC_AUTHORIZATION_FAILED") == (expected == 403)


async def test_change_events_have_the_client_host_and_previous_values(one: Service) -> None:
    made = await one.create("t", configs={"retention.ms": 5})
    changed = await one.request("PATCH", "/v1/topics/t", json={"configs": {"retention.ms": 7}})
    await one.request("PATCH", "/v1/topics/t", json={"num_partitions": 3})
    await one.request("PATCH", "/v1/topics/t", 400, json={"num_partitions": 1})
    await one.request("DELETE", "/v1/topics/t")
    asked = [event for event in (await one.get("/v1/events?topic=t"))["events"] if "principal" in event["fields"]]
    asked = [event for event in asked if event["type"] != "TopicCreated"]
    addresses = [event["fields"].get("host") or event["fields"]["request"]["host"] for event in asked]
    assert addresses == ["127.0.0.1"] * 5
    assert {each["host"] for each in (await one.get("/v1/requests"))["requests"]} == {"127.0.0.1"}
    assert (await one.get(f"/v1/requests/{made['request_id']}"))["host"] == "127.0.0.1"
    (event,) = (await one.get(f"/v1/events?request={changed['request_id']}"))["events"]
    assert (event["fields"]["before"], event["fields"]["configs"]) == ({"retention.ms": "5"}, {"retention.ms": "7"})
    settings = (await one.get("/v1/events?type=SettingsChanged"))["events"]
    assert [event["fields"]["before"] for event in settings] == [None]


async def test_an_added_broker_gets_the_next_id_and_fills_a_placeholder() -> None:
    async with service(settings={"enable.under.replicated.topic.creation": "true"}) as one:
        made = await one.create("t", num_partitions=1, replication_factor=4)
        assert made["partitions"][0]["replicas"] == [3, 1, 2, -1]
        assert made["partitions"][0]["offline"] == [-1]
        added = await one.request("POST", "/v1/simulated/brokers", 201, json={"rack": "here"})
        assert added == {"broker_id": 4, "rack": "here", "running": True, "delay_ms": 0}
        await one.live(1, 2, 3, 4)
        await one.until(lambda: (topic := one.api.topic("t")) is not None and len(topic.partitions[0].isr) == 4)
        shown = await one.get("/v1/topics/t")
        assert (shown["partitions"][0]["replicas"], shown["placeholders"]) == ([3, 1, 2, 4], 0)


async def test_brokers_added_without_a_rack_rotate_over_the_racks(one: Service) -> None:
    racks = [(await one.request("POST", "/v1/simulated/brokers", 201))["rack"] for _ in range(3)]
    assert racks == ["rack-a", "rack-b", "rack-c"]


async def test_the_number_of_simulated_brokers_is_limited(one: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "SIMULATED_BROKERS_MAX", 5)
    statuses = [(await one.client.post("/v1/simulated/brokers")).status_code for _ in range(4)]
    assert statuses == [201, 201, 400, 400]
