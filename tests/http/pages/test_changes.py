"""Forms: what they change, for whom, and what keeps others from sending them."""

from __future__ import annotations

import pytest

from controller.access.users import Users
from controller.http.errors import Refused
from controller.http.requests import HALF_DAY_MS, FormTokens
from tests.http.pages.story import HTML, Read, page, send, text_of
from tests.http.service import POLICY, Judge, Service, owned, service
from tests.http.test_gate import basic, logins
from tests.http.test_permissions import Half


async def test_a_create_is_tried_then_done() -> None:
    async with service(settings=POLICY, judge=Judge(owned)) as one:
        fields = {
            "name": "pay.new",
            "num_partitions": "4",
            "replication_factor": "",
            "configs": "retention.ms = 5\r\n\r\n",
        }
        assert "No topics yet." in text_of(await page(one, "/topics"))
        tried = text_of((await send(one, "/topics", 200, **fields, do="dry-run")).text)
        assert "It would be created: 4 partitions, factor 3" in tried
        assert "topicwright topic create pay.new --partitions 4 --config retention.ms=5 --dry-run" in tried
        await one.get("/v1/topics/pay.new", 404)
        done = await send(one, "/topics", 303, **fields, do="create")
        assert done.headers["location"].startswith("/requests/")
        made = await one.get("/v1/topics/pay.new")
        assert (made["num_partitions"], made["configs"]) == (4, {"retention.ms": "5"})
        again = text_of((await send(one, "/topics", 409, **fields, do="create")).text)
        assert "It was refused: TOPIC_ALREADY_EXISTS" in again
        refused = text_of((await send(one, "/topics", 200, name="orphan", do="dry-run")).text)
        assert "It would be refused: POLICY_VIOLATION orphan has no owner" in refused
        assert "policy:tests.Owned/owner" in refused


WRONG: tuple[tuple[dict[str, str], str], ...] = (
    ({"num_partitions": "many"}, "num_partitions: Expected `int`, got `str`"),
    ({"num_partitions": "99999999999"}, "num_partitions: Expected `int` <= 2147483647"),
    ({"configs": "retention.ms"}, "configs: line 1 is not name=value"),
    ({"configs": "a=1\na=2"}, "configs: a is given twice, again in line 2"),
    ({"configs": "no.such=1"}, "INVALID_CONFIG"),
    ({"name": "<b>"}, "INVALID_TOPIC_EXCEPTION"),
)


async def test_a_form_says_what_is_wrong_and_keeps_what_was_filled_in(one: Service) -> None:
    for fields, words in WRONG:
        given = {"name": "t", "num_partitions": "", "configs": "", **fields}
        found = Read((await send(one, "/topics", 200, **given, do="dry-run")).text)
        assert words in found.text
        kept = {attrs["name"]: attrs["value"] for attrs in found.of("input") if attrs.get("name") in given}
        assert all(given[str(name)] == value for name, value in kept.items())
    assert "Dry run of t" in (await send(one, "/topics", 200, name="t")).text, "what is not filled in is empty"


async def test_a_topic_is_grown_changed_and_deleted(one: Service) -> None:
    await one.create("t", configs={"retention.ms": "5"})
    assert (await send(one, "/topics/t", do="grow", num_partitions="5")).headers["location"] == "/topics/t"
    await send(one, "/topics/t", do="configs", configs="retention.ms=\nmin.insync.replicas=2")
    shown = await one.get("/v1/topics/t")
    assert (shown["num_partitions"], shown["configs"]) == (5, {"min.insync.replicas": "2"})
    for fields, status, words in (
        ({"do": "grow", "num_partitions": "2"}, 400, "Invalid partitions"),
        ({"do": "grow", "num_partitions": ""}, 400, "num_partitions: Expected `int`"),
        ({"do": "configs", "configs": " "}, 400, "body: give either configs or num_partitions"),
        ({"do": "delete", "typed": "T"}, 400, "to delete the topic, type its name 't'"),
        ({"do": "configs", "configs": "retention.ms=5 days"}, 400, "Invalid config"),
        ({"do": "polish"}, 400, "do: 'polish' is not grow, configs or delete"),
    ):
        refused = await send(one, "/topics/t", status, **fields)
        assert {"Partitions", "Configs", "Change"} <= set(Read(refused.text).words), "the page of the topic"
        assert fields.get("configs", "").strip() in refused.text
        assert f'name="num_partitions" value="{fields.get("num_partitions", "")}"' in refused.text
        assert words.replace("_", " ").lower() in refused.text.replace("_", " ").lower().replace("&#39;", "'"), fields
    gone = await send(one, "/topics/t", do="delete", typed="t")
    assert "deleted" in text_of(await page(one, gone.headers["location"]))
    await one.get("/v1/topics/t", 404)


async def test_a_form_needs_a_token_of_the_page_and_comes_from_it(one: Service) -> None:
    for token in ("", "x" * 40, "ü"):
        refused = await send(one, "/topics", 403, token=token, name="t", do="create")
        assert "reload the page" in refused.text
    token = Read(await page(one, "/policies")).token
    fields = {"token": token, "name": "t", "do": "create"}
    other = {**HTML, "origin": "https://evil.example"}
    assert (await one.client.post("/topics", data=fields, headers=other)).status_code == 403
    for body in (b"token", b"a=%ff", b"&".join(b"f%d=1" % number for number in range(30)), b"do=a&do=b"):
        answer = await one.client.post("/topics", content=body, headers=HTML)
        assert answer.status_code == 400, body
        assert "body:" in answer.text
    large = b"a=" + b"%41" * 25_000
    answer = await one.client.post("/topics", content=large, headers=HTML)
    assert (answer.status_code, "at most 65536 bytes" in answer.text) == (413, True)
    await one.get("/v1/topics/t", 404)
    assert (await one.get("/v1/requests"))["requests"] == []


def test_a_token_is_one_principals_and_ends() -> None:
    tokens, now = FormTokens(), 10 * HALF_DAY_MS + 5
    token = tokens.of("User:a", now)
    tokens.check(token, "User:a", now + HALF_DAY_MS)
    for principal, later in (("User:b", 0), ("User:a", 2 * HALF_DAY_MS)):
        with pytest.raises(Refused):
            tokens.check(token, principal, now + later)
    with pytest.raises(Refused):
        FormTokens().check(token, "User:a", now)


async def test_who_may_see_little_is_shown_that_and_it_is_said(users: Users) -> None:
    async with service(authorizer=Half(), logins=logins(users)) as one:
        assert (await one.client.get("/", headers=HTML)).status_code == 401
        one.client.headers["authorization"] = basic("carol", "carol-PLANTED")
        for name in ("open.one", "secret"):
            await one.create(name)
        refusals = len((await one.get("/v1/requests"))["requests"])
        first = text_of(await page(one, "/"))
        assert "User:carol" in first
        assert "this user needs Describe" in first
        listed = text_of(await page(one, "/topics"))
        assert "open.one" in listed
        assert "secret" not in listed
        assert "Topics that you may not describe are left out" in listed
        topic = await page(one, "/topics/open.one")
        assert "To see configs, this user needs DescribeConfigs" in topic
        assert "Partitions, now" not in topic, "no form for what is not allowed"
        assert "Delete this topic" in topic
        assert "at_ms" not in topic, "when things happened is for who may describe the cluster"
        assert "You see your own requests" in text_of(await page(one, "/requests"))
        assert len((await one.get("/v1/requests"))["requests"]) == refusals, "looking at pages records no refusal"
        for path in ("/topics/secret", "/brokers", "/events", "/brokers/1"):
            assert "is needed" in text_of(await page(one, path, 403)), path
        assert "Topics that you may not describe are left out" in text_of(await page(one, "/diff?from=0"))
        await send(one, "/topics/open.one", 403, do="grow", num_partitions="9")


async def test_answers_are_kept_and_short_as_those_of_the_json(one: Service) -> None:
    first = await one.client.get("/brokers", headers=HTML)
    again = await one.client.get("/brokers", headers={**HTML, "if-none-match": first.headers["etag"]})
    assert again.status_code == 304
    assert first.headers["content-encoding"] == "gzip"
    assert first.headers["cache-control"] == "private, no-cache"
    asset = next(str(each["href"]) for each in Read(first.text).of("link") if each["rel"] == "stylesheet")
    style = await one.client.get(asset)
    assert style.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert style.headers["content-type"].startswith("text/css")
    assert (await one.client.get("/assets/none.css")).status_code == 404
    assert (await one.client.get("/assets/..%2fapp.py")).status_code == 404
