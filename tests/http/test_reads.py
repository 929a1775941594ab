"""Queries over HTTP: now, at any offset or time, and their errors."""

from datetime import datetime
from typing import Any

import pytest

from controller.machine.commands.access import AlterClientQuotas, CreateAcls, QuotaAlteration
from controller.machine.commands.commands import AlterUserScramCredentials, ScramChange
from controller.machine.state import ScramCredential
from events.access import Acl
from events.logs.log import read_one
from projections.queries import events as event_pages
from projections.text.names import topic_id_text
from projections.views.topics import TopicView
from tests.http.service import Half, Service, service


def _check_times(shape: Any) -> None:
    """Check that every `…_ms` field has the same time as text next to it."""
    if isinstance(shape, dict):
        for name, value in shape.items():
            text = str(shape.get(name.removesuffix("_ms")))
            if name.endswith("at_ms") and value is not None:
                assert round(datetime.fromisoformat(text).timestamp() * 1000) == value, f"{name}: {shape}"
                assert text.endswith("Z"), "UTC"
            _check_times(value)
    elif isinstance(shape, list):
        for one in shape:
            _check_times(one)


async def test_topic_has_configs_partitions_and_its_create_request(one: Service) -> None:
    await one.create("t", num_partitions=1, configs={"retention.ms": "5"})
    shown = await one.get("/v1/topics/t")
    topic = one.api.store.durable_named("t")
    assert topic is not None
    assert shown.keys() == set(TopicView.__struct_fields__)
    for name in ("name", "created_at_ms", "created_offset", "ready_at_ms"):
        assert shown[name] == getattr(topic, name), name
    assert (shown["topic_id"], shown["status"]) == (topic_id_text(topic.topic_id), "ready")
    numbers = ("num_partitions", "replication_factor", "under_replicated_partitions", "offline_partitions")
    assert [shown[name] for name in (*numbers, "placeholders")] == [1, 3, 0, 0, 0]
    assert (shown["configs"], shown["policy"], shown["placed_on"]) == ({"retention.ms": "5"}, None, [1, 2, 3])
    by = shown["created_by"]
    assert (by["principal"], by["api"], by["api_version"]) == ("User:ANONYMOUS", "HTTP", 7)
    assert by["client_id"].startswith("python-httpx")
    (partition,) = shown["partitions"]
    state = {"leader": 3, "replicas": [3, 1, 2], "isr": [3, 1, 2], "offline": []}
    assert partition == {"partition": 0, **state, "leader_epoch": 0, "partition_epoch": 0}
    assert shown["as_of"]["offset"] == one.log.durable_offset - 1
    _check_times(shown)


async def test_topic_status_follows_stopped_and_restarted_brokers(one: Service) -> None:
    await one.create("t", num_partitions=1)
    await one.create("alone", assignments=[[3]])
    assert (await one.request("POST", "/v1/simulated/brokers/3/stop"))["running"] is False
    await one.live(1, 2)
    await one.until(lambda: len(_partition(one, "t").isr) == 2 and _partition(one, "alone").leader == -1)
    shown = await one.get("/v1/topics/t")
    assert shown["status"] == "under-replicated"
    assert (shown["under_replicated_partitions"], shown["partitions"][0]["offline"]) == (1, [3])
    alone = await one.get("/v1/topics/alone")
    assert (alone["status"], alone["offline_partitions"], alone["partitions"][0]["leader"]) == ("offline", 1, -1)
    at = shown["as_of"]["offset"]
    assert (await one.request("POST", "/v1/simulated/brokers/3/start"))["running"] is True
    await one.until(lambda: len(_partition(one, "t").isr) == 3)
    assert (await one.get("/v1/topics/t"))["status"] == "ready"
    assert (await one.get("/v1/topics/t", at=at))["status"] == "under-replicated", "past states do not change"


def _partition(one: Service, name: str) -> Any:
    topic = one.api.store.durable_named(name)
    assert topic is not None
    return topic.partitions[0]


async def test_current_view_equals_the_view_at_the_last_offset(one: Service) -> None:
    await one.create("a.t", num_partitions=1)
    await one.create("b")
    await one.request("DELETE", "/v1/topics/b")
    end = one.log.durable_offset
    for path in ("/v1/topics", "/v1/topics/a.t", "/v1/brokers"):
        assert await one.get(path) == await one.get(path, at=end - 1)
    as_of = (await one.get("/v1/topics", at=end - 4))["as_of"]
    assert as_of["offset"] >= end - 4
    by_time = await one.get("/v1/topics", at=as_of["at"])
    assert by_time["as_of"]["at"] == as_of["at"], "the offset of the last event in that millisecond"
    assert await one.get("/v1/topics", at=f"{as_of['at_ms']}ms") == by_time
    early = await one.get("/v1/topics", at="2001-01-01")
    assert (early["topics"], early["as_of"]) == ([], {"offset": -1, "at": None, "at_ms": None})


async def test_request_has_its_outcome(one: Service) -> None:
    made = await one.create("t", num_partitions=1, configs={"retention.ms": "5"})
    shown = await one.get(f"/v1/requests/{made['request_id']}")
    _check_times(shown)
    topic = shown["topics"][0]
    assert (shown["api"], shown["timeout_ms"], shown["principal"]) == ("HTTP", 30_000, "User:ANONYMOUS")
    assert shown["deadline_at_ms"] == shown["requested_at_ms"] + 30_000
    assert (topic["topic"], topic["status"], topic["error"], topic["code"]) == ("t", "created", "NONE", 0)
    assert topic["change"] == "to be created with 1 partition, the default factor, retention.ms=5"
    assert topic["requested"]["configs"] == {"retention.ms": "5"}
    gone = await one.request("DELETE", "/v1/topics/t")
    topic = (await one.get(f"/v1/requests/{gone['request_id']}"))["topics"][0]
    assert (topic["status"], topic["change"], topic["requested"]) == ("deleted", "to be deleted", None)
    at_once = await one.create("u", 202, timeout_ms=0)
    assert (await one.get(f"/v1/requests/{at_once['request_id']}"))["deadline_at"] is None
    reply = await one.get("/v1/requests/nonesuch", 404)
    assert (reply["error"], reply["code"]) == ("RESOURCE_NOT_FOUND", 91)


async def test_brokers_have_their_state_its_time_and_reason(one: Service) -> None:
    await one.request("POST", "/v1/simulated/brokers/2/stop")
    await one.live(1, 3)
    shown = await one.get("/v1/brokers")
    _check_times(shown)
    assert [(broker["broker_id"], broker["fenced"]) for broker in shown["brokers"]] == [
        (1, False),
        (2, True),
        (3, False),
    ]
    assert shown["live"] == [1, 3]
    second = shown["brokers"][1]
    assert (second["reason"], second["rack"], second["endpoints"][0]["port"]) == ("stopped", "rack-b", 9092)
    assert shown["settings"] == dict(one.settings)
    assert shown["release"] == "9.9"


async def test_events_are_paged_and_filtered_by_topic_and_request(one: Service) -> None:
    made = await one.create("t", num_partitions=1)
    await one.create("u", num_partitions=1)
    end = one.log.durable_offset
    pages = await one.pages("/v1/events", limit=3)
    _check_times(pages)
    assert {page["end"] for page in pages} == {end}
    assert [event["offset"] for page in pages for event in page["events"]] == list(range(end))
    of_topic = await one.get("/v1/events", topic="t")
    assert {event["fields"]["topic"] for event in of_topic["events"]} == {"t"}
    of_request = await one.get("/v1/events", request=made["request_id"])
    types = [event["type"] for event in of_request["events"]]
    assert types == ["CreateRequested", "TopicCreated", "CreateAnswered"]
    assert (await one.get("/v1/events", request=made["request_id"], topic="u"))["events"] == []
    assert (await one.get(f"/v1/events?topic=t&from={end}"))["events"] == []
    created = of_request["events"][1]
    assert created["text"].startswith("t is created, 1 partition with factor 3, placed on live brokers 1, 2, 3")
    assert created["cause"] == {"command": "CreateTopic", "request_id": made["request_id"]}
    assert created["fields"]["topic_id"] == made["topic_id"]
    assert created["fields"]["partitions"][0]["replicas"] == [3, 1, 2]
    assert (await one.get("/v1/events?topic=none"))["events"] == []
    of_pattern = await one.get("/v1/events", topic="[t]", principal="User:*", type="TopicDeleted")
    assert of_pattern["events"] == []
    everything = (await one.get("/v1/events", limit=1000))["events"]
    for order in ("oldest", "newest"):
        later = (await one.get("/v1/events", limit=1000, order=order, **{"from": everything[9]["at"]}))["events"]
        assert [each["offset"] for each in later][:: 1 if order == "oldest" else -1] == [
            each["offset"] for each in everything if each["at_ms"] >= everything[9]["at_ms"]
        ]


# path | status, and the start of the message
WRONG = """
/v1/topics?limit=0                 | 400 limit: must be a whole number >= 1
/v1/topics?limit=1001              | 400 limit: must be a whole number <= 1000
/v1/topics?limit=x                 | 400 limit: must be a whole number
/v1/topics?limit=1&limit=2         | 400 limit: given more than once
/v1/topics?at=yesterday            | 400 at: 'yesterday' is not a valid point in time: use an offset (1234), an
/v1/topics?at=NINES                | 400 at: offset 9223372036854775808 and more is not reached yet: the newest event
/v1/topics?at=MANY                 | 400 at: '9999999999999999999999
/v1/topics?at=MANYms               | 400 at: '9999999999999999999999
/v1/topics?at=-MANY                | 400 at: '-999999999999999999999
/v1/events?cursor=MANY             | 400 cursor: '9999999999999999999999
/v1/events?from=MANY               | 400 from: '9999999999999999999999
/v1/events?from=2999-01-01         | 400 from: '2999-01-01' is in the future: it is 20
/v1/events/follow?cursor=MANY      | 400 cursor: '9999999999999999999999
/v1/events?partition=MANY          | 400 partition:
/v1/topics?limit=MANY              | 400 limit:
/v1/topics?cursor=~x               | 400 cursor: not a next_cursor of this process
/v1/topics?cursor=~%F0%9F%98%80    | 400 cursor: not a next_cursor of this process
/v1/topics?at=99999                | 400 at: offset 99999 is not reached yet: the newest event is at offset 6
/v1/topics?at=2999-01-01           | 400 at: '2999-01-01' is in the future: it is 20
/v1/requests?to=99999999999999ms   | 400 to: '99999999999999ms' is in the future: it is 20
/v1/topics?att=5                   | 400 att: unknown query parameter; allowed are at, cursor, label, limit, name
/v1/topics/t?at=3                  | 404 no topic 't' was ever created
/v1/requests/r?at=3                | 404 no request 'r' is in the log
/v1/events?from=-1                 | 400 from: '-1' is not a valid point in time: use an offset
/v1/events?from=x                  | 400 from: 'x' is not a valid point in time: use an offset
/v1/log/head?partition=0           | 400 partition: there is no partition 0; this log has none
/v1/log/proof                      | 400 give exactly one of offset, topic and request
/v1/log/proof?offset=1&topic=t     | 400 give exactly one of offset, topic and request
/v1/log/proof?offset=7             | 404 there is no event at offset 7: the log ends at 7
/v1/log/proof?offset=3&size=3      | 400 size: event 3 is not among the first 3
/v1/log/proof?offset=3&size=9      | 400 size: the log has 7 events, not 9
/v1/log/proof?topic=t              | 404 there is no event of topic t from offset 0 on
/v1/log/proof?offset=1&limit=1001  | 400 limit: must be a whole number <= 1000
/v1/log/leaves?limit=1001          | 400 limit: must be a whole number <= 1000
/health/ready?verbose=1         | 400 verbose: unknown query parameter; this path takes none
/v1/requests?outcome=x      | 400 outcome: Invalid enum value 'x'
/v1/requests?cursor=1-2     | 400 cursor: '1-2' is not the next_cursor of a page of this listing
/v1/requests?from=99999     | 400 from: offset 99999 is not reached yet
/v1/requests?to=yesterday   | 400 to: 'yesterday' is not a valid point in time
/v1/requests?since=3        | 400 since: unknown query parameter; allowed are api, at, cursor, from, host, label, limit
/v1/timeline?spans=0        | 400 spans: must be a whole number >= 1
/v1/timeline?spans=501      | 400 spans: must be a whole number <= 500
/v1/topics?status=bad       | 400 status: Invalid enum value 'bad'
/v1/topics?name=            | 400 name: Expected `str` of length >= 1
/v1/events?type=Bad         | 400 type: 'Bad' is unknown; use AclsCreated or
/v1/events?order=up         | 400 order: Invalid enum value 'up'
/v1/diff                    | 400 Missing required query parameter 'from'
/v1/diff?from=99999         | 400 from: offset 99999 is not reached yet
/v1/brokers/x               | 404 unknown path
/v1/brokers/99999999999999999999 | 404 there is no broker 99999999999999999999
/v1/v1/topics               | 404 unknown path
/v1/nothing/here                | 404 unknown path; /openapi.json lists the paths of the API
/v1/simulated/brokers              | 405 GET is not allowed here; allowed: OPTIONS, POST
"""


async def test_invalid_query_parameters_are_rejected_with_the_allowed_values(one: Service) -> None:
    for line in WRONG.strip().splitlines():
        path, expected = (column.strip() for column in line.split("|", 1))
        path = path.replace("MANY", "9" * 5000).replace("NINES", "9" * 400)
        answer = await one.client.get(path)
        reply = answer.json()
        assert f"{answer.status_code} {reply['message']}".startswith(expected), f"{path}: {reply}"
        assert reply["code"] in {3, 42, 91}, f"{path}: {reply}"


async def test_openapi_document_has_bodies_and_parameters(one: Service) -> None:
    document = await one.get("/openapi.json")
    assert document["info"]["title"] == "Topicwright"
    create = document["paths"]["/v1/topics"]["post"]
    body = create["requestBody"]["content"]["application/json"]["schema"]
    assert (body["required"], body["additionalProperties"]) == (["name"], False)
    assert "validate_only" in {parameter["name"] for parameter in create["parameters"]}
    parameters = {one["name"] for one in document["paths"]["/v1/events"]["get"]["parameters"]}
    assert parameters == {
        "from", "limit", "topic", "principal", "request", "type", "order", "partition", "cursor", "at",
    }  # fmt: skip


async def test_event_pages_are_limited_in_bytes(one: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_pages, "BYTES_PER_PAGE", 200)
    made = await one.create("t", num_partitions=20)
    for number in range(4):
        await one.create(f"t{number}", num_partitions=20)
    for which in ({}, {"topic": "t"}, {"request": made["request_id"]}):
        pages = [[event["offset"] for event in page["events"]] for page in await one.pages("/v1/events", **which)]
        assert all(sum(len(read_one(one.log, offset)) for offset in page[:-1]) < 200 for page in pages)
        assert len(pages) > 1
        whole = [offset for page in pages for offset in page]
        assert whole == sorted(set(whole))
    assert whole == [record.offset for record in one.query.parts[0].request_events(made["request_id"])]


async def test_topic_configs_have_their_source(half: Service) -> None:
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
    assert (await half.get("/v1/topics/open/configs", 403))["message"] == "DescribeConfigs on topic 'open' is needed"


async def test_effective_policies_and_refusals(judged: Service) -> None:
    before = (await judged.get("/v1/brokers"))["as_of"]["offset"]
    await judged.create("orphan", 403)
    await judged.create("orphan-2", 403)
    applied = await judged.request("POST", "/v1/rules", json={"text": "[[rule]]\nname = 'r'\npartitions = 3"})
    assert applied == {"number": 1}
    late = await judged.client.post("/v1/rules", json={"text": "", "after": 0})
    assert (late.status_code, late.json()["error"]) == (409, "INVALID_UPDATE_VERSION")
    wrong = await judged.client.post("/v1/rules", json={"text": "[[rule]]\nname = 'r'"})
    assert (wrong.status_code, wrong.json()["error"]) == (400, "INVALID_CONFIG")
    shown = await judged.get("/v1/policies")
    assert shown["version"]["number"] == 1
    (rule,) = shown["rules"]
    assert (rule["name"], rule["mode"], rule["definition"]) == ("r", "enforce", {"partitions": "3"})
    then = await judged.get(f"/v1/policies?at={before}")
    assert then["version"] is None


async def test_a_topic_named_like_a_request_id_does_not_hide_the_request(one: Service) -> None:
    made = await one.create("t")
    await one.create(made["request_id"])
    for of, kind in (("", "topic"), ("?of=topic", "topic"), ("?of=request", "request")):
        assert (await one.get(f"/v1/explain/{made['request_id']}{of}"))["kind"] == kind, of
    await one.get("/v1/explain/none?of=topic", 404)


async def test_access_has_the_acls_users_and_quotas_that_contain_a_text(one: Service) -> None:
    who = {"principal": "User:admin", "client_id": None}
    acls = (Acl(2, 4, "pay.", "User:Ann", "*", 4, 3), Acl(3, 3, "app", "User:bob", "10.0.0.7", 2, 2))
    one.submit_internal(CreateAcls, acls=acls, **who)
    for user in ("ann", "bob"):
        change = ScramChange(user, 2, ScramCredential(4096, bytes(16), b"PLANTED" * 6, b"PLANTED" * 6))
        one.submit_internal(AlterUserScramCredentials, changes=(change,), **who)
    values = (("controller_mutation_rate", 5.0), ("request_percentage", 50.5))
    quota = QuotaAlteration((("user", "ann"),), values)
    one.submit_internal(AlterClientQuotas, alterations=(quota,), **who)
    await one.controller.decided()
    shown = await one.get("/v1/access")
    assert shown["acls"] == ["User:Ann may Write Topic:pay. (prefixed)", "User:bob may not All Group:app from 10.0.0.7"]
    users = [f"{user} by SCRAM-SHA-512, 4096 iterations" for user in ("ann", "bob")]
    quotas = ["user=ann: controller_mutation_rate=5", "user=ann: request_percentage=50.5"]
    assert (shown["users"], shown["quotas"], shown["more"]) == (users, quotas, False)
    found = await one.get("/v1/access", filter="ANN")
    assert (found["acls"], found["users"], found["quotas"]) == (shown["acls"][:1], users[:1], quotas)
    assert "PLANTED" not in str(shown)


async def test_access_needs_describe_on_the_cluster() -> None:
    async with service(authorizer=Half()) as one:
        assert (await one.get("/v1/access", 403))["message"] == "Describe on the cluster is needed"
