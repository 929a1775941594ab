"""Creating and deleting topics over HTTP."""

import asyncio
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
import structlog

from controller.http.errors import KNOWN, STATUS_OF
from controller.machine.errors import ErrorCode
from tests.http.service import Rules, Service, service
from tests.simulation.faulty_log import Disk, FaultyLog


async def test_a_created_topic_is_ready_when_the_response_arrives(one: Service) -> None:
    made = await one.create("t", num_partitions=3, replication_factor=2, configs={"retention.ms": 5})
    assert (made["error"], made["code"], made["status"], made["validate_only"]) == ("NONE", 0, "ready", False)
    assert (made["num_partitions"], made["replication_factor"], made["configs"]) == (3, 2, {"retention.ms": "5"})
    shown = await one.get("/v1/topics/t")
    assert shown["topic_id"] == made["topic_id"]
    assert shown["partitions"] == made["partitions"]
    assert shown["created_by"]["request_id"] == made["request_id"]


async def test_create_accepts_a_minimal_body_with_any_content_type(one: Service) -> None:
    made = await one.request("POST", "/v1/topics", 201, content=b'{"name":"t"}', headers={"Content-Type": "text/plain"})
    assert (made["num_partitions"], made["replication_factor"]) == (2, 3), "the cluster's defaults"


@pytest.mark.parametrize("assignments", [[[2, 1], [3, 2]], {"1": [3, 2], "0": [2, 1]}])
async def test_create_with_manual_replica_assignments(one: Service, assignments: Any) -> None:
    made = await one.create("t", assignments=assignments)
    assert [part["replicas"] for part in made["partitions"]] == [[2, 1], [3, 2]]
    assert [part["leader"] for part in made["partitions"]] == [2, 3]


async def test_types_of_config_values(one: Service) -> None:
    configs = {"cleanup.policy": "compact", "preallocate": True, "min.cleanable.dirty.ratio": 0.5, "retention.ms": "1"}
    made = await one.create("t", configs=configs)
    assert made["configs"] == {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.5",
        "preallocate": "true",
        "retention.ms": "1",
    }


async def test_a_dry_run_returns_the_replicas_of_the_create_and_writes_nothing(one: Service) -> None:
    end = one.log.durable_offset
    answer = await one.client.post("/v1/topics?validate_only=true", json={"name": "t", "num_partitions": 4})
    assert (answer.status_code, "location" in answer.headers) == (200, False)
    dry = answer.json()
    assert (dry["status"], dry["topic_id"], dry["validate_only"]) == ("validated", None, True)
    assert one.log.durable_offset == end
    await one.get("/v1/topics/t", 404)
    made = await one.create("t", num_partitions=4)
    assert made["partitions"] == dry["partitions"]


async def test_a_create_with_timeout_0_or_expired_timeout_gets_202(one: Service) -> None:
    at_once = await one.create("t", 202, timeout_ms=0)
    assert (at_once["error"], at_once["code"], at_once["status"]) == ("REQUEST_TIMED_OUT", 7, "pending")
    slow = await one.request("PUT", "/v1/simulated/brokers/3/delay", json={"delay_ms": 60_000})
    assert slow["delay_ms"] == 60_000
    late = await one.create("u", 202, timeout_ms=50)
    assert late["status"] == "pending"
    assert "2 of 3 live brokers have applied it" in late["message"]
    assert late["waited_ms"] >= 50
    assert (await one.get("/v1/topics/u"))["status"] == "pending"
    assert (await one.get(f"/v1/requests/{late['request_id']}"))["topics"][0]["status"] == "timed-out"


# body without the name | status, error, rule
REFUSED = """
{"num_partitions": 0}                           | 400 INVALID_PARTITIONS validation:partitions
{"replication_factor": 4}                       | 400 INVALID_REPLICATION_FACTOR validation:live-brokers
{"assignments": [[9]]}                          | 400 INVALID_REPLICA_ASSIGNMENT validation:assignment
{"assignments": [[1]], "num_partitions": 1}     | 400 INVALID_REQUEST validation:counts-and-assignment
{"configs": {"retention.ms": "soon"}}           | 400 INVALID_CONFIG validation:configs
{"configs": {"nonsense": "1"}}                  | 400 INVALID_CONFIG validation:configs
{"name": "a b"}                                 | 400 INVALID_TOPIC_EXCEPTION validation:name
{"name": "there"}                               | 409 TOPIC_ALREADY_EXISTS validation:exists
{"name": "the_re"}                              | 201 NONE -
{"name": "the.re"}                              | 400 INVALID_TOPIC_EXCEPTION validation:collision
"""


async def test_refusals_of_creates(one: Service) -> None:
    await one.create("there")
    for line in REFUSED.strip().splitlines():
        body, expected = (column.strip() for column in line.split("|"))
        answer = await one.client.post("/v1/topics", json={"name": "t", **json.loads(body)})
        reply = answer.json()
        shown = f"{answer.status_code} {reply['error']} {reply.get('rule', '').split('/')[0] or '-'}"
        assert shown == expected, f"{body}: {reply}"
        if answer.status_code != 201:
            row = (await one.get(f"/v1/requests/{reply['request_id']}"))["topics"][0]
            assert (row["code"], row["message"], row["rule"]) == (reply["code"], reply["message"], reply["rule"])


# body | start of the message
BAD = """
                                            | body: missing; it must be JSON
{                                           | body: Input data was truncated
[]                                          | body: Expected `object`, got `array`
"t"                                         | body: Expected `object`, got `str`
{}                                          | body: Object missing required field `name`
{"name": 5}                                 | name: Expected `str`, got `int`
{"name": "t", "partitions": 5}              | partitions: unknown field; allowed are name, num_partitions, \
replication_factor, assignments, configs, timeout_ms
{"name": "t", "num_partitions": "3"}        | num_partitions: Expected `int`, got `str`
{"name": "t", "num_partitions": -2}         | num_partitions: Expected `int` >= -1
{"name": "t", "num_partitions": 2147483648} | num_partitions: Expected `int` <= 2147483647
{"name": "t", "replication_factor": 32768}  | replication_factor: Expected `int` <= 32767
{"name": "t", "configs": {"a": []}}         | configs[a]: Expected `bool | int | float | str | null`, got `array`
{"name": "t", "configs": {"a": 1, "b": {}}} | configs[b]: Expected `bool | int | float | str | null`, got `object`
{"name": "t", "name": "u"}                  | name: given more than once
{"name": "t", "configs": {"a": 1, "a": 2}}  | a: given more than once
{"name": "t", "timeout_ms": 1.5}            | timeout_ms: Expected `int`, got `float`
{"name": "t", "assignments": [["1"]]}       | assignments[0][0]: Expected `int`, got `str`
{"name": "t", "assignments": {"x": [1]}}    | key of assignments: Expected `int`, got `str`
"""


async def test_an_invalid_body_is_rejected_with_field_and_allowed_values(one: Service) -> None:
    end = one.log.durable_offset
    for line in BAD.strip("\n").splitlines():
        body, expected = (column.strip() for column in line.split("|", 1))
        reply = await one.request("POST", "/v1/topics", 400, content=body.encode())
        assert (reply["error"], reply["code"]) == ("INVALID_REQUEST", 42), body
        assert reply["message"].startswith(expected), f"{body}: {reply['message']}"
    assert one.log.durable_offset == end, "a rejected body writes no event"


async def test_limits_of_a_body(one: Service) -> None:
    bodies = {
        "assignments": b"[" + b"[1]," * 10_000 + b"[1]]",
        "configs": b"{" + b",".join(b'"%d":1' % number for number in range(1001)) + b"}",
        "name": b"[" * 900_000,
    }
    end = one.log.durable_offset
    for field, value in bodies.items():
        content = b'{"name":"t","%s":%s}' % (field.encode(), value)
        reply = await one.request("POST", "/v1/topics", 400, content=content)
        assert reply["message"].startswith(f"{field}: Expected"), reply
    deep = b'{"name":"t","configs":' + b'{"a":' * 100_000
    reply = await one.request("POST", "/v1/topics", 400, content=deep)
    assert reply["message"].startswith("configs[...]: Expected"), reply
    reply = await one.request("POST", "/v1/topics", 400, content=b'{"%s":1}' % (b"x" * 900_000))
    assert reply["message"].startswith(f"{'x' * 100}: unknown field"), "a truncated name"
    assert one.log.durable_offset == end


async def test_a_body_beyond_the_size_limit_is_rejected(one: Service) -> None:
    await one.request("POST", "/v1/topics", 413, content=b'{"name":"' + b"x" * (1 << 20) + b'"}')
    reply = await one.request("POST", "/v1/topics", 413, content=b'{"name":"' + b"x" * (5 << 20) + b'"}')
    assert reply["error"] == "INVALID_REQUEST"


async def test_policy_violation(judged: Service) -> None:
    refused = await judged.create("t", 403)
    assert (refused["error"], refused["code"]) == ("POLICY_VIOLATION", 44)
    assert (refused["message"], refused["rule"]) == ("t has no owner", "policy:tests.Owned/owner")
    await judged.request("POST", "/v1/topics?validate_only=true", 403, json={"name": "t"})
    await judged.create("pay.t", num_partitions=1)
    noted = (await judged.get("/v1/topics/pay.t"))["policy"]
    assert noted["outcome"] == "allowed"
    assert noted["observed"] == [{"rule": "policy:tests.Owned/size", "message": "one partition is few"}]
    row = (await judged.get(f"/v1/requests/{refused['request_id']}"))["topics"][0]
    assert row["policy"]["outcome"] == "refused"


async def test_a_denied_create_is_refused_and_recorded() -> None:
    async with service(authorizer=Rules(lambda *_: False)) as one:
        reply = await one.create("t", 403)
        assert reply["error"] == "TOPIC_AUTHORIZATION_FAILED"
        request = await one.get(f"/v1/requests/{reply['request_id']}")
        assert request["topics"][0]["rule"] == reply["rule"] == "authorizer"
        reply = await one.request("DELETE", "/v1/topics/t", 403)
        assert reply["error"] == "TOPIC_AUTHORIZATION_FAILED"


async def test_a_deleted_topic_retains_its_history(one: Service) -> None:
    made = await one.create("t")
    gone = await one.request("DELETE", "/v1/topics/t")
    assert (gone["error"], gone["topic_id"]) == ("NONE", made["topic_id"])
    reply = await one.get("/v1/topics/t", 404)
    assert "it was deleted at offset" in reply["message"]
    events = (await one.get("/v1/events?topic=t"))["events"]
    assert [event["type"] for event in events][-1] == "TopicDeleted"
    assert events[-1]["fields"]["request"] == {
        "api": "HTTP",
        "api_version": events[-1]["fields"]["request"]["api_version"],
        "change": {"kind": "deletion", "topic_id": None},
        "duplicate": False,
        "denied": 0,
        "host": "127.0.0.1",
        "elsewhere": [],
    }
    await one.request("DELETE", "/v1/topics/t", 404)


async def test_a_full_disk_rejects_writes_allows_reads_and_fails_readiness() -> None:
    disk = Disk(random.Random(1))
    disk.sync_s = (0.0, 0.0)
    async with service(log=FaultyLog(disk)) as one:
        await one.create("before")
        disk.full = True
        reply = await one.create("t", 503)
        assert reply["error"] == "KAFKA_STORAGE_ERROR"
        assert (await one.create("u", 503))["error"] == "KAFKA_STORAGE_ERROR"
        unready = await one.get("/health/ready", 503)
        assert unready["status"] == "not ready"
        assert "no room" in unready["reason"]
        await one.get("/health/live")
        assert (await one.get("/v1/topics/before"))["status"] == "ready"
        await one.get("/v1/topics/t", 404)
        disk.full = False
        await one.until(lambda: one.controller.storage_error is None)
        await one.get("/health/ready")
        await one.live(1, 2, 3)
        await one.create("t")


async def test_a_log_that_cannot_be_read_rejects_queries() -> None:
    disk = Disk(random.Random(1))
    disk.sync_s = (0.0, 0.0)
    disk.dark = True
    async with service(log=FaultyLog(disk)) as one:
        await one.create("before")
        disk.full = True
        await one.create("t", 503)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(one.log, "_dark", True)
            reply = await one.get("/v1/events", 503)
        assert reply["error"] == "KAFKA_STORAGE_ERROR"
        disk.full = False
        await one.until(lambda: one.controller.storage_error is None)


async def test_a_failed_controller_fails_readiness(one: Service) -> None:
    one.controller.background(_raise())
    await one.controller.failed.wait()
    reply = await one.get("/health/ready", 503)
    assert reply["reason"] == "this process has failed and decides nothing: a bug"
    with structlog.testing.capture_logs() as lines:
        assert (await one.create("t", 500))["error"] == "UNKNOWN_SERVER_ERROR"
    assert "http request failed" not in [line["event"] for line in lines], "the cause is logged once, where it is"


async def _raise() -> None:
    raise AssertionError("a bug")


async def test_a_waiting_create_gets_503_with_its_request_id_on_stop(one: Service) -> None:
    await one.request("PUT", "/v1/simulated/brokers/3/delay", json={"delay_ms": 60_000})
    waiting = asyncio.create_task(one.create("t", 503, timeout_ms=60_000))
    await one.until(lambda: one.api.store.durable_counts.topics == 1)
    await one.http.stop()
    reply = await waiting
    assert reply["error"] == "REQUEST_TIMED_OUT"
    assert "the service is stopping; request boot-" in reply["message"]


async def test_a_cross_site_origin_header_is_rejected_for_writes(one: Service) -> None:
    stop = "/v1/simulated/brokers/1/stop"
    for method, path in (("POST", "/v1/topics"), ("DELETE", "/v1/topics/t"), ("POST", stop)):
        await one.request(method, path, 403, headers={"Origin": "http://["})
        reply = await one.request(method, path, 403, headers={"Origin": "http://elsewhere.example"})
        assert reply["message"] == "requests from pages of http://elsewhere.example may not change anything here"
    own = {"Origin": f"http://127.0.0.1:{one.port}"}
    two = [*own.items(), ("Origin", "http://elsewhere.example")]
    await one.request("POST", "/v1/topics", 403, json={"name": "t"}, headers=two)
    await one.request("POST", "/v1/topics", 201, json={"name": "t"}, headers=own)
    assert tuple(one.api.cluster.live) == (1, 2, 3)


def test_queries_page_documents_the_http_status_of_every_error() -> None:
    page = (Path(__file__).parents[2] / "docs" / "queries.md").read_text()
    rows = {line.split("|")[1].strip(): line for line in page.splitlines() if re.match(r"\| \d{3} \|", line)}
    for code, status in (*STATUS_OF.items(), *((code, status) for _, status, code, _ in KNOWN)):
        if code != ErrorCode.NONE:
            name = ErrorCode(code).name
            assert name in rows[str(status)], f"{name} is answered {status}"
