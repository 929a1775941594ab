"""Labels, and recreating deleted topics, on the command line of a running service."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.cli.commands import Printed, columns
from tests.support.ports import free_ports
from tests.support.reference_kafka import reference_kafka
from tests.support.topicwright import Topicwright, fetch, topicwright


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topicwright]:
    with topicwright(tmp_path_factory.mktemp("governed"), brokers="simulated:4") as served:
        yield served


@pytest.fixture(autouse=True)
def at_server(server: Topicwright, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICWRIGHT_HTTP", server.http)


def test_topics_are_listed_by_label_with_their_owner(printed: Printed) -> None:
    printed("topic", "create", "lab.a", "--config", "label.owner=lab")
    printed("topic", "create", "lab.b")
    shown = printed("topic", "label", "lab.a", "description=First, of two", "tier=gold")
    assert shown == ("lab.a is changed:\n  label.description: unset -> First, of two\n  label.tier: unset -> gold\n")
    shown = printed("topics", "lab.a")
    assert "  owner       lab\n  description First, of two\n  tier        gold\n" in shown
    for wanted, names in (("owner=lab", ["lab.a"]), ("tier", ["lab.a"]), ("tier=g", []), ("none", [])):
        assert printed("topics", "--label", wanted, "-o", "name").split() == names
    rows = columns(printed("topics", "lab.*"))
    assert [row[5:] for row in rows[1:]] == [["lab"], ["created", "by", "User:ANONYMOUS"]]
    for command in ("changes", "requests"):
        found = printed(command, "--label", "owner=lab", "-o", "json")
        assert "lab.a" in found
        assert "lab.b" not in found
        assert "lab." not in printed(command, "--label", "owner=nobody", "-o", "json")
    assert "label.tier: gold -> unset" in printed("topic", "label", "lab.a", "--delete", "tier", "--dry-run")
    assert "label.tier: gold -> unset" in printed("topic", "label", "lab.a", "--delete", "tier")
    assert "tier" not in printed("topics", "lab.a")
    assert "nothing to change" in printed("topic", "label", "lab.a", code=2)
    assert "filter of a list" in printed("topics", "lab.a", "--label", "tier", code=2)


def test_a_deleted_topic_is_recreated_with_its_replicas_configs_and_labels(
    printed: Printed, server: Topicwright
) -> None:
    def shape() -> list[object]:
        topic = json.loads(fetch(server.http, "/v1/topics/pay.gone")[1])
        return [topic["configs"], [one["replicas"] for one in topic["partitions"]]]

    configs = ("--config", "label.owner=pay", "--config", "retention.ms=86400000")
    printed("topic", "create", "pay.gone", "--partitions", "3", "--replication-factor", "2", *configs)
    printed("topic", "grow", "pay.gone", "--partitions", "4")
    before = shape()
    assert "was never deleted" in printed("topic", "recreate", "pay.gone", code=2)
    printed("topic", "delete", "pay.gone")
    assert "pay.gone would be created: 4 partitions" in printed("topic", "recreate", "pay.gone", "--dry-run")
    assert fetch(server.http, "/v1/topics/pay.gone")[0] == 404
    assert "Its records are gone" in printed("topic", "recreate", "pay.gone")
    assert shape() == before
    assert "already exists" in printed("topic", "recreate", "pay.gone", code=1)
    printed("topic", "delete", "pay.gone")
    assert "it was created at offset" in printed("topic", "recreate", "pay.gone", "--at", "1", code=1)
    assert "4 partitions, factor 2" in printed("topic", "recreate", "pay.gone", "--new-replicas")


def test_risky_topics_are_reported(printed: Printed) -> None:
    printed("topic", "create", "risk.bare", "--partitions", "2", "--replication-factor", "1")
    printed("topic", "create", "risk.more", "--replication-factor", "1")
    fine = ("--replication-factor", "3", "--config", "label.owner=me")
    printed("topic", "create", "risk.fine", *fine)
    found = json.loads(printed("risks", "-o", "json", code=1))
    risks = {one["name"]: one["risks"] for one in found["topics"]}
    assert risks["risk.bare"] == ["no-owner", "one-replica"]
    assert "risk.fine" not in risks
    printed("topic", "create", "risk.one", "--replication-factor", "1", "--config", "label.owner=me")
    found = json.loads(printed("risks", "--label", "owner=me", "-o", "json", code=1))
    assert [(one["name"], one["risks"]) for one in found["topics"]] == [("risk.one", ["one-replica"])]
    shown = printed("risks", "--limit", "1", code=1)
    assert "one-replica" in shown
    assert "more topics: --limit lists up to 1000" in shown
    assert "'0' is not a number from 1 to 1000" in printed("risks", "--limit", "0", code=2)


def test_topics_without_new_records_are_unused(printed: Printed, tmp_path: Path) -> None:
    old_ms = int((time.time() - 40 * 86_400) * 1000)
    with (
        reference_kafka(tmp_path / "kafka", nodes=1) as kafka,
        topicwright(tmp_path / "served", {"node.id": "9"}, brokers=f"cluster:{kafka.bootstrap}") as server,
    ):
        at = ("--http", server.http)
        for name in ("use.never", "use.old", "use.new"):
            printed("topic", "create", name, "--partitions", "2", "--config", "retention.ms=-1", *at)
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        for value in "abc":
            producer.produce("use.old", value, partition=0, timestamp=old_ms)
        producer.produce("use.new", "d", partition=1)
        assert producer.flush(60) == 0
        unused = ("topics", "--bootstrap", kafka.bootstrap, *at, "--unused")
        assert printed(*unused, "30d", "-o", "name") == "", "all topics are newer"
        now = f"{int(time.time() * 1000) + 1}ms"
        time.sleep(0.01)
        printed("topic", "create", "use.later", *at)
        assert printed(*unused, now, "-o", "name").split() == ["use.never", "use.new", "use.old"]
        printed("topic", "alter", "use.old", "--config", "label.owner=me", *at)
        producer.produce("use.new", "e", partition=0)
        assert producer.flush(60) == 0
        assert printed(*unused, now, "-o", "name").split() == ["use.never", "use.old"]
        assert printed(*unused, now, "-o", "name", "--label", "owner=me").split() == ["use.old"]
        assert "give a time, such as 30d" in printed(*unused, "12", code=2)
        assert "need each other" in printed("topics", "--unused", "30d", *at, code=2)
        port = free_ports(1)[0]
        there = ("topics", "--bootstrap", f"127.0.0.1:{port}", "--unused", now, *at)
        assert f"no answer from the Kafka at 127.0.0.1:{port}" in printed(*there, code=2)


def test_the_demo_runs_on_the_service_of_the_environment(printed: Printed, server: Topicwright) -> None:
    shown = printed("demo")
    assert f"On the service at {server.http}. Watch it in a browser: http://{server.http}/" in shown
    assert "$ topicwright broker stop 3\n" in shown
    assert "all wait for broker 3, fenced since" in shown
    assert "demo.orders is deleted" in printed("topics", "demo.orders", code=1) + shown
