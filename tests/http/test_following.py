"""Following events over HTTP: each event is sent as soon as it is durable."""

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import pytest

from controller.http import following
from controller.http.gate import Hosts
from tests.http.service import Rules, Service, followers, service


async def _lines(one: Service, count: int, **parameters: Any) -> list[Any]:
    async with one.client.stream("GET", "/v1/events/follow", params=parameters) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("application/x-ndjson")
        lines = []
        async for line in answer.aiter_lines():
            if line:
                lines.append(json.loads(line))
            if len(lines) == count:
                break
        return lines


async def test_follow_streams_events_as_they_become_durable(one: Service) -> None:
    end = one.log.durable_offset
    from_the_start = asyncio.create_task(_lines(one, end + 5, **{"from": 0}))
    of_topic = asyncio.create_task(_lines(one, 2, topic="t"))
    await one.until(lambda: followers(one) == 2)
    made = await one.create("u", num_partitions=1)
    of_request = asyncio.create_task(_lines(one, 3, request=made["request_id"], **{"from": 0}))
    await one.create("t", num_partitions=1)
    assert [event["offset"] for event in await from_the_start] == list(range(end + 5))
    assert [event["type"] for event in await of_topic] == ["CreateRequested", "TopicCreated"]
    assert {event["fields"]["topic"] for event in await of_request} == {"u"}
    await one.until(lambda: followers(one) == 0)


@pytest.mark.parametrize(("accept", "heartbeat"), [("*/*", b"\n"), ("text/event-stream", b":\n\n")])
async def test_heartbeats_of_followers(accept: str, heartbeat: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "HEARTBEAT_S", 0.05)
    headers = {"accept": accept}
    async with service() as one, one.client.stream("GET", "/v1/events/follow", headers=headers) as answer:
        chunks = answer.aiter_bytes()
        assert await anext(chunks) == heartbeat
        await one.http.stop()
        assert b"".join([chunk async for chunk in chunks]).replace(heartbeat, b"") == b"", "the chunks end properly"


async def test_a_revoked_permission_ends_the_follow_stream() -> None:
    allowed = True
    async with (
        service(authorizer=Rules(lambda *_: allowed)) as one,
        one.client.stream("GET", "/v1/events/follow") as answer,
    ):
        await one.until(lambda: followers(one) == 1)
        allowed = False
        await one.create("t", 403)
        async with asyncio.timeout(60):
            assert b"".join([chunk async for chunk in answer.aiter_bytes()]).strip() == b""


async def test_the_number_of_follow_streams_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "FOLLOWERS_MAX", 1)
    async with service() as one, one.client.stream("GET", "/v1/events/follow"):
        await one.until(lambda: followers(one) == 1)
        reply = await one.get("/v1/events/follow", 503)
        assert reply["message"] == "too many clients follow the events: 1"


async def test_follow_streams_are_limited_per_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "FOLLOWERS_PER_HOST_MAX", 1)
    async with service() as one, AsyncExitStack() as held:
        hosts = Hosts(proxies=("127.0.0.1",))
        other, port = await held.enter_async_context(one.another(hosts=hosts))
        base, listening = f"http://127.0.0.1:{port}", other.followers
        for number in (1, 2):
            host = {"X-Forwarded-For": f"10.0.0.{number}"}
            first = await held.enter_async_context(one.client.stream("GET", f"{base}/v1/events/follow", headers=host))
            assert first.status_code == 200
            await one.until(lambda: len(listening) == number)  # noqa: B023 - waited for within the turn
            async with one.client.stream("GET", f"{base}/v1/events/follow", headers=host) as second:
                assert second.status_code == 503
        await other.stop()
        await one.until(lambda: not listening._by_host)


async def _sent(one: Service, count: int, path: str, **headers: str) -> tuple[list[Any], str]:
    """Returns `count` server-sent events, and the last id."""
    found, last = [], ""
    headers = {"accept": "text/event-stream", **headers}
    async with one.client.stream("GET", path, headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        async for line in answer.aiter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                last = value
            elif name == "data":
                found.append(json.loads(value))
            if len(found) == count:
                return found, last
    return found, last


async def test_server_sent_events_resume_at_last_event_id(one: Service) -> None:
    await one.create("t")
    await one.create("u")
    everything = (await one.get("/v1/events"))["events"]
    first, last = await _sent(one, len(everything), "/v1/events/follow?from=0")
    assert first == everything
    assert last == str(len(everything))
    rest = asyncio.create_task(_sent(one, 2, "/v1/events/follow?from=0", **{"last-event-id": last}))
    await one.until(lambda: followers(one) == 1)
    await one.create("v")
    assert [event["fields"]["topic"] for event in (await rest)[0]] == ["v", "v"]
    wrong = await one.client.get(
        "/v1/events/follow", headers={"accept": "text/event-stream", "last-event-id": "x" * 5000}
    )
    assert (wrong.status_code, wrong.json()["error"]) == (400, "INVALID_REQUEST")
