"""The health of a cluster names each problem with its cause."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, get_args

import pytest

from controller.engine.group_commit import Controller
from controller.machine.state import Topic
from controller.store.stored_topics import decode_topic
from projections.queries import health as module
from projections.views.overviews import IssueKind, QuorumView, VoterView
from tests.http.service import Service, service


async def _issues(one: Service) -> dict[str, Any]:
    health = await one.get("/v1/health")
    return {issue["kind"]: issue for issue in health["issues"]}


async def _stopped(one: Service, *broker_ids: int) -> None:
    for broker_id in broker_ids:
        live = sorted({*one.api.cluster.live} - {broker_id})
        await one.request("POST", f"/v1/simulated/brokers/{broker_id}/stop")
        await one.live(*live)
        await one.until(one.controller.is_reconciled)


async def _offline(one: Service) -> None:
    await one.create("t", assignments=[[1, 2]])
    await _stopped(one, 1, 2)


async def _under_min_isr(one: Service) -> None:
    await one.create("t", assignments=[[1, 2]], configs={"min.insync.replicas": "2"})
    await _stopped(one, 2)


async def _unclean_risk(one: Service) -> None:
    await one.create("t", assignments=[[1, 2]], configs={"unclean.leader.election.enable": "true"})
    await _stopped(one, 2)


async def _at_min_isr(one: Service) -> None:
    await one.create("t", assignments=[[1, 2]])
    await _stopped(one, 2)


async def _under_replicated(one: Service) -> None:
    await one.create("t", assignments=[[1, 2, 3]])
    await _stopped(one, 2)


async def _placeholders(one: Service) -> None:
    await one.create("t", num_partitions=1, replication_factor=4)


async def _slow_propagation(one: Service) -> None:
    one.brokers.set_delay(2, 60_000)
    await one.create("t", 202, timeout_ms=1)


async def _waiting_creates(one: Service) -> None:
    one.brokers.set_delay(2, 60_000)
    await one.create("t", 202, timeout_ms=1, assignments=[[2]])
    await _stopped(one, 2)


async def _no_live_broker(one: Service) -> None:
    await _stopped(one, 1, 3, 2)


async def _broker_away(one: Service) -> None:
    await _stopped(one, 2)


def _set_storage_error(one: Service, error: str | None) -> None:
    controller: Any = one.controller
    controller.storage_error = error


async def _log_not_writable(one: Service) -> None:
    _set_storage_error(one, "no space left on device")


async def _controller_failed(one: Service) -> None:
    one.controller.failure = ZeroDivisionError("a bug")


async def _quorum_without_majority(one: Service) -> None:
    voter = VoterView(node_id=3001, host="h", port=9093, priority=1, log_end=None, lag=None)
    view = QuorumView(
        node_id=3000,
        role="candidate",
        epoch=1,
        leader=None,
        leads_since=None,
        leads_since_ms=None,
        high_watermark=0,
        applied=0,
        voters=(voter,),
    )
    one.api.quorum, one.api.brokers_error = lambda: view, lambda: "no leader of the controllers is known"


async def _cluster_unreachable(one: Service) -> None:
    one.api.brokers_error = lambda: "the cluster cannot be reached: timed out"


async def _archive_lost(one: Service) -> None:
    one.api.archive_error = lambda: "archiving is paused: the bucket is gone"


async def _stale_gateway(one: Service) -> None:
    one.api.decides_here = False
    _set_storage_error(one, "Kafka has not returned a heartbeat for 31 s")


Plant = Callable[[Service], Awaitable[None]]
PLANTED: dict[str, tuple[Plant, list[int], str]] = {
    "offline": (_offline, [2], "it waits for broker 2, the last in-sync replica, fenced since 20"),
    "under-min-isr": (_under_min_isr, [2], "it waits for broker 2, fenced since 20"),
    "unclean-risk": (_unclean_risk, [2], "it waits for broker 2, fenced since 20"),
    "at-min-isr": (_at_min_isr, [2], "it waits for broker 2, fenced since 20"),
    "under-replicated": (_under_replicated, [2], "it waits for broker 2, fenced since 20"),
    "placeholders": (_placeholders, [], "a new broker, because fewer brokers are usable than the replication factor"),
    "slow-propagation": (_slow_propagation, [2], "it waits for the metadata to be applied by broker 2"),
    "waiting-creates": (_waiting_creates, [2], "it waits for a leader on broker 2"),
    "no-live-broker": (_no_live_broker, [1, 2, 3], "broker 1 is fenced since 20"),
    "broker-away": (_broker_away, [2], "broker 2 is fenced since 20"),
    "log-not-writable": (_log_not_writable, [], "no space left on device"),
    "controller-failed": (_controller_failed, [], "a bug"),
    "quorum-without-majority": (_quorum_without_majority, [], "no leader of the controllers"),
    "cluster-unreachable": (_cluster_unreachable, [], "timed out"),
    "archive-lost": (_archive_lost, [], "the bucket is gone"),
    "stale-gateway": (_stale_gateway, [], "heartbeat for 31 s"),
}


@pytest.mark.parametrize("kind", PLANTED)
async def test_a_planted_incident_gets_its_cause(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLOW_MS", 0)
    monkeypatch.setattr(Controller, "storage_error", None)
    settings = {"enable.under.replicated.topic.creation": "true"}
    async with service(settings=settings) as one:
        assert await _issues(one) == {}
        plant, waits_for, cause = PLANTED[kind]
        await plant(one)
        issue = (await _issues(one))[kind]
        assert issue["waits_for"] == waits_for
        assert cause in issue["cause"]
        assert issue["resolution"]
        if issue["topics"]:
            assert (issue["topics"], issue["examples"], issue["partitions"] in (0, 1)) == (1, ["t"], True)
            assert issue["began_at"]
        for path in issue["evidence"]:
            await one.get(f"/v1{path}", 404 if path == "/quorum" and one.api.quorum is None else 200)
        page = (await one.client.get("/", headers={"accept": "text/html"})).text
        assert kind in page
        _set_storage_error(one, None)
        one.controller.failure = None


def test_every_kind_of_problem_is_planted() -> None:
    assert PLANTED.keys() == {*get_args(IssueKind)} - {"starting"}, "a service answers only once it has started"


async def test_when_all_brokers_stopped_status_names_the_last_in_sync_replica(one: Service) -> None:
    for number in range(4):
        await one.create(f"pay.t{number}", num_partitions=3)
    await _stopped(one, 3, 2, 1)
    health = await one.get("/v1/health")
    assert health["state"] == "critical"
    assert health["summary"].startswith(
        "12 partitions of 4 topics are offline: all wait for broker 1, the last in-sync"
    )
    offline, down = health["issues"]
    since = (await one.get("/v1/brokers"))["brokers"][0]["changed_at"]
    assert (offline["kind"], offline["waits_for"], offline["began_at"]) == ("offline", [1], since)
    assert f"fenced since {since[:19]}Z (stopped)" in offline["cause"]
    assert offline["examples"] == ["pay.t0", "pay.t1", "pay.t2"]
    assert (down["kind"], down["waits_for"]) == ("no-live-broker", [1, 2, 3])


OUTAGES = """
[[1],[1]]           |                      | -1          | offline 1 of 2
[[1,2,3]]           |                      | -1 -2 -3    | offline 3 of 1
[[1,2,3]]           |                      | -3 -1 -2    | offline 2 of 1
[[3,2]]             |                      | -2 -3       | offline 3 of 1
[[1,2]]             |                      | -1 -2 +1    | offline 2 of 1
[[1],[2]]           |                      | -1 -2       | offline 1 of 1, offline 2 of 1
[[1,2],[2,3]]       |                      | -2          | at-min-isr 2 of 2
[[1,2,3]]           |                      | -2 -3       | at-min-isr 2,3 of 1
[[1,2,3]]           | min.insync.replicas=3 | -1         | under-min-isr 1 of 1
[[1,2,3]]           | min.insync.replicas=2 | -1         | at-min-isr 1 of 1
[[1,2,3]]           | min.insync.replicas=2 | -1 -2      | under-min-isr 1,2 of 1
[[1,2,3]]           | min.insync.replicas=2 | -1 -2 +1   | at-min-isr 2 of 1
[[1,2,3]]           | unclean.leader.election.enable=true | -2 -3    | unclean-risk 2,3 of 1
[[1,2,3]]           | unclean.leader.election.enable=true | -1 -2 -3 | offline 3 of 1
[[1,2],[3,2]]       |                      | -1 -3       | at-min-isr 1 of 1, at-min-isr 3 of 1
[[1,2,3]]           |                      | -1 +1       |
"""
"""The replicas of each partition of a topic, its config, the brokers that stop and start, and the problems of
partitions: kind, the brokers that they wait for, and the number of partitions."""


@pytest.mark.parametrize("line", OUTAGES.strip().splitlines())
async def test_an_outage_is_grouped_by_the_brokers_that_end_it(one: Service, line: str) -> None:
    replicas, config, steps, expected = (column.strip() for column in line.split("|"))
    configs = dict([config.split("=")]) if config else {}
    await one.create("t", assignments=json.loads(replicas), configs=configs)
    for step in steps.split():
        if step.startswith("-"):
            await _stopped(one, int(step[1:]))
            continue
        await one.request("POST", f"/v1/simulated/brokers/{step[1:]}/start")
        await one.live(*sorted({*one.api.cluster.live, int(step[1:])}))
        await one.until(one.controller.is_reconciled)
    issues = [each for each in (await one.get("/v1/health"))["issues"] if each["partitions"]]
    found = [f"{each['kind']} {','.join(map(str, each['waits_for']))} of {each['partitions']}" for each in issues]
    assert ", ".join(found) == expected
    for each in issues:
        for broker in each["waits_for"]:
            assert f"broker {broker}" in each["cause"]
            assert str(broker) in each["resolution"]


async def test_what_if_a_broker_is_lost(one: Service) -> None:
    await one.create("pay.safe", configs={"min.insync.replicas": "2"})
    await one.create("pay.single", assignments=[[2], [3]])
    answer = await one.get("/v1/whatif?change=lose-broker%203")
    moves = {each["after"]: each for each in answer["topics"]}
    assert moves["offline"]["examples"] == ["pay.single"]
    assert (moves["offline"]["partitions"], moves["at-min-isr"]["examples"]) == (1, ["pay.safe"])
    assert [each["replication_factor"] for each in answer["creates"]] == [3]
    assert answer["creates"][0]["error"] == "INVALID_REPLICATION_FACTOR"
    assert answer["issues"][0]["waits_for"] == [3]
    assert (await one.get("/v1/health"))["state"] == "healthy", "nothing was changed"


WHAT_IF = """
lose-rack rack-b                     | pay.single offline, pay.safe at-min-isr
drain 2                              | pay.single offline, pay.safe at-min-isr
lose-broker 2 lose-broker 3          | pay.single offline, pay.safe under-min-isr
lose-broker 2 add-broker             | pay.single offline, pay.safe at-min-isr
add-broker                           |
min.insync.replicas=3                |
min.insync.replicas=3 lose-broker 2  | pay.single offline, pay.safe at-min-isr
unclean.leader.election.enable=true lose-broker 2 | pay.single offline, pay.safe at-min-isr
"""


@pytest.mark.parametrize("line", WHAT_IF.strip().splitlines())
async def test_what_if_by_the_rules_of_the_machine(line: str) -> None:
    change, _, expected = map(str.strip, line.partition("|"))
    async with service() as one:
        await one.create("pay.safe", configs={"min.insync.replicas": "2"})
        await one.create("pay.single", assignments=[[2], [3]])
        answer = await one.get("/v1/whatif", change=change)
        moves = [f"{name} {each['after']}" for each in answer["topics"] for name in each["examples"]]
        assert ", ".join(moves) == expected
        page = await one.client.get("/whatif", params={"change": change}, headers={"accept": "text/html"})
        assert all(name.partition(" ")[0] in page.text for name in moves)


async def test_what_if_agrees_with_what_then_happens(one: Service) -> None:
    for number in range(6):
        await one.create(f"t{number}", num_partitions=3, replication_factor=1 + number % 3)
    predicted = await one.get("/v1/whatif?change=lose-broker%202")
    await _stopped(one, 2)
    happened = await one.get("/v1/health")
    facts = ("kind", "partitions", "topics", "waits_for", "examples")
    assert [[each[fact] for fact in facts] for each in predicted["issues"]] == [
        [each[fact] for fact in facts] for each in happened["issues"]
    ]
    (refused,) = predicted["creates"]
    error = await one.create("new", 400, replication_factor=3)
    assert (refused["error"], refused["message"]) == (error["error"], error["message"])


async def test_a_what_if_question_reads_its_topics_in_a_query_thread(
    one: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        await one.create(f"large.{number}", num_partitions=300, replication_factor=1)
    await one.create("on.1", assignments=[[1]])
    await one.create("on.2", assignments=[[2]])
    monkeypatch.setattr(one.controller.store._cache, "_topics", OrderedDict())
    threads: dict[str, str] = {}

    def read(values: Sequence[bytes]) -> Topic:
        topic = decode_topic(values)
        threads[topic.name] = threading.current_thread().name.partition("_")[0]
        return topic

    monkeypatch.setattr("controller.store.store.decode_topic", read)
    answer = await one.get("/v1/whatif?change=lose-broker%202")
    assert threads == dict.fromkeys(["large.0", "large.1", "large.2", "on.2"], "query")
    (moved,) = answer["topics"]
    assert (moved["after"], moved["topics"], moved["partitions"]) == ("offline", 4, 301)
    assert not one.controller.store._cache._topics, "the topics that clients need stay in the cache"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("", "nothing to change; allowed: lose-broker ID"),
        ("nonsense", "'nonsense' is no change; allowed: lose-broker ID"),
        ("retention.ms=5", "is no change; allowed"),
        ("lose-broker", "'' is not a registered broker; allowed: 1, 2, 3"),
        ("lose-broker 9", "'9' is not a registered broker"),
        ("drain x", "'x' is not a registered broker"),
        ("lose-rack z", "'z' is not a rack of a broker; allowed: rack-a, rack-b, rack-c"),
        ("min.insync.replicas=x", "Not a number of type INT"),
        ("default.replication.factor=x", "Expected `int`"),
        ("add-broker " * 11, "more than 10 changes"),
        ("x" * 1001, "1000"),
    ],
)
async def test_an_invalid_what_if_names_what_is_allowed(one: Service, change: str, words: str) -> None:
    assert words in (await one.get("/v1/whatif", 400, change=change))["message"]
    page = await one.client.get("/whatif", params={"change": change}, headers={"accept": "text/html"})
    assert page.status_code == (400 if change else 303)
