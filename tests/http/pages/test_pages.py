"""Pages over HTTP: what they show is what the JSON shows, to whom it shows it, and nothing in it acts."""

from __future__ import annotations

import re
from urllib.parse import quote, urlsplit

import pytest

from controller.http.pages.frame import ADDRESSES, Frame
from controller.http.pages.site import cleaned
from projections.views.view import AsOfView
from tests.http.pages.story import CLIENT, HOSTILE, HTML, LONG, Read, page, story, text_of
from tests.http.service import Service

PAGES = (
    "/",
    "/topics",
    "/topics/pay.orders",
    f"/topics/{LONG}",
    "/requests",
    "/brokers",
    "/brokers/2",
    "/quorum",
    "/events",
    "/policies",
    "/diff",
    "/diff?from=10",
    "/explain/pay.orders",
)
NO_TOPICS = (*HOSTILE, "orphan", "web.huge", "pay.gone")
ACTS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@pytest.mark.parametrize(
    ("query", "clean"),
    [
        ("", None),
        ("name=a&at=5", None),
        ("name=&status=ready", "status=ready"),
        ("name=", ""),
        ("at=7&at_ms=1784282400000", "at=2026-07-17T10%3A00%3A00.000Z"),
        ("name=a%26b&at_ms=", "name=a%26b"),
        ("at_ms=soon", "at=soonms"),
        ("at_ms=999999999999999999", "at=999999999999999999ms"),
    ],
)
def test_page_addresses_have_no_empty_parameters(query: str, clean: str | None) -> None:
    assert cleaned(query) == clean


async def test_json_is_under_v1_and_pages_are_everywhere_else(one: Service) -> None:
    await one.create("t")
    for path in ("/topics", "/topics/t", "/brokers", "/requests", "/policies", "/topics/t/configs"):
        answer = await one.client.get(path)
        assert answer.headers["content-type"].startswith("text/html"), path
        assert isinstance(await one.get(f"/v1{path}"), dict)
    for path in ("/openapi.json", "/health/ready", "/v1/log/head", "/v1/topics", "/v1/none"):
        assert "json" in (await one.client.get(path, headers=HTML)).headers["content-type"], path
    sent_on = await one.client.get("/topics?name=&status=ready", headers=HTML)
    assert (sent_on.status_code, sent_on.headers["location"]) == (303, "/topics?status=ready")
    elsewhere = await one.client.get(f"http://127.0.0.1:{one.port}//evil.example/?x=", headers=HTML)
    assert elsewhere.headers["location"] == "/evil.example/"
    assert (await one.client.head("/topics", headers=HTML)).content == b""


async def test_pages_show_what_the_json_shows() -> None:
    async with story() as one:
        topic = await one.get("/v1/topics/pay.orders")
        shown = text_of(await page(one, "/topics/pay.orders"))
        for word in (
            topic["topic_id"],
            topic["created_at"],
            topic["created_by"]["principal"],
            "under-replicated (8 of 8)",
        ):
            assert word in shown, word
        request = await one.get(f"/v1/requests/{topic['created_by']['request_id']}")
        shown = text_of(await page(one, f"/requests/{request['request_id']}"))
        for word in (request["client_id"], request["host"], request["topics"][0]["change"], "answered"):
            assert word in shown, word
        summary = await one.get("/v1/summary")
        shown = text_of(await page(one, "/"))
        for each in (*summary["refused"], {"rule": summary["newest"][0]["request_id"]}):
            assert each["rule"] in shown, each
        assert "Fenced brokers" in shown
        shown = text_of(await page(one, "/quorum"))
        for word in (
            "node 3001 leads",
            "epoch 4",
            "3000, follower",
            "12,345",
            "quorum --bootstrap-controller 10.0.0.1:9093",
        ):
            assert word in shown, word
        broker = await one.get("/v1/brokers/2")
        assert broker["reason"] in text_of(await page(one, "/brokers/2"))
        assert "retention.ms : 86400000 → 3600000" in text_of(
            await page(one, f"/diff?from={request['requested_offset'] + 6}")
        )
        policies = text_of(await page(one, "/policies"))
        for word in ("owner enforced", "size observed", "names need an owner", "User:ANONYMOUS : 1"):
            assert word in policies, word


async def test_every_page_is_safe_whole_and_needs_no_script() -> None:
    async with story() as one:
        requests = (await one.get("/v1/requests", limit=1000))["requests"]
        paths = [*PAGES, *(f"/requests/{quote(each['request_id'])}" for each in requests if each["host"])]
        for path in paths:
            answer = await one.client.get(path, headers=HTML)
            assert answer.status_code == 200, f"{path}: {answer.text}"
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert ACTS.search(answer.text) is None, path
            found = Read(answer.text)
            assert [attrs["src"] for attrs in found.of("script")] == [ADDRESSES["page.js"]], path
            assert {attrs["src"] for attrs in found.of("img")} == {ADDRESSES["page.svg"]}, path
            assert not any(name.startswith("on") or name == "style" for _, each in found.elements for name in each), (
                path
            )
            assert all(urlsplit(link).scheme == urlsplit(link).netloc == "" for link in found.links), path
            ids = [attrs["id"] for _, attrs in found.elements if "id" in attrs]
            assert len(ids) == len(set(ids)), path
        everything = "".join([await page(one, path) for path in paths])
        assert "&lt;script&gt;window.hacked" in everything
        assert "&lt;img src=x onerror" in everything
        assert "\\u202egnp.exe\\u2066" in everything
        assert "line\\nbreak\\x1b[2J" in everything
        assert "{{ 7 * 7 }}" in everything
        assert CLIENT not in everything
        assert LONG in everything
        assert len(HOSTILE) == len([each for each in requests if each["client_id"] == CLIENT])


async def test_links_lead_somewhere() -> None:
    async with story() as one:
        links = {link.partition("#")[0] for path in PAGES for link in Read(await page(one, path)).links}
        for link in sorted(links):
            if link.startswith("/"):
                answer = await one.client.get(link, headers=HTML)
                gone = any(link.startswith(f"/topics/{quote(name, safe='')}") for name in NO_TOPICS)
                assert answer.status_code == (404 if gone else 200), f"{link}: {text_of(answer.text)}"


BAD_INPUT = (
    ("/topics?at=99999999", 400, "at: offset 99999999 is not reached yet: the newest event is at offset"),
    ("/topics?at=soon", 400, "is not a valid point in time"),
    ("/topics?att=5", 400, "att: unknown query parameter; allowed are at, cursor, limit, name, order"),
    ("/topics?at=1&at=2", 400, "at: given more than once"),
    ("/topics?limit=5000", 400, "limit:"),
    ("/topics?status=well", 400, "status:"),
    ("/topics?cursor=rubbish", 200, ""),
    ("/topics?order=newest&cursor=rubbish", 400, "cursor"),
    ("/topics/" + "n" * 300, 404, "was ever created"),
    ("/topics/pay.orders?partition=99999", 200, "7"),
    ("/topics/pay.orders?partition=-1", 400, "partition:"),
    ("/requests/none", 404, "no request 'none' is in the log"),
    ("/brokers/77", 404, "there is no broker 77"),
    ("/brokers/x", 404, "unknown path"),
    ("/no/such/page", 404, "unknown path"),
    ("/events?type=Nothing", 400, "type:"),
    ("/diff?from=", 200, "Give the earlier point in time"),
    ("/diff?from=soon", 400, "is not a valid point in time"),
    ("/explain/nothing", 404, "no topic and no request 'nothing' is in the log"),
    ("/topics?at=1970-01-01", 200, "before the first event"),
    ("/?at=1970-01-01", 200, "Nothing was refused"),
    ("/quorum?at=5", 400, "at: unknown query parameter; this path takes none"),
    ("/?at=2999-01-01", 200, "As of 2999-01-01"),
)
"""A path, the status of its page, and words of it."""


async def test_bad_input_is_answered_with_what_is_allowed() -> None:
    async with story() as one:
        for path, status, words in BAD_INPUT:
            shown = text_of(await page(one, path, status))
            assert words in shown, f"{path}: {shown}"


def test_pages_of_a_log_in_partitions_lead_to_times_where_offsets_say_nothing() -> None:
    as_of = AsOfView(7, "2026-07-17T10:00:00.000Z", 1784282400000, partition=3)
    frame = Frame(
        path="/topics/t",
        query={"at": "7"},
        at="7",
        principal="",
        token="",
        density=None,
        has_partitions=True,
        as_of=as_of,
    )
    assert frame.link("topics") == "/topics?at=2026-07-17T10%3A00%3A00.000Z"
    assert frame.here(partition=100) == "?at=7&partition=100"
    assert frame.then(5, "2026-07-17T09:00:00.000Z") == "?at=2026-07-17T09%3A00%3A00.000Z"
    assert (
        frame.link("topics", "a/../<b>", rule="x&y")
        == "/topics/a%2F..%2F%3Cb%3E?at=2026-07-17T10%3A00%3A00.000Z&rule=x%26y"
    )
