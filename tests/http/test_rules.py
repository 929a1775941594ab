"""Rules over HTTP and on their page: test, backtest, apply, versions and their changes."""

import asyncio
import html
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from controller.http import rules
from controller.release import RELEASE
from events.logs.rocksdb_log import RocksDbLog
from tests.http.pages.story import page, send, text_of
from tests.http.service import Half, Service, service

SMALL = """[[rule]]
name = "small"
partitions = { max = 3 }
configs = { "retention.ms" = { max = 10 } }

[[rule]]
name = "keep"
on = "delete"
refuse = "topics <b>stay</b>"

[[example]]
topic = "a"
after = { partitions = 4 }
violates = []
"""
BAD = "[[rule]]\nname = 'r'\npartitons = 4\n"


@pytest.fixture
async def stored(tmp_path: Path) -> AsyncIterator[Service]:
    """A service with its log on a disk, and five requests, of which four violate SMALL."""
    async with service(RocksDbLog(tmp_path / "log", cluster_id="http-rules")) as one:
        await one.create("wide", num_partitions=4)
        await one.create("gone", num_partitions=1)
        await one.request("PATCH", "/v1/topics/wide", json={"num_partitions": 5})
        await one.request("PATCH", "/v1/topics/wide", json={"configs": {"retention.ms": "11"}})
        await one.request("DELETE", "/v1/topics/gone")
        yield one


async def test_a_backtest_tries_every_change_and_changes_nothing(stored: Service) -> None:
    before = await stored.get("/v1/policies")
    found = await stored.request("POST", "/v1/rules/backtest", json={"text": SMALL})
    assert (found["requests"], found["otherwise"], found["more"]) == (5, 4, False)
    assert found["summary"].startswith("would have rejected 4 requests of 1 principal; tried 5 requests since ")
    groups = found["groups"]
    listed = {(one["rule"], each["topic"], each["message"]) for one in groups for each in one["requests"]}
    assert listed == {
        ("policy:rules/small", "wide", "rule 'small': partitions is 4, allowed is at most 3"),
        ("policy:rules/small", "wide", "rule 'small': partitions is 5, allowed is at most 3"),
        ("policy:rules/small", "wide", "rule 'small': retention.ms is '11', allowed is at most 10"),
        ("policy:rules/keep", "gone", "rule 'keep': topics <b>stay</b>"),
    }
    assert {(one["change"], one["principal"], one["api"]) for one in groups} == {("refused", "User:ANONYMOUS", "HTTP")}
    assert await stored.get("/v1/policies") == before
    end = found["as_of"]["offset"]
    last = await stored.request("POST", "/v1/rules/backtest", json={"text": SMALL, "since": str(end)})
    assert (last["since"], last["requests"], last["otherwise"]) == (f"offset {end}", 1, 1)
    assert last["groups"][0]["requests"][0]["topic"] == "gone", "decided on the state before it"


async def test_past_requests_are_decided_again_by_the_rules_of_their_time(stored: Service) -> None:
    assert (await stored.request("POST", "/v1/rules", json={"text": SMALL}))["number"] == 1
    await stored.client.patch("/v1/topics/wide", json={"num_partitions": 6})
    assert (await stored.request("POST", "/v1/rules", json={"text": ""}))["number"] == 2
    await stored.request("PATCH", "/v1/topics/wide", json={"num_partitions": 6})
    found = await stored.request("POST", "/v1/rules/redecide", json={})
    assert (found["requests"], found["otherwise"], found["groups"]) == (7, 0, [])
    assert f"decided again by release {RELEASE}: 0 otherwise" in found["summary"]
    last = await stored.request("POST", "/v1/rules/redecide", json={"since": str(found["as_of"]["offset"])})
    assert last["requests"] == 1


async def test_a_test_of_rules_names_the_examples_that_do_not_hold(stored: Service) -> None:
    found = await stored.request("POST", "/v1/rules/test", json={"text": SMALL})
    assert {name: found[name] for name in ("rules", "defaults", "examples")} == {
        "rules": 2, "defaults": 0, "examples": 1,
    }  # fmt: skip
    (wrong,) = found["wrong"]
    assert wrong.startswith("line 11: create a should violate no rule, but rule 'small': partitions is 4")


WRONG = (
    ("test", {"text": BAD}, 400, "line 3: rule 'r': partitons = 4: unknown key; allowed: name, mode"),
    ("backtest", {"text": BAD}, 400, "line 3: rule 'r': partitons = 4: unknown key"),
    ("backtest", {"text": SMALL, "since": "soon"}, 400, "since: 'soon' is not a valid"),
    ("redecide", {"since": "soon"}, 400, "since: 'soon' is not a valid"),
    ("redecide", {"text": SMALL}, 400, "text: unknown field; allowed are since"),
    ("backtest", {"text": SMALL, "since": "999"}, 400, "since: offset 999 is not"),
    ("backtest", {"since": "1d"}, 400, "missing required field `text`"),
    ("test", {"text": SMALL, "since": "1d"}, 400, "since: unknown field; allowed are text"),
)


async def test_invalid_tests_and_backtests_name_the_problem(stored: Service) -> None:
    for path, body, status, words in WRONG:
        answer = await stored.client.post(f"/v1/rules/{path}", json=body)
        assert (answer.status_code, words in answer.json()["message"]) == (status, True), answer.text


async def test_one_backtest_at_a_time_until_its_client_disconnects(
    stored: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "_MODULE", "tests.http.endless")
    both = {asyncio.create_task(stored.client.post("/v1/rules/backtest", json={"text": SMALL})) for _ in range(2)}
    ((second,), (first,)) = await asyncio.wait(both, timeout=240, return_when=asyncio.FIRST_COMPLETED)
    answer = await second
    assert (answer.status_code, answer.json()["error"]) == (503, "REQUEST_TIMED_OUT")
    assert "is running already" in answer.json()["message"]
    answer = await stored.client.post("/v1/rules/test", json={"text": "["})
    assert answer.status_code == 503, "a text is read only when its turn has come: each reading may take a second"
    first.cancel()
    monkeypatch.undo()
    async with asyncio.timeout(240):
        while (answer := await stored.client.post("/v1/rules/test", json={"text": SMALL})).status_code != 200:
            assert "is running already" in answer.json()["message"]


async def test_a_backtest_ends_when_the_service_stops(stored: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "_MODULE", "tests.http.endless")
    both = {asyncio.create_task(stored.client.post("/v1/rules/backtest", json={"text": SMALL})) for _ in range(2)}
    _, (first,) = await asyncio.wait(both, timeout=240, return_when=asyncio.FIRST_COMPLETED)
    await stored.http.stop()
    answer = await first
    assert (answer.status_code, "the service is stopping" in answer.json()["message"]) == (503, True)


async def test_a_backtest_that_takes_too_long_or_fails(stored: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "_MODULE", "tests.http.endless")
    answer = await stored.client.post("/v1/rules/backtest", json={"text": f"{SMALL}# alarm"})
    assert (answer.status_code, answer.json()["message"][:25]) == (400, "it took longer than 50 s:")
    monkeypatch.setattr(rules, "_MODULE", "tests.http.no_such_module")
    answer = await stored.client.post("/v1/rules/backtest", json={"text": SMALL})
    assert (answer.status_code, answer.json()["message"]) == (500, "the trial failed; the service's log has the cause")


FAILING = "[[rule]]\nname = 'halves'\ncheck = '100 / (partitions - 2) > 0'\nmessage = 'odd'\n"
EXPIRING = """[[rule]]
name = "small"
partitions = {{ max = 3 }}

[[rule.exception]]
topics = "big.*"
reason = "moves"
until = {}
"""
UNACCEPTABLE = (
    ("[[rule]]\nname = 'a'\npartitions = 3\n[[rule]]\nname = 'b'\npartitions = 5\n",
     "line 4: rule 'b': contradicts other rules, which allow 3 for partitions, not 5"),
    ("[[rule]]\nname = 'a'\ncheck = 'config.all(a, config.all(b, config.all(c, true)))'\n",
     "line 3: rule 'a': check = 'config.all(a, config.all(b, config.all(c, true)))': has 3 macros"),
    ("[[rule]]\nname = 'a'\ncheck = 'a.b'\n", "line 3: rule 'a': check = 'a.b': unknown variable 'a'"),
)  # fmt: skip


async def test_contradicting_and_unbounded_rules_are_not_applied(one: Service) -> None:
    for text, words in UNACCEPTABLE:
        answer = await one.client.post("/v1/rules", json={"text": text})
        assert (answer.status_code, answer.json()["error"], words in answer.text) == (400, "INVALID_CONFIG", True)
    assert (await one.get("/v1/policies"))["version"] is None


async def test_expressions_that_fail_are_refused_or_recorded_and_counted(one: Service) -> None:
    async def failures() -> float:
        metrics = (await one.client.get("/metrics")).text
        return float(metrics.partition("\ntopicwright_rules_failed_total ")[2].partition("\n")[0])

    await one.request("POST", "/v1/rules", json={"text": FAILING})
    await one.create("three", num_partitions=3)
    for name in ("a", "b"):
        refused = await one.client.post("/v1/topics", json={"name": name, "num_partitions": 2})
        assert (refused.status_code, "` failed: " in refused.json()["message"]) == (403, True), refused.text
    assert await failures() == 2
    assert "policy:rules/halves:failed" in await page(one, "/")
    await one.request("POST", "/v1/rules", json={"text": f"{FAILING}fail = 'open'\n"})
    await one.create("two", num_partitions=2)
    assert await failures() == 3
    assert "policy:rules/halves:failed" in await page(one, "/explain/two")


async def test_exceptions_end_after_their_day(one: Service) -> None:
    for until, codes in (("2020-01-01", (403, 403)), ("2999-01-01", (201, 403))):
        await one.request("POST", "/v1/rules", json={"text": EXPIRING.format(until)})
        for name, code in zip(("big.a", "small.a"), codes, strict=True):
            await one.create(name, code, num_partitions=9)
        (rule,) = (await one.get("/v1/policies"))["rules"]
        assert [each["is_expired"] for each in rule["exceptions"]] == [until == "2020-01-01"]


async def test_rules_applied_at_once_get_versions_in_order_or_a_conflict(one: Service) -> None:
    def apply(number: int, **after: int) -> Any:
        return one.client.post("/v1/rules", json={"text": f"{SMALL}# {number}", **after})

    both = await asyncio.gather(*(apply(number, after=0) for number in range(4)))
    assert sorted(each.status_code for each in both) == [200, 409, 409, 409]
    lost = next(each.json() for each in both if each.status_code == 409)
    assert lost["message"] == "Version 1 of the rules was applied meanwhile, after version 0."
    both = await asyncio.gather(*(apply(number) for number in range(4, 8)))
    assert sorted(each.json()["number"] for each in both) == [2, 3, 4, 5]
    newest = (await one.get("/v1/policies"))["version"]
    (last,) = [number for number, each in enumerate(both, 4) if each.json()["number"] == 5]
    assert (newest["number"], newest["text"]) == (5, f"{SMALL}# {last}")


async def test_backtests_need_describe_and_applying_needs_alter() -> None:
    async with service(authorizer=Half()) as one:
        for path in ("rules/test", "rules/backtest", "rules/redecide", "rules"):
            operation = "Alter" if path == "rules" else "Describe"
            body = {} if path == "rules/redecide" else {"text": SMALL}
            refused = await one.client.post(f"/v1/{path}", json=body)
            assert (refused.status_code, refused.json()["message"]) == (403, f"{operation} on the cluster is needed")
    async with service(authorizer=Half(("Describe", "Cluster"))) as one:
        shown = await page(one, "/policies")
        assert 'value="backtest"' in shown
        assert 'value="apply"' not in shown
        await send(one, "/policies", 403, do="apply", text=SMALL, after="0")


async def test_the_form_tests_backtests_and_applies_rules(stored: Service) -> None:
    given = {"text": SMALL.replace("\n", "\r\n"), "after": "0", "since": "1d"}
    tested = await send(stored, "/policies", 200, **given, do="test")
    assert "2 rules, 0 defaults; 0 of 1 examples hold" in text_of(tested.text)
    tried = text_of((await send(stored, "/policies", 200, **given, do="backtest")).text)
    assert "would have rejected 4 requests of 1 principal; tried 5 requests since 2" in tried
    assert "rule 'keep': topics <b>stay</b>" in tried
    again = text_of((await send(stored, "/policies", 200, **given, do="redecide")).text)
    assert re.search(r"5 requests since 2\S+ decided again by release \S+: 0 otherwise", again)
    assert (await send(stored, "/policies", 303, **given, do="apply")).headers["location"] == "/policies"
    assert (await stored.get("/v1/policies"))["version"]["text"] == SMALL, "with the line ends of a file"
    shown = await page(stored, "/policies?diff=1")
    assert "+name = &#34;small&#34;" in shown
    assert 'name="after" value="1"' in shown
    assert "is not among the newest ones" in await page(stored, "/policies?diff=9")


FORMS = (
    ({"do": "apply", "text": BAD}, 400, "line 3: rule 'r': partitons = 4"),
    (
        {"do": "apply", "text": SMALL, "after": "7"},
        409,
        "Version 0 of the rules was applied meanwhile, after version 7.",
    ),
    ({"do": "apply", "text": SMALL, "after": "x"}, 400, "after: Expected `int | null`, got `str`"),
    ({"do": "backtest", "text": SMALL, "since": "soon"}, 400, "since: 'soon'"),
    ({"do": "polish", "text": SMALL}, 400, "do: 'polish' is not test, backtest, redecide or apply"),
)


async def test_a_refused_form_has_the_error_and_its_input(one: Service) -> None:
    for fields, status, words in FORMS:
        refused = await send(one, "/policies", status, **{"after": "0", "since": "5d", **fields})
        shown = text_of(refused.text)
        assert words in shown, shown
        assert html.escape(fields["text"]) in refused.text.replace("&#34;", "&quot;").replace("&#39;", "&#x27;")
        assert f'name="since" value="{fields.get("since", "5d")}"' in refused.text
        assert 'aria-describedby="rules-error"' in refused.text
    assert (await one.get("/v1/policies"))["version"] is None


async def test_every_read_of_the_past_uses_the_rules_of_that_time(stored: Service) -> None:
    """Version 1 allows four partitions and version 2 three; each refuses a topic with one more."""
    texts = [f"[[rule]]\nname = 'most'\npartitions = {{ max = {most} }}\n" for most in (4, 3)]
    offsets = []
    for most, text in zip((4, 3), texts, strict=True):
        await stored.request("POST", "/v1/rules", json={"text": text})
        offsets.append((await stored.get("/v1/policies"))["version"]["offset"])
        for partitions in (most, most + 1):
            code = 201 if partitions == most else 403
            await stored.create(f"of{most}.with{partitions}", code, num_partitions=partitions)
    end = (await stored.get("/v1/policies"))["as_of"]["offset"]
    one, two = offsets
    for at, expected in ((one - 1, None), (one, texts[0]), (two - 1, texts[0]), (two, texts[1]), (end, texts[1])):
        shown = await stored.get(f"/v1/policies?at={at}")
        assert (shown["version"] and shown["version"]["text"]) == expected
        assert [each["definition"] for each in shown["rules"]] == (
            [] if expected is None else [{"partitions": f"{{ max = {expected[-4]} }}"}]
        )
    changes = await stored.get(f"/v1/diff?from={one}&to={end}")
    assert [event["fields"]["number"] for event in changes["cluster"]["changes"]] == [2]
    for number, most in ((1, 4), (2, 3)):
        name = f"of{most}.with{most + 1}"
        missing = await stored.get(f"/v1/topics/{name}", 404)
        assert f"partitions is {most + 1}, allowed is at most {most}" in missing["message"]
        explained = await stored.get(f"/v1/explain/{name}?at={end}")
        (because,) = {step["because"] for step in explained["steps"] if step["event"] == "CreateRejected"}
        assert f" applies version {number} of the rules, sha256 " in because
        assert because.endswith(f" at offset {offsets[number - 1]}")
    again = await stored.request("POST", "/v1/rules/redecide", json={"since": str(one)})
    assert (again["requests"], again["otherwise"]) == (4, 0)
    tried = await stored.request("POST", "/v1/rules/backtest", json={"text": texts[1], "since": str(one)})
    assert [each["topic"] for group in tried["groups"] for each in group["requests"]] == ["of4.with4"]
