"""A real Kafka cluster as the target: topics created, changed and deleted through Topicwright and directly."""

import json
import os
import signal
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigResource, NewPartitions, NewTopic  # type: ignore[attr-defined]

from controller.cli.main import main
from controller.machine.commands.commands import CreatePartitions, CreateTopic, DeleteTopic, DryRunResult
from events.names import TopicId, TopicName
from tests.brokers.cluster.served import (
    SETTINGS,
    create,
    in_front_of,
    now_ms,
    record,
    replicas,
    seen,
    set_config,
    types,
    until,
)
from tests.support.reference_kafka import ReferenceKafka
from tests.support.topicwright import Topicwright, fetch


def test_requests_are_applied_by_the_cluster(
    here: AdminClient, there: AdminClient, server: Topicwright, name: str
) -> None:
    assert create(here, name, 2, 3, **{"retention.ms": "60000"}) == (0, "")
    topic = there.list_topics(name, timeout=10).topics[name]
    assert {index: len(one.replicas) for index, one in topic.partitions.items()} == {0: 3, 1: 3}
    assert replicas(there, name) == [one["replicas"] for one in seen(server, f"/v1/topics/{name}")["partitions"]]

    here.create_partitions([NewPartitions(name, 4)])[name].result(30)
    until(lambda: replicas(there, name), lambda found: len(found) == 4)
    set_config(here, name, "retention.ms", "5000")
    described = ConfigResource(ConfigResource.Type.TOPIC, name)
    assert until(lambda: there.describe_configs([described])[described].result(10)["retention.ms"].value == "5000")

    here.delete_topics([name])[name].result(30)
    until(lambda: name not in there.list_topics(timeout=10).topics)
    there.create_topics([NewTopic(f"{name}-later", 1, 1)])[f"{name}-later"].result(30)
    until(lambda: seen(server, f"/v1/topics/{name}-later"))  # so the cluster was polled since
    recorded, observed = types(server, name), {"TopicDiscovered", "MetadataPropagated"}
    assert observed < set(recorded), "polls must have recorded both"
    assert [kind for kind in recorded if kind not in observed] == [
        "CreateRequested", "TopicCreated", "TopicReady", "CreateAnswered", "PartitionsAdded", "ChangeCarriedOut",
        "TopicConfigsChanged", "ChangeCarriedOut", "TopicDeleted", "ChangeCarriedOut",
    ]  # fmt: skip


def test_refusals_of_the_cluster_are_rejections(
    here: AdminClient, there: AdminClient, server: Topicwright, name: str
) -> None:
    refused = f"refused-{name}"
    assert create(here, refused) == (KafkaError.POLICY_VIOLATION, f"no topic may be called {refused}")
    events = seen(server, f"/v1/events?topic={refused}")["events"]
    rejected = next(event["fields"] for event in events if event["type"] == "CreateRejected")
    assert (rejected["rule"], rejected["error_code"]) == ("cluster", KafkaError.POLICY_VIOLATION)

    there.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    code, _ = create(here, name)
    assert code == KafkaError.TOPIC_ALREADY_EXISTS
    until(lambda: seen(server, f"/v1/topics/{name}"))


def test_external_changes_of_the_cluster_are_discovered(there: AdminClient, server: Topicwright, name: str) -> None:
    there.create_topics([NewTopic(name, 1, 2, config={"retention.ms": "60000"})])[name].result(30)
    until(
        lambda: seen(server, f"/v1/topics/{name}"),
        lambda topic: topic and (topic["status"], topic["configs"]) == ("ready", {"retention.ms": "60000"}),
    )
    there.create_partitions([NewPartitions(name, 3)])[name].result(30)
    until(lambda: seen(server, f"/v1/topics/{name}"), lambda topic: len(topic["partitions"]) == 3)
    set_config(there, name, "retention.ms", "7000")
    until(lambda: seen(server, f"/v1/topics/{name}"), lambda topic: topic["configs"] == {"retention.ms": "7000"})
    there.delete_topics([name])[name].result(30)
    until(lambda: seen(server, f"/v1/topics/{name}") is None)
    assert [kind for kind, _ in groupby(types(server, name))] == ["TopicDiscovered", "TopicVanished"]


def test_a_broker_with_all_log_directories_cordoned_gets_no_new_replicas(
    here: AdminClient, there: AdminClient, server: Topicwright, name: str
) -> None:
    cordon = partial(set_config, there, "2", "cordoned.log.dirs", "*", kind=ConfigResource.Type.BROKER)
    cordon()
    try:
        until(lambda: seen(server, "/v1/brokers/2")["cordoned"])
        assert create(here, name, 6, 2) == (0, "")
        assert {replica for one in replicas(there, name) for replica in one} == {1, 3}
        code, message = create(here, f"{name}-wide", 1, 3)
        assert code == KafkaError.INVALID_REPLICATION_FACTOR
        assert "all their log directories cordoned" in message
    finally:
        cordon(step=AlterConfigOpType.DELETE)
    until(lambda: not seen(server, "/v1/brokers/2")["cordoned"])
    assert create(here, f"{name}-later", 1, 3) == (0, "")


def test_a_target_broker_fails_and_returns(
    kafka: ReferenceKafka, there: AdminClient, tmp_path: Path, name: str
) -> None:
    """Also KIP-409: with one of three brokers down, a topic of factor 3 is created on two brokers and filled later."""
    allowed = {"enable_under_replicated_topic_creation": "true"}
    with in_front_of(kafka, tmp_path, **allowed) as server:
        here = AdminClient({"bootstrap.servers": server.kafka})
        assert create(here, f"{name}-before", 3, 3)[0] == 0
        kafka.stop_broker(3)
        try:
            until(lambda: seen(server, "/v1/brokers")["brokers"][2]["fenced"])
            led = until(
                lambda: [one["leader"] for one in seen(server, f"/v1/topics/{name}-before")["partitions"]],
                lambda leaders: 3 not in leaders,
            )
            assert set(led) <= {1, 2}
            assert create(here, name, 2, 3) == (0, "")
            partitions = seen(server, f"/v1/topics/{name}")["partitions"]
            assert all(sorted(one["replicas"]) == [-1, 1, 2] for one in partitions)
            assert all(sorted(one) == [1, 2] for one in replicas(there, name))
        finally:
            kafka.start_broker(3)
        until(lambda: all(sorted(one) == [1, 2, 3] for one in replicas(there, name)), within_s=240)
        whole = until(
            lambda: [sorted(one["isr"]) for one in seen(server, f"/v1/topics/{name}")["partitions"]],
            lambda isr: isr == [[1, 2, 3]] * 2,
        )
        assert whole, "not all replicas are in sync"
        events = seen(server, f"/v1/events?topic={name}&limit=500")["events"]
        assert any("broker 3 replaces placeholder -1" in event["text"] for event in events)
        until(lambda: seen(server, f"/v1/topics/{name}-before")["status"], lambda status: status == "ready")


def test_requests_fail_while_the_cluster_is_unreachable(
    kafka: ReferenceKafka, here: AdminClient, server: Topicwright, name: str
) -> None:
    assert create(here, f"{name}-before")[0] == 0
    before = len(server.process.output)
    os.killpg(kafka.process.pid, signal.SIGSTOP)
    try:
        future = here.create_topics([NewTopic(name, 1, 3)], operation_timeout=4, request_timeout=30)[name]
        with pytest.raises(KafkaException) as refused:
            future.result(40)
        assert refused.value.args[0].code() == KafkaError.REQUEST_TIMED_OUT
        until(lambda: "the cluster cannot be reached" in server.process.output[before:])
        status, body = fetch(server.http, "/health/ready")
        assert status == 503
        assert "the cluster cannot be reached" in json.loads(body)["reason"]
    finally:
        os.killpg(kafka.process.pid, signal.SIGCONT)
    until(lambda: "the cluster can be reached again" in server.process.output[before:])
    until(lambda: create(here, f"{name}-after")[0] == 0, within_s=240)


def test_unfinished_changes_of_a_dead_process_are_resumed(
    kafka: ReferenceKafka, there: AdminClient, tmp_path: Path, name: str
) -> None:
    """The process died after its decisions; the cluster had applied only one of them."""
    made, grown, gone, done = (f"{name}-{each}" for each in ("made", "grown", "gone", "done"))
    with in_front_of(kafka, tmp_path) as server:
        admin = AdminClient({"bootstrap.servers": server.kafka})
        assert [create(admin, each, 1)[0] for each in (grown, gone, done)] == [0, 0, 0]
    there.delete_topics([done])[done].result(30)
    until(lambda: done not in there.list_topics(timeout=10).topics)
    requests: list[dict[str, Any]] = [
        {"request_id": f"dead-{number}", "dry_run": DryRunResult()} for number in range(4)
    ]
    record(
        server.data,
        CreateTopic(
            **requests[0], at_ms=now_ms(), topic=TopicName(made), topic_id=TopicId(b"m" * 16), num_partitions=2
        ),
        CreatePartitions(**requests[1], at_ms=now_ms(), topic=TopicName(grown), count=3),
        DeleteTopic(**requests[2], at_ms=now_ms(), topic=TopicName(gone)),
        DeleteTopic(**requests[3], at_ms=now_ms(), topic=TopicName(done)),
    )
    with in_front_of(kafka, tmp_path) as again:
        for each in (gone, done):
            until(lambda: types(again, each)[-2:] == ["TopicDeleted", "ChangeCarriedOut"])  # noqa: B023
        until(lambda: types(again, grown)[-2:] == ["PartitionsAdded", "ChangeCarriedOut"])
        until(lambda: seen(again, f"/v1/topics/{made}")["status"] == "ready")
        until(lambda: gone not in there.list_topics(timeout=30).topics)
        assert (len(replicas(there, made)), len(replicas(there, grown))) == (2, 3)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"node.id": "2"}, "node.id=2 is the id of a broker of the target cluster (1, 2, 3)"),
        ({"cluster.id": "another"}, "cluster.id=another is not the id of the target cluster"),
        ({"cluster.client.properties.file": "nowhere.properties"}, "nowhere.properties cannot be read"),
    ],
)
def test_settings_that_conflict_with_the_cluster_are_reported(
    kafka: ReferenceKafka,
    tmp_path: Path,
    settings: dict[str, str],
    error: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [word for key, value in (SETTINGS | settings).items() for word in ("--set", f"{key}={value}")]
    places = ["--data", str(tmp_path / "data"), "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    assert main(["serve", *places, "--brokers", f"cluster:{kafka.bootstrap}", *given]) == 2
    assert error in capsys.readouterr().err
