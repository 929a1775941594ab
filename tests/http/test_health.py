"""The health of a cluster names each problem with its cause."""

import threading
from collections import OrderedDict
from collections.abc import Sequence

import pytest

from controller.machine.state import Topic
from controller.store.stored_topics import decode_topic
from tests.http.service import Service, service


async def _stopped(one: Service, *broker_ids: int) -> None:
    for broker_id in broker_ids:
        live = sorted({*one.api.cluster.live} - {broker_id})
        await one.request("POST", f"/v1/simulated/brokers/{broker_id}/stop")
        await one.live(*live)
        await one.until(one.controller.is_reconciled)


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
    (of_topic,) = (await one.get("/v1/topics/pay.t0"))["issues"]
    assert (of_topic["text"], of_topic["cause"]) == ("3 partitions of pay.t0 are offline", offline["cause"])
    past = (await one.get("/v1/topics/pay.t0", at=str((await one.get("/v1/health"))["as_of"]["offset"])))["issues"]
    assert past == [of_topic]


async def test_with_several_causes_the_summary_counts_all_offline_partitions(one: Service) -> None:
    await one.create("pay.three", num_partitions=3)
    await one.create("pay.single", assignments=[[2]])
    await _stopped(one, 2, 3, 1)
    summary = (await one.get("/v1/health"))["summary"]
    assert summary.startswith("4 of 4 partitions are offline; 3 wait for broker 1, the last in-sync replica, fenced")


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
lose-broker 2 lose-broker 2          | pay.single offline, pay.safe at-min-isr
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


async def test_what_if_counts_more_partitions_of_a_topic_with_the_same_problem(one: Service) -> None:
    await one.create("pay.single", assignments=[[1], [2], [3]])
    await _stopped(one, 3)
    answer = await one.get("/v1/whatif?change=lose-broker%202")
    (moved,) = answer["topics"]
    assert (moved["before"], moved["after"], moved["partitions"], moved["is_worse"]) == ("offline", "offline", 1, True)
    assert answer["summary"] == "1 topic would have more partitions offline."
    page = await one.client.get("/whatif?change=lose-broker+2", headers={"accept": "text/html"})
    assert "more offline" in page.text


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
    assert page.status_code == (400 if change else 200)
