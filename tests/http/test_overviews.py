"""Overviews over HTTP: requests by time, a summary, timelines, and one broker."""

from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl

import pytest

from projections.queries import topics
from tests.http.service import Service


async def _some_requests(one: Service) -> dict[str, str]:
    """Makes four requests and returns their ids by subject: one is refused, one deletes."""
    made = {"kept": (await one.create("pay.kept"))["request_id"]}
    made["refused"] = (await one.create("nobodys", 403))["request_id"]
    made["gone"] = (await one.create("pay.gone", num_partitions=1))["request_id"]
    made["deletion"] = (await one.request("DELETE", "/v1/topics/pay.gone"))["request_id"]
    return made


async def test_filters_of_requests(judged: Service) -> None:
    made = await _some_requests(judged)
    rule = "policy:tests.Owned/owner"
    expected = {
        "": ["deletion", "gone", "refused", "kept"],
        "outcome=rejected": ["refused"],
        "outcome=created": ["gone", "kept"],
        "outcome=waiting": [],
        f"rule={rule}": ["refused"],
        f"rule={rule}&outcome=created": [],
        "api=HTTP": ["deletion", "gone", "refused", "kept"],
        "api=CreateTopics": [],
        "principal=User:ANONYMOUS": ["deletion", "gone", "refused", "kept"],
        "principal=User:nobody": [],
        "host=127.0.0.1": ["deletion", "gone", "refused", "kept"],
        "host=192.0.2.1": [],
    }
    for parameters, names in expected.items():
        page = await judged.get(f"/v1/requests?{parameters}")
        assert [each["request_id"] for each in page["requests"]] == [made[name] for name in names], parameters
        assert page["next_cursor"] is None
    refused = (await judged.get("/v1/requests?outcome=rejected"))["requests"][0]
    assert (refused["topics"], refused["outcomes"], refused["rules"]) == (["nobodys"], {"rejected": 1}, [rule])
    whole = await judged.get(f"/v1/requests/{refused['request_id']}")
    assert whole["requested_at"] == refused["requested_at"]


async def test_requests_by_time_and_as_of(judged: Service) -> None:
    made = await _some_requests(judged)
    page = (await judged.get("/v1/requests"))["requests"]
    offsets = {each["request_id"]: each["requested_offset"] for each in page}
    start, end = offsets[made["refused"]], offsets[made["gone"]]
    shown = (await judged.get(f"/v1/requests?from={start}&to={end}"))["requests"]
    assert [each["request_id"] for each in shown] == [made["gone"], made["refused"]]
    then = (await judged.get(f"/v1/requests?at={end}"))["requests"]
    assert then[0]["outcomes"] == {"waiting": 1}, "the state right after the request"
    assert (await judged.get(f"/v1/requests?at={end}&outcome=waiting"))["requests"] == then[:1]
    first_ms, last_ms = page[-1]["requested_at_ms"], page[0]["requested_at_ms"]
    assert (await judged.get(f"/v1/requests?from={first_ms}ms&to={last_ms}ms"))["requests"] == page
    assert (await judged.get(f"/v1/requests?from={last_ms + 1}ms"))["requests"] == []
    assert (await judged.get(f"/v1/requests?to={first_ms - 1}ms"))["requests"] == []


async def test_health_with_counts_and_refusals(judged: Service) -> None:
    before = (await judged.get("/v1/brokers"))["as_of"]["offset"]
    made = await _some_requests(judged)
    await judged.request("POST", "/v1/simulated/brokers/3/stop")
    await judged.live(1, 2)
    shown = await judged.get("/v1/health")
    brokers = [await judged.get(f"/v1/brokers/{number}") for number in (1, 2, 3)]
    assert (sum(each["leaders"] for each in brokers), {each["replicas"] for each in brokers}) == (2, {2})
    assert (shown["under_replicated_partitions"], shown["offline_partitions"], shown["placeholders"]) == (2, 0, 0)
    assert (shown["topics"], shown["partitions"], shown["topics_pending"]) == (1, 2, 0)
    assert (shown["live"], shown["fenced"], shown["brokers_registered"]) == ([1, 2], [3], 3)
    (refused,) = shown["refused"]
    assert (refused["rule"], refused["count"], refused["more"]) == ("policy:tests.Owned/owner", 1, False)
    assert refused["latest"]["request_id"] == made["refused"]
    assert [each["request_id"] for each in shown["newest"]][:1] == [made["deletion"]]
    then = await judged.get(f"/v1/health?at={before}")
    assert (then["live"], then["topics"], then["refused"], then["newest"]) == ([1, 2, 3], 0, [], [])
    judged.brokers.set_delay(1, 60_000)
    slow = await judged.create("pay.slow", 202, timeout_ms=1, replication_factor=2)
    await judged.until(lambda: (topic := judged.api.topic("pay.slow")) is not None and len(topic.propagated) == 1)
    assert (await judged.get("/v1/health"))["topics_pending"] == 1, slow
    again = await judged.get(f"/v1/health?at={shown['as_of']['offset']}")
    assert again == shown
    load = await judged.get(f"/v1/brokers/1?at={shown['as_of']['offset']}")
    assert (load["leaders"], load["replicas"]) == (brokers[0]["leaders"], brokers[0]["replicas"])


async def test_health_counts_beyond_the_scan_limit_are_null(one: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        await one.create(name, num_partitions=2)
    end = (await one.get("/v1/health"))["as_of"]["offset"]
    assert (await one.get(f"/v1/health?at={end}"))["partitions"] == 4
    monkeypatch.setattr(topics, "KEYS_AT_ONCE", 1)
    assert (await one.get(f"/v1/health?at={end}"))["partitions"] == 4, "several reads give the same counts"
    for bound, much in (("PARTITIONS_MAX", 1), ("SCANNED_MAX", end)):
        with monkeypatch.context() as patch:
            patch.setattr(topics, bound, much)
            then = await one.get(f"/v1/health?at={end}")
            assert (then["topics"], then["partitions"]) == (None, None), bound
            assert (await one.get(f"/v1/brokers/1?at={end}"))["leaders"] is None
    assert then["brokers_registered"] == 3


async def test_a_timeline_counts_every_event_once(one: Service) -> None:
    for number in range(5):
        await one.create(f"t{number}")
    for spans in (1, 7, 500):
        shown = await one.get(f"/v1/timeline?spans={spans}")
        assert sum(each["events"] for each in shown["spans"]) == shown["as_of"]["offset"] + 1
        ends = [each["end_at_ms"] for each in shown["spans"]]
        assert [each["start_at_ms"] for each in shown["spans"]][1:] == ends[:-1]
        assert len(shown["spans"]) <= spans
    assert sum(each["events"] for each in (await one.get("/v1/timeline?from=3&to=5"))["spans"]) == 3
    soon = (datetime.now(UTC) + timedelta(minutes=2)).isoformat(timespec="seconds").replace("+00:00", "Z")
    assert (await one.get(f"/v1/timeline?from={soon}"))["spans"] == [], "a client's clock may be ahead"
    assert (await one.get("/v1/timeline?from=0001-01-01"))["spans"] == (await one.get("/v1/timeline"))["spans"]


async def test_a_timeline_has_changes_refusals_offline_partitions_and_fenced_brokers(one: Service) -> None:
    await one.create("a", num_partitions=3, replication_factor=1)
    await one.create("a", 409)
    await one.create("b", num_partitions=1)
    for broker in (1, 2, 3):
        await one.request("POST", f"/v1/simulated/brokers/{broker}/stop")
        await one.live(*range(broker + 1, 4))
        await one.until(one.controller.is_reconciled)
    assert one.api.store.durable_tallies.health.offline == 4
    await one.request("DELETE", "/v1/topics/a")
    (whole,) = (await one.get("/v1/timeline?spans=1"))["spans"]
    assert (whole["changes"], whole["refused"], whole["fenced"]) == (4, 1, [1, 2, 3]), "settings, two creates, a delete"
    assert (whole["offline"], whole["under_replicated"]) == (4, 1), "a was offline when it was deleted"
    deleted = (await one.get("/v1/changes"))["changes"][0]
    (last,) = (await one.get(f"/v1/timeline?spans=1&from={deleted['offset']}"))["spans"]
    assert (last["changes"], last["offline"]) == (1, 4), "the most is that before the deletion"
    events = (await one.get("/v1/events?type=BrokerFenced&limit=1000"))["events"]
    before = (await one.get(f"/v1/timeline?spans=1&to={events[0]['offset'] - 1}"))["spans"][0]
    assert before["fenced"] == [1, 2, 3], "brokers are fenced until they started"
    assert "offline" not in before, "the numbers of the past are unknown"


async def test_broker_has_its_newest_events(one: Service) -> None:
    await one.request("POST", "/v1/simulated/brokers/2/stop")
    await one.live(1, 3)
    shown = await one.get("/v1/brokers/2")
    assert (shown["broker_id"], shown["fenced"]) == (2, True)
    assert [each["type"] for each in shown["events"]] == ["BrokerFenced", "BrokerUnfenced", "BrokerRegistered"]
    then = await one.get(f"/v1/brokers/2?at={shown['events'][1]['offset']}")
    assert (then["fenced"], then["events"]) == (False, shown["events"][1:])
    assert (await one.get("/v1/brokers/9", 404))["message"] == "there is no broker 9"


async def test_topics_are_filtered_by_name_status_and_principal(one: Service) -> None:
    for name in ("pay.a", "pay.b", "log.a"):
        await one.create(name)
    one.brokers.set_delay(1, 60_000)
    await one.create("pay.slow", 202, timeout_ms=1)
    expected = {
        "": ["log.a", "pay.a", "pay.b", "pay.slow"],
        "name=pay.*": ["pay.a", "pay.b", "pay.slow"],
        "name=*.a": ["log.a", "pay.a"],
        "name=pay.?": ["pay.a", "pay.b"],
        "name=pay": [],
        "name=[a-z]*": [],
        "status=ready": ["log.a", "pay.a", "pay.b"],
        "status=pending": ["pay.slow"],
        "status=not-ready": ["pay.slow"],
        "status=offline": [],
        "placeholders=true": [],
        "placeholders=false&name=log.*": ["log.a"],
        "principal=User:ANONYMOUS&name=*.b": ["pay.b"],
        "principal=User:nobody": [],
    }
    for parameters, names in expected.items():
        page = await one.get(f"/v1/topics?{parameters}")
        assert [each["name"] for each in page["topics"]] == names, parameters
        assert page["next_cursor"] is None
        then = await one.get(f"/v1/topics?{parameters}&at={page['as_of']['offset']}")
        assert then["topics"] == page["topics"], parameters
    pages = await one.pages("/v1/topics", name="*.a", limit=1)
    assert [each["name"] for page in pages for each in page["topics"]] == ["log.a", "pay.a"]


async def test_events_are_filtered_by_order_type_and_offset(one: Service) -> None:
    made = await one.create("t")
    await one.create("u")
    of_request, of_type = {"request": made["request_id"]}, {"type": "TopicCreated"}
    for which in ({}, {"topic": "t"}, of_request, of_type, {"type": "TopicReady", "topic": "u"}):
        everything = (await one.get("/v1/events", limit=1000, **which))["events"]
        assert everything, which
        for order in ("oldest", "newest"):
            pages = await one.pages("/v1/events", limit=2, order=order, **which)
            assert max(len(page["events"]) for page in pages) <= 2
            seen = [event for page in pages for event in page["events"]]
            assert seen == (everything if order == "oldest" else everything[::-1]), f"{which} {order}"
        whole = (await one.get("/v1/events", limit=1000))["events"]
        start = min(each["offset"] for each in whole if each["cause"] == everything[-1]["cause"])
        then = await one.get("/v1/events", limit=1000, at=start - 1, **which)
        assert then["events"] == [each for each in everything if each["offset"] < start], which
    newest = (await one.get("/v1/events?topic=t&order=newest"))["events"]
    assert newest == (await one.get("/v1/events?topic=t"))["events"][::-1]


async def test_request_and_explanation_as_of_an_offset(one: Service) -> None:
    request_id = (await one.create("t"))["request_id"]
    whole = await one.get(f"/v1/requests/{request_id}")
    first = whole["requested_offset"]
    then = await one.get(f"/v1/requests/{request_id}?at={first}")
    assert (then["topics"][0]["status"], whole["topics"][0]["status"]) == ("waiting", "created")
    assert "no request" in (await one.get(f"/v1/requests/{request_id}?at={first - 1}", 404))["message"]
    for subject in (request_id, "t"):
        steps = (await one.get(f"/v1/explain/{subject}"))["steps"]
        then = await one.get(f"/v1/explain/{subject}?at={first}")
        assert then["steps"] == [step for step in steps if step["cause"] == steps[0]["cause"]], "the whole command"
        assert "no topic and no request" in (await one.get(f"/v1/explain/{subject}?at={first - 1}", 404))["message"]


async def test_diff_between_two_offsets(one: Service) -> None:
    for name in ("same", "gone", "anew", "grown"):
        await one.create(name, configs={"retention.ms": 5})
    start = (await one.get("/v1/brokers"))["as_of"]["offset"]
    await one.request("DELETE", "/v1/topics/gone")
    await one.request("DELETE", "/v1/topics/anew")
    await one.create("anew")
    await one.create("born")
    await one.create("same", 409)
    await one.request("POST", "/v1/simulated/brokers/3/stop")
    await one.live(1, 2)
    await one.until(lambda: one.api.store.durable_tallies.health.under_replicated == 8)
    shown = await one.get(f"/v1/diff?from={start}")
    topics = {each["name"]: each for each in shown["topics"]}
    assert {name: each["change"] for name, each in topics.items()} == {
        "anew": "recreated",
        "born": "created",
        "gone": "deleted",
        "grown": "changed",
        "same": "changed",
    }
    assert topics["anew"]["configs"] == [{"name": "retention.ms", "before": "5", "after": None}]
    assert (topics["gone"]["partitions_before"], topics["gone"]["partitions_after"]) == (2, None)
    assert (topics["same"]["other_isr"], topics["same"]["other_replicas"]) == (2, 0), "the stopped broker left the ISR"
    (broker,) = shown["cluster"]["brokers"]
    assert (broker["broker_id"], broker["before"], broker["after"]) == (3, "live", "fenced")
    assert shown["before"]["offset"] == start
    pages = await one.pages("/v1/diff", limit=2, **{"from": start})
    assert [page["cluster"] is None for page in pages] == [False, True, True], "only the first page has the cluster"
    assert [each for page in pages for each in page["topics"]] == shown["topics"]
    nothing = await one.get(f"/v1/diff?from={shown['after']['offset']}")
    assert (nothing["topics"], nothing["cluster"]["brokers"], nothing["next_cursor"]) == ([], [], None)


async def test_changes_tell_who_changed_what_newest_first(eventful: Service) -> None:
    found = (await eventful.get("/v1/changes", limit=1000))["changes"]
    assert [each["offset"] for each in found] == sorted((each["offset"] for each in found), reverse=True)
    by_text = {(each["topic"], each["type"]): each for each in found}
    grown, altered = by_text["pay.orders", "PartitionsAdded"], by_text["pay.orders", "TopicConfigsChanged"]
    assert grown["values"] == [{"name": "partitions", "before": "6", "after": "8"}]
    assert altered["values"] == [{"name": "retention.ms", "before": "86400000", "after": "3600000"}]
    assert altered["text"].endswith("changes the configs of pay.orders: retention.ms 86400000 -> 3600000")
    assert (altered["principal"], altered["client_id"]) == ("User:ANONYMOUS", "billing-api 2.1")
    request = await eventful.get(f"/v1/requests/{altered['request_id']}")
    assert request["topics"][0]["status"] == "configs-changed"
    assert by_text["pay.single", "TopicCreated"]["rules"] == ["policy:tests.Owned/size", "policy:rules/size"]
    assert by_text["pay.orders", "TopicCreated"]["rules"] == []
    assert by_text[None, "RulesApplied"]["principal"] == "User:ANONYMOUS"
    assert not {each["type"] for each in found} & {"BrokerFenced", "PartitionChanged", "CreateRejected"}
    of_pay = [each for each in found if (each["topic"] or "").startswith("pay.")]
    filters: dict[str, list[dict[str, object]]] = {
        "topic=pay.orders": [each for each in found if each["topic"] == "pay.orders"],
        "topic=pay.*": of_pay,
        "topic=pay.*&principal=User:A*": of_pay,
        "principal=User:b*": [],
        f"from={altered['offset']}&to={grown['offset']}": found[found.index(grown) : found.index(altered) + 1],
        f"at={altered['offset']}": found[found.index(altered) :],
    }
    for which, expected in filters.items():
        pages = await eventful.pages("/v1/changes", limit=3, **dict(parse_qsl(which)))
        assert [each for page in pages for each in page["changes"]] == expected, which
    differing = (await eventful.get(f"/v1/diff?from={altered['offset'] - 1}"))["topics"]
    of_orders = next(each for each in differing if each["name"] == "pay.orders")
    assert of_orders["changes"] == [grown, altered], "the difference tells who made it"


async def test_changes_need_describe(half: Service) -> None:
    await half.create("open.t")
    await half.create("secret.t")
    assert [each["topic"] for each in (await half.get("/v1/changes?topic=open.t"))["changes"]] == ["open.t"]
    for which in ("", "?topic=secret.t", "?topic=open.*", "?topic=open"):
        await half.get(f"/v1/changes{which}", 403 if which != "?topic=open" else 200)
