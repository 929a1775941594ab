"""Clients that bootstrap at Topicwright and work with the brokers of its target cluster."""

from __future__ import annotations

import json
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

from tests.brokers.cluster.served import NODE_ID, create, in_front_of, types
from tests.support import tools
from tests.support.reference_kafka import CLUSTER_ID, ReferenceKafka
from tests.support.topicwright import Topicwright
from tests.support.wire import Wire


def test_clients_bootstrap_here_and_use_the_cluster(server: Topicwright, name: str) -> None:
    start: dict[str, str | int | float | bool] = {"bootstrap.servers": server.kafka}
    admin = AdminClient(start)
    assert create(admin, name)[0] == 0
    listed = admin.list_topics(timeout=10)
    assert set(listed.brokers) == {1, 2, 3}, "each at its listener here"
    with Wire(server.kafka) as wire:  # librdkafka may already ask a broker, whose address it learned here
        named = wire.call("Metadata", 9, topics=[{"name": name}])["brokers"]
    assert {each["node_id"] for each in named} == {1, 2, 3, NODE_ID}
    assert listed.cluster_id == CLUSTER_ID

    plain = Producer({**start, "enable.idempotence": True})
    for number in range(20):
        plain.produce(name, f"{number}")
    assert plain.flush(30) == 0
    exactly = Producer({**start, "transactional.id": name})
    exactly.init_transactions(60)
    exactly.begin_transaction()
    exactly.produce(name, "committed")
    exactly.commit_transaction(30)
    exactly.begin_transaction()
    exactly.produce(name, "aborted")
    exactly.abort_transaction(30)

    consumer = Consumer({**start, "group.id": name, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([name])
    values: list[bytes] = []
    deadline = time.monotonic() + 240
    while len(values) < 21 and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            values.append(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    assert sorted(values) == sorted([*(f"{n}".encode() for n in range(20)), b"committed"])
    assert name in {group.group_id for group in admin.list_consumer_groups().result(30).valid}


@pytest.mark.parametrize("ports", ["any", "none"])
def test_no_consumer_of_many_hangs(
    kafka: ReferenceKafka, server: Topicwright, tmp_path: Path, name: str, ports: str
) -> None:
    """librdkafka waits five minutes for metadata that it requested of a node which it then dropped. Without ports for
    brokers a client's id tells consumers from admin clients."""
    with nullcontext(server) if ports == "any" else in_front_of(kafka, tmp_path, cluster_broker_ports=ports) as served:
        start: dict[str, str | int | float | bool] = {"bootstrap.servers": served.kafka}
        assert create(AdminClient(start), name)[0] == 0
        producer = Producer(start)
        producer.produce(name, "one")
        assert producer.flush(60) == 0
        ids = ["rdkafka"] * 12 + ([f"consumer-{number}" for number in range(12)] if ports == "none" else [])
        for number, client_id in enumerate(ids):
            own = {"client.id": client_id, "group.id": f"{name}-{number}"}
            consumer = Consumer({**start, **own, "auto.offset.reset": "earliest"})
            consumer.subscribe([name])
            message = consumer.poll(120)
            consumer.close()
            assert message is not None, number
            assert message.value() == b"one"


def test_admin_client_with_the_client_id_of_consumers_is_decided_here(
    kafka: ReferenceKafka, tmp_path: Path, name: str
) -> None:
    """librdkafka's clients share the id `rdkafka` unless they are given another."""
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nname = "no-forbidden"\ntopics = "*forbidden"\nrefuse = "not here"\n')
    policy = "controller.policy.rules.TopicRules"
    with in_front_of(kafka, tmp_path, create_topic_policy_class_name=policy, topic_rules_file=str(rules)) as server:
        start: dict[str, str | int | float | bool] = {"bootstrap.servers": server.kafka}
        old = AdminClient({**start, "topic.metadata.refresh.interval.ms": 300})
        assert create(old, name)[0] == 0
        listeners = {broker.port for broker in old.list_topics(timeout=10).brokers.values()}
        consumer = Consumer({**start, "group.id": name, "auto.offset.reset": "earliest"})
        consumer.subscribe([name])
        producer = Producer(start)
        new = AdminClient(start)
        for number in range(5):
            producer.produce(name, "one")
            assert producer.flush(60) == 0
            assert consumer.poll(120) is not None
            for kind, admin in (("old", old), ("new", new)):
                assert create(admin, f"{name}-{kind}-{number}")[0] == 0
                shown = {broker.port for broker in admin.list_topics(timeout=10).brokers.values()}
                assert shown == listeners, "not the brokers' own addresses, to which it would send changes"
                assert "CreateRequested" in types(server, f"{name}-{kind}-{number}"), "decided here"
                assert create(admin, f"{name}-{kind}-{number}-forbidden")[0] == KafkaError.POLICY_VIOLATION
        consumer.close()


def test_java_clients_bootstrap_here(server: Topicwright, name: str) -> None:
    """An idempotent producer, a consumer group, and a copy from topic to topic in transactions. Each program ends its
    JVM, and prints the last when it does."""

    def printed(program: str, *arguments: str) -> str:
        done = tools.run_quietly(
            tools.java_command(tools.server_classpath(), f"org.apache.kafka.tools.{program}", *arguments)
        )
        return done.stdout + done.stderr

    admin = AdminClient({"bootstrap.servers": server.kafka})
    assert (create(admin, name, 1)[0], create(admin, f"{name}-copy", 1)[0]) == (0, 0)
    begin = ["--bootstrap-server", server.kafka, "--topic", name, "--max-messages", "20"]
    assert '"acked":20' in printed("VerifiableProducer", *begin)
    group = ["--group-id", f"{name}-java", "--reset-policy", "earliest"]
    assert '"maxOffset":19' in printed("VerifiableConsumer", *begin, *group)
    copy = ["--input-topic", name, "--input-partition", "0", "--output-topic", f"{name}-copy"]
    copy += ["--broker-list", server.kafka, "--consumer-group", f"{name}-copier", "--transactional-id", name]
    assert '"remaining":0' in printed("TransactionalMessageCopier", *copy, "--max-messages", "20")


def test_kafka_python_bootstraps_here(server: Topicwright, name: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    assert create(AdminClient({"bootstrap.servers": server.kafka}), name, 1)[0] == 0
    producer = KafkaProducer(bootstrap_servers=server.kafka)
    for number in range(20):
        producer.send(name, f"{number}".encode()).get(30)
    producer.close()
    where = {"bootstrap_servers": server.kafka, "group_id": f"{name}-py", "auto_offset_reset": "earliest"}
    consumer = KafkaConsumer(name, **where, consumer_timeout_ms=60_000)
    values = [next(consumer).value for _ in range(20)]
    consumer.commit()
    consumer.close()
    assert values == [f"{number}".encode() for number in range(20)]


def test_sarama_that_begins_here(server: Topicwright, name: str) -> None:
    """Topics, a producer, a consumer group, deleted records, and configs of broker 2."""
    scenario = tools.cached("sarama/scenario")
    done = tools.run_quietly([scenario, server.kafka, name])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "partitions": 1, "factor": 2, "retention_ms": "7200000",
        "consumed": 20, "committed": 20, "newest": 20, "oldest": 5, "broker_id": "2", "gone": True,
    }  # fmt: skip
    assert {"CreateRequested", "TopicDeleted"} < set(types(server, name)), "decided here"
