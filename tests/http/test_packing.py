"""Answers that clients can keep, and short ones; errors in the form of RFC 9457; HEAD."""

from __future__ import annotations

import gzip

import httpx

from tests.http.service import Service


async def _raw(one: Service, path: str, **headers: str) -> tuple[httpx.Response, bytes]:
    """An answer, and its body as it came over the wire."""
    async with one.client.stream("GET", path, headers={"accept-encoding": "identity", **headers}) as answer:
        return answer, b"".join([part async for part in answer.aiter_raw()])


async def test_what_a_client_has_already_is_not_sent_again(one: Service) -> None:
    await one.create("t")
    for path in ("/v1/topics", "/v1/topics/t", "/v1/topics/t", "/v1/requests", "/v1/summary", "/v1/events"):
        answer, body = await _raw(one, path)
        assert (answer.status_code, bool(body)) == (200, True)
        assert answer.headers["cache-control"] == "private, no-cache"
        for known in (answer.headers["etag"], f'"other", W/{answer.headers["etag"]}', "*"):
            again, nothing = await _raw(one, path, **{"if-none-match": known})
            assert (again.status_code, nothing) == (304, b""), f"{path} {known}"
            assert again.headers["etag"] == answer.headers["etag"]
        assert (await _raw(one, path, **{"if-none-match": '"other"'}))[0].status_code == 200
    before = (await _raw(one, "/v1/topics"))[0].headers["etag"]
    await one.create("u")
    changed, _ = await _raw(one, "/v1/topics", **{"if-none-match": before})
    assert changed.status_code == 200


async def test_an_answer_as_of_an_offset_stays_the_same_and_is_validated_for_permissions_change(one: Service) -> None:
    await one.create("t")
    offset = one.log.durable_offset - 1
    paths = ("/v1/topics/t", "/v1/topics", "/v1/brokers", "/v1/summary", "/v1/explain/t", "/v1/events")
    for number, path in enumerate(paths):
        answer, body = await _raw(one, f"{path}?at={offset}")
        assert answer.headers["cache-control"] == "private, no-cache", path
        await one.create(f"later{number}")
        assert await _same(one, f"{path}?at={offset}", body), path
    wrong, _ = await _raw(one, "/v1/topics?at=99999")
    assert (wrong.status_code, wrong.headers["cache-control"]) == (400, "no-store")


async def _same(one: Service, path: str, body: bytes) -> bool:
    return (await _raw(one, path))[1] == body


async def test_long_answers_are_short_for_who_can_unpack_them(one: Service) -> None:
    await one.create("t", num_partitions=100)
    plain, body = await _raw(one, "/v1/topics/t")
    zipped, packed = await _raw(one, "/v1/topics/t", **{"accept-encoding": "br, gzip"})
    assert "content-encoding" not in plain.headers
    assert zipped.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed) == body
    assert len(packed) < len(body) / 4
    assert zipped.headers["etag"] != plain.headers["etag"], "other bytes"
    assert "accept-encoding" in zipped.headers["vary"]
    short, _ = await _raw(one, "/v1/topics?limit=1&name=none", **{"accept-encoding": "gzip"})
    assert "content-encoding" not in short.headers
    refused, _ = await _raw(one, "/v1/topics/t", **{"accept-encoding": "gzip;q=0"})
    assert "content-encoding" not in refused.headers


async def test_head_is_get_without_the_body(one: Service) -> None:
    await one.create("t")
    for path, status in (
        ("/v1/topics/t", 200),
        ("/v1/topics/none", 404),
        ("/health/ready", 200),
        ("/metrics", 200),
    ):
        head = await one.client.head(path)
        answer = await one.client.get(path)
        assert (head.status_code, head.content) == (status, b""), path
        assert head.headers["content-type"] == answer.headers["content-type"]
    for path in ("/v1/events/follow", "/v1/events/follow/", "/v1/events//follow", "//v1//events///follow//"):
        follow = await one.client.head(path)
        assert (follow.status_code, follow.headers["allow"]) == (405, "GET"), path


async def test_an_error_is_a_problem_of_the_form_that_others_read(one: Service) -> None:
    made = await one.create("t")
    answer = await one.client.post("/v1/topics", json={"name": "t"})
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem == {
        "type": "urn:kafka:error:TOPIC_ALREADY_EXISTS",
        "title": "Topic already exists",
        "status": 409,
        "detail": problem["message"],
        "instance": f"/v1/requests/{problem['request_id']}",
        "error": "TOPIC_ALREADY_EXISTS",
        "code": 36,
        "message": problem["message"],
        "request_id": problem["request_id"],
        "rule": "validation:exists",
    }
    assert problem["message"].startswith("Topic 't' already exists.")
    assert made["request_id"] != problem["request_id"]
    assert (await one.get(problem["instance"]))["request_id"] == problem["request_id"]
    early = await one.client.get("/v1/topics", headers={"host": "evil.example"})
    assert (early.status_code, early.headers["content-type"]) == (421, "application/problem+json")
    assert (early.json()["status"], early.json()["instance"]) == (421, "")
