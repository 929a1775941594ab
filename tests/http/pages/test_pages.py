"""Pages show the same data as the JSON API, to the same readers, and change nothing. Forms change topics."""

import re
from urllib.parse import quote, urlsplit

from controller.access.users import Users
from controller.http.pages.frame import ADDRESSES, Frame
from projections.views.view import AsOfView
from tests.http.pages.story import CLIENT, HOSTILE, HTML, LONG, Read, from_page, page, send, text_of
from tests.http.service import Half, Service, service
from tests.http.test_gate import basic, logins

PAGES = (
    "/",
    "/topics",
    "/topics/pay.orders",
    f"/topics/{LONG}",
    "/requests",
    "/approvals",
    "/brokers",
    "/brokers/2",
    "/quorum",
    "/events",
    "/policies",
    "/access",
    "/access?filter=ann",
    "/risks",
    "/changes",
    "/changes?topic=pay.*",
    "/diff",
    "/diff?from=10",
    "/explain/pay.orders",
    "/whatif",
    "/whatif?change=lose-broker+1",
)
NO_TOPICS = (*HOSTILE, "orphan", "web.huge", "pay.gone")
ACTS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


async def test_empty_parameters_of_forms_are_ignored(one: Service) -> None:
    await one.create("a")
    assert await page(one, "/topics?name=a%2A&status=&at=") == await page(one, "/topics?name=a%2A")


async def test_json_is_served_only_under_v1(one: Service) -> None:
    await one.create("t")
    for path in ("/topics", "/topics/t", "/brokers", "/requests", "/policies", "/topics/t/configs"):
        answer = await one.client.get(path)
        assert answer.headers["content-type"].startswith("text/html"), path
        assert isinstance(await one.get(f"/v1{path}"), dict)
    for path in ("/openapi.json", "/health/ready", "/v1/log/head", "/v1/topics", "/v1/none"):
        assert "json" in (await one.client.get(path, headers=HTML)).headers["content-type"], path
    assert (await one.client.head("/topics", headers=HTML)).content == b""


async def test_pages_show_the_data_of_the_json(eventful: Service) -> None:
    topic, summary = await eventful.get("/v1/topics/pay.orders"), await eventful.get("/v1/health")
    by = topic["created_by"]
    request = await eventful.get(f"/v1/requests/{by['request_id']}")
    quorum = ("node 3001 leads", "epoch 4", "3000, follower", "12,345")
    command = "quorum --bootstrap-controller 10.0.0.1:9093"
    shown: dict[str, tuple[str, ...]] = {
        "/topics/pay.orders": (
            topic["topic_id"],
            topic["created_at"],
            by["principal"],
            "replicated (8 of 8)",
            topic["issues"][0]["resolution"],
        ),
        f"/requests/{by['request_id']}": (by["client_id"], request["host"], request["topics"][0]["change"], "answered"),
        "/": ("Fenced brokers", summary["newest"][0]["request_id"], *(each["rule"] for each in summary["refused"])),
        "/quorum": (*quorum, command),
        "/brokers/2": ((await eventful.get("/v1/brokers/2"))["reason"],),
        f"/diff?from={request['requested_offset'] + 6}": ("retention.ms : 86400000 (1 d) → 3600000 (1 h)",),
        "/policies": ("retention enforce", "size observe", "Version 1", "kept for the auditors"),
    }
    for path, words in shown.items():
        text = text_of(await page(eventful, path))
        assert [each for each in words if each not in text] == [], path


async def test_pages_escape_and_need_no_script(eventful: Service) -> None:
    requests = (await eventful.get("/v1/requests", limit=1000))["requests"]
    paths = [*PAGES, *(f"/requests/{quote(each['request_id'])}" for each in requests if each["host"])]
    for path in paths:
        answer = await eventful.client.get(path, headers=HTML)
        assert answer.status_code == 200, f"{path}: {answer.text}"
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert ACTS.search(answer.text) is None, path
        found = Read(answer.text)
        assert [attrs["src"] for attrs in found.of("script")] == [ADDRESSES["page.js"]], path
        assert {attrs["src"] for attrs in found.of("img")} == {ADDRESSES["page.svg"]}, path
        assert not any(name.startswith("on") or name == "style" for _, each in found.elements for name in each), path
        assert all(urlsplit(link).scheme == urlsplit(link).netloc == "" for link in found.links), path
        ids = [attrs["id"] for _, attrs in found.elements if "id" in attrs]
        assert len(ids) == len(set(ids)), path
    everything = "".join([await page(eventful, path) for path in paths])
    assert "&lt;script&gt;window.hacked" in everything
    assert "&lt;img src=x onerror" in everything
    assert "\\u202egnp.exe\\u2066" in everything
    assert "line\\nbreak\\x1b[2J" in everything
    assert "{{ 7 * 7 }}" in everything
    assert CLIENT not in everything
    assert LONG in everything
    assert len(HOSTILE) == len([each for each in requests if each["client_id"] == CLIENT])


async def test_links(eventful: Service) -> None:
    links = {link.partition("#")[0] for path in PAGES for link in Read(await page(eventful, path)).links}
    for link in sorted(links):
        if link.startswith("/"):
            answer = await eventful.client.get(link, headers=HTML)
            gone = any(link.startswith(f"/topics/{quote(name, safe='')}") for name in NO_TOPICS)
            assert answer.status_code == (404 if gone else 200), f"{link}: {text_of(answer.text)}"


BAD_INPUT = (
    ("/topics?at=99999999", 400, "at: offset 99999999 is not reached yet: the newest event is at offset"),
    ("/topics?at=soon", 400, "is not a valid point in time"),
    ("/topics?att=5", 400, "att: unknown query parameter; allowed are at, cursor, label, limit, name, placeholders"),
    ("/topics?cursor=rubbish", 200, ""),
    ("/topics/" + "n" * 300, 404, "was ever created"),
    ("/topics/pay.orders?partition=99999", 200, "7"),
    ("/topics/pay.orders?partition=-1", 400, "partition:"),
    ("/requests/none", 404, "no request 'none' is in the log"),
    ("/brokers/77", 404, "there is no broker 77"),
    ("/no/such/page", 404, "unknown path"),
    ("/diff?from=", 200, "Give the earlier point in time"),
    ("/diff?from=soon", 400, "from: 'soon' is not a valid point in time"),
    ("/explain/nothing", 404, "no topic and no request 'nothing' is in the log"),
    ("/topics?at=1970-01-01", 200, "before the first event"),
    ("/?at=1970-01-01", 200, "Nothing was rejected"),
    ("/quorum?at=5", 400, "at: unknown query parameter; this path takes none"),
    ("/?at=2999-01-01", 400, "'2999-01-01' is in the future: it is 20"),
)
"""A path, the status of its page, and a part of the page's text."""


async def test_errors_of_pages(eventful: Service) -> None:
    for path, status, words in BAD_INPUT:
        shown = text_of(await page(eventful, path, status))
        assert words in shown, f"{path}: {shown}"


def test_links_across_log_partitions_use_times_instead_of_offsets() -> None:
    as_of = AsOfView(7, "2026-07-17T10:00:00.000Z", 1784282400000, partition=3)
    frame = Frame(path="/topics/t", query={"at": "7"}, at="7", principal="", has_partitions=True, as_of=as_of)
    assert frame.link("topics") == "/topics?at=2026-07-17T10%3A00%3A00.000Z"
    assert frame.here(partition=100) == "?at=7&partition=100"
    assert frame.then(5, "2026-07-17T09:00:00.000Z") == "?at=2026-07-17T09%3A00%3A00.000Z"
    assert (
        frame.link("topics", "a/../<b>", rule="x&y")
        == "/topics/a%2F..%2F%3Cb%3E?at=2026-07-17T10%3A00%3A00.000Z&rule=x%26y"
    )


async def test_create_form(judged: Service) -> None:
    fields = {"name": "pay.new", "num_partitions": "4", "replication_factor": "", "configs": "retention.ms = 5\r\n\r\n"}
    assert "No topics yet." in text_of(await page(judged, "/topics"))
    tried = text_of((await send(judged, "/topics", 200, **fields, do="dry-run")).text)
    assert "It would be created: 4 partitions, factor 3" in tried
    assert "topicwright topic create pay.new --partitions 4 --config retention.ms=5 --dry-run" in tried
    await judged.get("/v1/topics/pay.new", 404)
    done = await send(judged, "/topics", 303, **fields, do="create")
    assert done.headers["location"].startswith("/requests/")
    made = await judged.get("/v1/topics/pay.new")
    assert (made["num_partitions"], made["configs"]) == (4, {"retention.ms": "5"})
    again = text_of((await send(judged, "/topics", 409, **fields, do="create")).text)
    assert "It was rejected: TOPIC_ALREADY_EXISTS" in again
    refused = text_of((await send(judged, "/topics", 200, name="orphan", do="dry-run")).text)
    assert "It would be rejected: POLICY_VIOLATION orphan has no owner" in refused
    assert "policy:tests.Owned/owner" in refused


WRONG: tuple[tuple[dict[str, str], str], ...] = (
    ({"num_partitions": "many"}, "num_partitions: Expected `int`, got `str`"),
    ({"num_partitions": "99999999999"}, "num_partitions: Expected `int` <= 2147483647"),
    ({"configs": "retention.ms"}, "configs: line 1 is not name=value"),
    ({"configs": "a=1\na=2"}, "configs: a is given twice, again in line 2"),
    ({"configs": "no.such=1"}, "INVALID_CONFIG"),
    ({"name": "<b>"}, "INVALID_TOPIC_EXCEPTION"),
)


async def test_a_rejected_form_renders_the_error_and_retains_its_input(one: Service) -> None:
    for fields, words in WRONG:
        given = {"name": "t", "num_partitions": "", "configs": "", **fields}
        found = Read((await send(one, "/topics", 200, **given, do="dry-run")).text)
        assert words in found.text
        kept = {attrs["name"]: attrs["value"] for attrs in found.of("input") if attrs.get("name") in given}
        assert all(given[str(name)] == value for name, value in kept.items())
    assert "Dry run of t" in (await send(one, "/topics", 200, name="t")).text, "an empty field is allowed"


async def test_forms_add_partitions_alter_configs_and_delete_a_topic(one: Service) -> None:
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
        ({"do": "preview", "configs": "retention.ms=5 days"}, 400, "Invalid config"),
        ({"do": "polish"}, 400, "do: 'polish' is not grow, preview, configs or delete"),
    ):
        refused = await send(one, "/topics/t", status, **fields)
        assert {"Partitions", "Configs", "Change"} <= set(Read(refused.text).words), "the error is on the topic's page"
        assert fields.get("configs", "").strip() in refused.text
        assert f'name="num_partitions" value="{fields.get("num_partitions", "")}"' in refused.text
        assert words.replace("_", " ").lower() in refused.text.replace("_", " ").lower().replace("&#39;", "'"), fields
        assert refused.text.count('role="alert"') == refused.text.count('id="problem"') == 1
        assert refused.text.count('aria-describedby="problem"') == (fields["do"] != "polish")
    preview = await send(one, "/topics/t", 200, do="preview", configs="retention.ms=86400000\nmin.insync.replicas=")
    for row in ("retention.ms default 86400000 (1 d) Age above which", "min.insync.replicas 2 default How many"):
        assert row in text_of(preview.text)
    assert "retention.ms=86400000" in preview.text, "the form keeps the input"
    same = await send(one, "/topics/t", 200, do="preview", configs="min.insync.replicas=2")
    assert "Nothing would change" in same.text
    assert (await one.get("/v1/topics/t"))["configs"] == {"min.insync.replicas": "2"}
    gone = await send(one, "/topics/t", do="delete", typed="t")
    assert "deleted" in text_of(await page(one, gone.headers["location"]))
    await one.get("/v1/topics/t", 404)


async def test_a_form_requires_the_origin_of_this_service(one: Service) -> None:
    fields = {"name": "t", "do": "create"}
    for headers in (HTML, {**HTML, "origin": "https://evil.example"}, {**HTML, "origin": "null"}):
        assert (await one.client.post("/topics", data=fields, headers=headers)).status_code == 403, headers
    for body in (b"token", b"a=%ff", b"&".join(b"f%d=1" % number for number in range(30)), b"do=a&do=b"):
        answer = await one.client.post("/topics", content=body, headers=from_page(one))
        assert answer.status_code == 400, body
        assert "body:" in answer.text
    large = b"a=" + b"%41" * 25_000
    answer = await one.client.post("/topics", content=large, headers=from_page(one))
    assert (answer.status_code, "at most 65536 bytes" in answer.text) == (413, True)
    await one.get("/v1/topics/t", 404)
    assert (await one.get("/v1/requests"))["requests"] == []


async def test_pages_omit_data_without_permission_and_name_the_missing_acl(users: Users) -> None:
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
        assert "Topics that you may not describe are omitted" in listed
        topic = await page(one, "/topics/open.one")
        assert "To see configs, this user needs DescribeConfigs" in topic
        assert "Partitions, now" not in topic, "no form without permission"
        assert "Delete this topic" in topic
        assert "strip" not in topic, "times need Describe on the cluster"
        assert "You see your own requests" in text_of(await page(one, "/requests"))
        assert len((await one.get("/v1/requests"))["requests"]) == refusals, "reading pages records no refusal"
        for path in ("/topics/secret", "/brokers", "/events", "/brokers/1"):
            assert "is needed" in text_of(await page(one, path, 403)), path
        assert "Topics that you may not describe are omitted" in text_of(await page(one, "/diff?from=0"))
        await send(one, "/topics/open.one", 403, do="grow", num_partitions="9")


async def test_pages_have_etags_gzip_and_cache_headers(one: Service) -> None:
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
