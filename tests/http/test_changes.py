"""Idempotency-Key: a repeated request is executed once and gets the first response."""

import asyncio
from typing import Any

from controller.http.changes import request_id_of
from tests.http.service import POLICY, Judge, Service, owned, service
from tests.support.memory_log import InMemoryLog


def _key(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key}


async def _post(one: Service, key: str, expect: int, **body: Any) -> Any:
    return await one.request("POST", "/v1/topics", expect, json=body, headers=_key(key))


async def _patch(one: Service, key: str, expect: int, name: str = "t", **body: Any) -> Any:
    return await one.request("PATCH", f"/v1/topics/{name}", expect, json=body, headers=_key(key))


async def test_an_idempotency_key_is_remembered_across_a_restart() -> None:
    log = InMemoryLog("once")
    async with service(log) as one:
        sent = [await _post(one, "k", 201, name="t", configs={"retention.ms": 5}) for _ in range(2)]
        body = {"name": "t", "configs": {"retention.ms": "5"}}
        answer = await one.client.post("/v1/topics", json=body, headers=_key("k"))
        assert answer.headers["location"] == "/v1/topics/t"
        (listed,) = (await one.get("/v1/requests"))["requests"]
        assert sent[0]["request_id"] == listed["request_id"] == request_id_of("User:ANONYMOUS", "k")
        await one.request("DELETE", "/v1/topics/t")
    async with service(log) as one:
        sent.append(await _post(one, '"k"', 201, name="t", configs={"retention.ms": 5}, timeout_ms=7))
        assert sent == [sent[0]] * 3
        await one.get("/v1/topics/t", 404)


async def test_an_idempotency_key_belongs_to_one_body_and_one_principal() -> None:
    async with service() as one:
        made = await _post(one, "k", 201, name="t")
        for body in ({"name": "u"}, {"name": "t", "num_partitions": 2}, {"name": "t", "configs": {"retention.ms": 5}}):
            reply = await _post(one, "k", 422, **body)
            assert (reply["error"], reply["request_id"]) == ("INVALID_REQUEST", made["request_id"]), body
            assert "was used for a different change" in reply["message"]
        await one.request("DELETE", "/v1/topics/t", 422, headers=_key("k"))
        await _patch(one, "k", 422, num_partitions=5)
        await _post(one, "other", 409, name="t")
    ids = {request_id_of(*both) for both in (("User:a", "k"), ("User:b", "k"), ("User:a", "l"), ("User:ak", ""))}
    assert len(ids) == 4


async def test_idempotency_key_of_a_refusal(judged: Service) -> None:
    replies = [await _post(judged, "k", 403, name="t") for _ in range(2)]
    assert replies[0] == replies[1]
    assert replies[0]["rule"] == "policy:tests.Owned/owner"
    (listed,) = (await judged.get("/v1/requests"))["requests"]
    assert listed["requested_offset"] + 3 == judged.log.durable_offset, "the request was decided once"


async def test_retried_patches_and_deletions_apply_once(one: Service) -> None:
    await one.create("t", num_partitions=2)
    grown = await _patch(one, "grow", 200, num_partitions=3)
    altered = await _patch(one, "alter", 200, configs={"retention.ms": 5})
    gone = await one.request("DELETE", "/v1/topics/t", headers=_key("gone"))
    again = await one.create("t", num_partitions=1)
    end = one.log.durable_offset
    assert await _patch(one, "grow", 200, num_partitions=3) == grown
    assert await _patch(one, "alter", 200, configs={"retention.ms": 5}) == altered
    assert await one.request("DELETE", "/v1/topics/t", headers=_key("gone")) == gone
    shown = await one.get("/v1/topics/t")
    assert (shown["topic_id"], shown["num_partitions"], shown["configs"]) == (again["topic_id"], 1, {})
    assert one.log.durable_offset == end


async def test_a_retry_of_a_timed_out_create_gets_the_same_202(one: Service) -> None:
    one.brokers.set_delay(3, 60_000)
    late = await _post(one, "k", 202, name="t", timeout_ms=20)
    one.brokers.set_delay(3, 0)
    assert await _post(one, "k", 202, name="t") == late


async def test_idempotency_key_in_progress() -> None:
    judge = Judge(owned)
    log = InMemoryLog("at-work")
    async with service(log, settings=POLICY, judge=judge) as one:
        judge.may_answer.clear()
        first = asyncio.create_task(_post(one, "k", 201, name="pay.t"))
        await one.until(lambda: bool(one.controller.status().requests_open))
        assert "is in progress" in (await _post(one, "k", 409, name="pay.t"))["message"]
        judge.may_answer.set()
        made = await first
        assert await _post(one, "k", 201, name="pay.t") == made
        one.brokers.set_delay(3, 60_000)
        waiting = asyncio.create_task(_post(one, "left", 503, name="pay.u"))
        await one.until(lambda: one.api.topic("pay.u") is not None)
        await one.http.stop()
        await waiting
    async with service(log, settings=POLICY, judge=judge) as one:
        one.brokers.set_delay(3, 60_000)
        await _post(one, "left", 201, name="pay.u")


async def _post_and_go(one: Service, **body: Any) -> None:
    """Send a create with the key `k`, and disconnect before the response."""
    first = asyncio.create_task(_post(one, "k", 201, **body))
    await one.until(lambda: bool(one.controller.status().requests_open))
    first.cancel()
    connected = one.http._listener._open
    await one.until(lambda: not connected)


async def test_idempotency_key_after_disconnect(judged: Service, judge: Judge) -> None:
    judge.may_answer.clear()
    await _post_and_go(judged, name="pay.t")
    assert "is in progress" in (await _post(judged, "k", 409, name="pay.t"))["message"]
    judge.may_answer.set()
    await judged.until(lambda: not judged.controller.status().requests_open)
    await _post(judged, "k", 201, name="pay.t")


async def test_idempotency_key_after_timeout_and_disconnect(judged: Service, judge: Judge) -> None:
    judge.may_answer.clear()
    await _post_and_go(judged, name="pay.t", timeout_ms=20)
    await judged.until(lambda: not judged.controller.status().requests_open)
    again = asyncio.create_task(_post(judged, "k", 409, name="pay.t"))
    await judged.until(lambda: bool(judged.controller.status().requests_open))
    judge.may_answer.set()
    assert (await again)["request_id"] == f"{request_id_of('User:ANONYMOUS', 'k')}-2"


async def test_idempotency_key_after_timeout(judged: Service, judge: Judge) -> None:
    judge.may_answer.clear()
    late = await _post(judged, "k", 504, name="pay.t", timeout_ms=20)
    again = asyncio.create_task(_post(judged, "k", 409, name="pay.t"))
    await judged.until(lambda: bool(judged.controller.status().requests_open))
    judge.may_answer.set()
    reply = await again
    assert reply["error"] == "TOPIC_ALREADY_EXISTS"
    assert reply["request_id"] == f"{late['request_id']}-2"
    made = await _post(judged, "k", 202, name="pay.t")
    assert made["request_id"] == late["request_id"] == request_id_of("User:ANONYMOUS", "k")


async def test_a_dry_run_does_not_use_the_idempotency_key(one: Service) -> None:
    for _ in range(2):
        await one.request("POST", "/v1/topics?validate_only=true", 200, json={"name": "t"}, headers=_key("k"))
    await _post(one, "k", 201, name="t")
    await one.request("POST", "/v1/topics?validate_only=true", 409, json={"name": "t"}, headers=_key("k"))


async def test_an_invalid_idempotency_key_is_rejected(one: Service) -> None:
    for key in ("", '""', "x" * 256, "a\tb", '"a"b"', "ä".encode()):
        headers: list[tuple[Any, Any]] = [(b"Idempotency-Key", key)]
        reply = await one.request("POST", "/v1/topics", 400, json={"name": "t"}, headers=headers)
        assert reply["message"].startswith("Idempotency-Key: give it once, as 1 to 255 printable ASCII"), key
    headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    await one.request("POST", "/v1/topics", 400, json={"name": "t"}, headers=headers)
    await one.get("/v1/topics/t", 404)
    await _post(one, '"a\\\\\\"b"', 201, name="t")
    await _post(one, 'a\\"b', 201, name="t")
