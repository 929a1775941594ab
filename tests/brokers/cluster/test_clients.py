"""Clients that bootstrap at Topicwright and use the brokers of its target cluster; and Kafka's command line tools,
whose results through Topicwright equal those directly at the cluster."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

from tests.brokers.cluster.served import NODE_ID, create, in_front_by, in_front_of, types, until
from tests.support import tools
from tests.support.kafka_tools import KafkaTools, kafka_tools
from tests.support.reference_kafka import CLUSTER_ID, ReferenceKafka
from tests.support.topicwright import Topicwright
from tests.support.wire import Wire


def test_clients_bootstrap_at_topicwright_and_use_the_cluster(server: Topicwright, name: str) -> None:
    start: dict[str, str | int | float | bool] = {"bootstrap.servers": server.kafka}
    admin = AdminClient(start)
    assert create(admin, name)[0] == 0
    listed = admin.list_topics(timeout=10)
    assert set(listed.brokers) == {1, 2, 3}, "each broker must have its own listener"
    with Wire(server.kafka) as wire:  # librdkafka may already use a broker, whose address it got here
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
def test_consumers_of_librdkafka_do_not_hang_on_metadata(
    kafka: ReferenceKafka, server: Topicwright, tmp_path: Path, name: str, ports: str
) -> None:
    """librdkafka waits five minutes for metadata that it requested from a node that it then dropped. Without listeners
    for brokers, client ids distinguish consumers from admin clients."""
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


def test_an_admin_client_with_a_consumer_client_id_is_decided_by_topicwright(
    kafka: ReferenceKafka, tmp_path: Path, name: str
) -> None:
    """librdkafka's clients have the id `rdkafka` by default."""
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nname = "no-forbidden"\ntopics = "*forbidden"\nrefuse = "not here"\n')
    with in_front_of(kafka, tmp_path, topic_rules_file=str(rules)) as server:
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
                assert shown == listeners, "the brokers' own addresses would bypass Topicwright"
                assert "CreateRequested" in types(server, f"{name}-{kind}-{number}"), "not decided by Topicwright"
                assert create(admin, f"{name}-{kind}-{number}-forbidden")[0] == KafkaError.POLICY_VIOLATION
        consumer.close()


def test_java_clients_bootstrap_at_topicwright(here: AdminClient, server: Topicwright, name: str) -> None:
    """An idempotent producer, a consumer group, and a copy from topic to topic in transactions. Each program runs
    in its own JVM."""

    def printed(program: str, *arguments: str) -> str:
        done = tools.run_quietly(
            tools.java_command(tools.server_classpath(), f"org.apache.kafka.tools.{program}", *arguments)
        )
        return done.stdout + done.stderr

    assert (create(here, name, 1)[0], create(here, f"{name}-copy", 1)[0]) == (0, 0)
    begin = ["--bootstrap-server", server.kafka, "--topic", name, "--max-messages", "20"]
    assert '"acked":20' in printed("VerifiableProducer", *begin)
    group = ["--group-id", f"{name}-java", "--reset-policy", "earliest"]
    assert '"maxOffset":19' in printed("VerifiableConsumer", *begin, *group)
    copy = ["--input-topic", name, "--input-partition", "0", "--output-topic", f"{name}-copy"]
    copy += ["--broker-list", server.kafka, "--consumer-group", f"{name}-copier", "--transactional-id", name]
    assert '"remaining":0' in printed("TransactionalMessageCopier", *copy, "--max-messages", "20")


def test_kafka_python_bootstraps_at_topicwright(here: AdminClient, server: Topicwright, name: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    assert create(here, name, 1)[0] == 0
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


def test_sarama_bootstraps_at_topicwright(server: Topicwright, name: str) -> None:
    """Topics, a producer, a consumer group, deleted records, and configs of broker 2."""
    scenario = tools.cached("sarama/scenario")
    done = tools.run_quietly([scenario, server.kafka, name])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "partitions": 1, "factor": 2, "retention_ms": "7200000",
        "consumed": 20, "committed": 20, "newest": 20, "oldest": 5, "broker_id": "2", "gone": True,
    }  # fmt: skip
    assert {"CreateRequested", "TopicDeleted"} < set(types(server, name)), "not decided by Topicwright"


SERVER = "--bootstrap-server"
LOG = "tools-log"
"""The prefix of the topics with the gateway's log."""


class Both(NamedTuple):
    """The tools, with their own topic and both bootstrap addresses."""

    tools: KafkaTools
    topic: str
    kafka: ReferenceKafka
    server: Topicwright
    folder: Path


@pytest.fixture(
    scope="module", params=[(tools.KAFKA_SERVER, "serve"), (tools.KAFKA_SERVERS_OTHER[-1], "gateway")], ids="-".join
)
def both(
    request: pytest.FixtureRequest, kafka: ReferenceKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Both]:
    version, way = request.param
    folder = tmp_path_factory.mktemp("tools")
    topic, running = folder.name, kafka_tools(version)
    with in_front_by(way, kafka, folder / way, LOG) as server:
        made = ["--create", "--topic", topic, "--partitions", "3", "--replication-factor", "2"]
        made += ["--config", "min.insync.replicas=1"]
        code, output = running.run("kafka-topics", SERVER, server.kafka, *made)
        assert code == 0, output
        plan = [{"topic": topic, "partition": 0, "replicas": [2, 1], "log_dirs": ["any", "any"]}]
        for name, content in (
            ("records.json", {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": -1}]}),
            ("topics.json", {"version": 1, "topics": [{"topic": topic}]}),
            ("plan.json", {"version": 1, "partitions": plan}),
        ):
            (folder / name).write_text(json.dumps(content))
        yield Both(running, topic, kafka, server, folder)


ALIKE = """
kafka-get-offsets --topic TOPIC
kafka-get-offsets --topic TOPIC --time earliest
kafka-get-offsets --topic TOPIC --time max-timestamp
kafka-delete-records --offset-json-file FOLDER/records.json
kafka-log-dirs --describe --topic-list TOPIC
kafka-log-dirs --describe --topic-list TOPIC --broker-list 2
kafka-configs --describe --entity-type brokers --entity-name 1 --all
kafka-configs --alter --entity-type brokers --entity-name 1 --add-config log.cleaner.threads=2
kafka-configs --describe --entity-type brokers --entity-name 1
kafka-configs --alter --entity-type brokers --entity-name 1 --delete-config log.cleaner.threads
kafka-configs --describe --entity-type brokers --entity-default
kafka-configs --describe --entity-type broker-loggers --entity-name 2
kafka-configs --alter --entity-type broker-loggers --entity-name 2 --add-config kafka.server.KafkaApis=INFO
kafka-configs --describe --entity-type client-metrics
kafka-configs --alter --entity-type groups --entity-name g --add-config consumer.session.timeout.ms=50000
kafka-configs --describe --entity-type groups --entity-name g
kafka-configs --describe --entity-type topics --entity-name TOPIC
kafka-configs --describe --entity-type users
kafka-reassign-partitions --generate --topics-to-move-json-file FOLDER/topics.json --broker-list 1,2
kafka-reassign-partitions --execute --reassignment-json-file FOLDER/plan.json
kafka-reassign-partitions --verify --reassignment-json-file FOLDER/plan.json
kafka-reassign-partitions --list
kafka-transactions describe-producers --topic TOPIC --partition 0
kafka-transactions find-hanging --broker-id 1
kafka-transactions list
kafka-groups --list
kafka-consumer-groups --list
kafka-consumer-groups --describe --all-groups
kafka-consumer-groups --describe --group g --state
kafka-share-groups --list
kafka-streams-groups --list
kafka-features describe
kafka-cluster cluster-id
kafka-leader-election --election-type preferred --topic TOPIC --partition 0
kafka-metadata-quorum describe --status
kafka-topics --list
kafka-topics --describe --topic TOPIC
kafka-topics --alter --topic TOPIC --partitions 2
"""
MOVING = re.compile(
    r"\d{6,}|Epoch: \d+|(HighWatermark|LeaderEpoch|MaxFollowerLag\w*): +\d+|Current partition.*\n\n.*|Isr: [\d,]+"
)
"""Times, metadata log offsets, a random assignment, and the order of in-sync replicas differ."""
ELIGIBLE = "DYNAMIC_DEFAULT_BROKER_CONFIG:min.insync.replicas=1, "
"""The default that Kafka stores for eligible leader replicas (docs/kafka-differences.md)."""
NOT_HERE = re.compile(rf"{ELIGIBLE}|(^GROUP +TOPIC .*\n)?^{LOG}\..*\n?", re.MULTILINE)
"""Printed only directly at the cluster: that default, the topics with the gateway's log, and the workers' group."""


@pytest.mark.parametrize("line", ALIKE.strip().splitlines())
def test_kafka_tools_print_the_same_directly_and_through_topicwright(both: Both, line: str) -> None:
    line = line.replace("TOPIC", both.topic).replace("FOLDER", str(both.folder))
    tool, *words = line.split()

    def through(bootstrap: str) -> tuple[int, str]:
        at = words.index("cluster-id") + 1 if "cluster-id" in words else 0
        code, output = both.tools.run(tool, *words[:at], SERVER, bootstrap, *words[at:])
        alike = MOVING.sub("…", NOT_HERE.sub("", output)).strip()
        if "--list" in words:  # brokers answer in any order
            alike = "\n".join(sorted(alike.splitlines()))
        return code, alike

    def ways() -> tuple[tuple[int, str], tuple[int, str]]:
        return through(both.kafka.bootstrap), through(both.server.kafka)

    until(ways, lambda found: found[0] == found[1], within_s=60)
