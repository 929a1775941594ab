"""Kafka Connect, MirrorMaker 2 and Kafka Streams bootstrap only at Topicwright and use the cluster behind it. Connect
is tested with `serve`, MirrorMaker (which runs in Connect) with a gateway of workers, and Streams with both."""

import json
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from tests.brokers.cluster.served import create, in_front_by, seen, set_config, types, until
from tests.support import tools
from tests.support.processes import Process
from tests.support.reference_kafka import ReferenceKafka, reference_kafka
from tests.support.topicwright import Topicwright

SOURCES = tools.ROOT / "tests/clients/java/applications"
STRINGS = "org.apache.kafka.connect.storage.StringConverter"
RULES = """
[[rule]]
name = "no-forbidden"
topics = "*forbidden"
refuse = "this topic is not to be mirrored"
"""


@dataclass(frozen=True, slots=True)
class InFront:
    """Topicwright in front of the cluster, and the JVM for applications; `way` sets names apart."""

    way: str
    server: Topicwright
    admin: AdminClient
    process: Process
    folder: Path

    @contextmanager
    def running(self, kind: str, **settings: str) -> Iterator[None]:
        """Run an application with these properties; `__` stands for a dot in their names."""
        file = self.folder / f"{self.way}-{kind}.properties"
        file.write_text("".join(f"{key.replace('__', '.')}={value}\n" for key, value in settings.items()))
        self.process.write_line(f"start {kind} {file}")
        self.process.wait_for_line("^done start", within_s=240)
        yield
        self.process.write_line(f"stop {file}")
        self.process.wait_for_line("^done stop", within_s=240)

    def was_created_here(self, topic: str) -> None:
        """Check that Topicwright decided the create of this topic."""
        until(lambda: seen(self.server, f"/v1/topics/{topic}"), lambda found: found and found["status"] == "ready")
        assert "TopicCreated" in types(self.server, topic), topic


@pytest.fixture(scope="module")
def applications(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    classpath = tools.compile_java(SOURCES, tools.applications_classpath())
    argv = tools.java_command(classpath, "Applications", heap="512m")
    with Process(argv, cwd=tmp_path_factory.mktemp("applications")) as process:
        yield process
        process.kill()  # MirrorMaker does not stop its threads


@pytest.fixture(scope="module")
def gateway(
    request: pytest.FixtureRequest,
    kafka: ReferenceKafka,
    applications: Process,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[InFront]:
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "rules.toml").write_text(RULES)
    rules = {"topic_rules_file": str(folder / "rules.toml")}
    with in_front_by(request.param, kafka, folder, "applications", **rules) as server:
        yield InFront(request.param, server, admin_of(server), applications, folder)


def through(*ways: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("gateway", ways, indirect=True, scope="module")


def admin_of(server: Topicwright | ReferenceKafka) -> AdminClient:
    """An admin client whose client id differs from those of consumers on this host (docs/cluster.md)."""
    return AdminClient({"bootstrap.servers": server.bootstrap, "client.id": "admin"})


@through("serve")
def test_kafka_connect_copies_a_file_through_a_topic(gateway: InFront) -> None:
    topic, source, sink = f"connect-{gateway.way}", gateway.folder / "source.txt", gateway.folder / "sink.txt"
    source.write_text("one\ntwo\n")
    internal = {f"{kind}__storage__topic": f"{topic}-{kind}" for kind in ("config", "offset", "status")}
    with gateway.running(
        "connect",
        bootstrap__servers=gateway.server.kafka,
        group__id=topic,
        listeners="http://127.0.0.1:0",
        plugin__discovery="service_load",
        key__converter=STRINGS,
        value__converter=STRINGS,
        offset__flush__interval__ms="500",
        offset__storage__partitions="2",
        status__storage__partitions="1",
        **internal,
    ):
        url = gateway.process.output.rpartition("listens at ")[2].split()[0]
        file = "org.apache.kafka.connect.file.FileStream"
        into = {"connector.class": f"{file}SourceConnector", "file": source, "topic": topic}
        into |= {"topic.creation.default.partitions": 2, "topic.creation.default.replication.factor": 3}
        put(f"{url}connectors/source/config", into)
        put(f"{url}connectors/sink/config", {"connector.class": f"{file}SinkConnector", "file": sink, "topics": topic})
        until(lambda: sink.exists() and sorted(sink.read_text().split()), lambda found: found == ["one", "two"])
        with source.open("a") as more:
            more.write("three\n")
        until(lambda: sorted(sink.read_text().split()), lambda found: found == ["one", "three", "two"])
    for each in (topic, *internal.values()):
        gateway.was_created_here(each)


def put(url: str, config: Mapping[str, object]) -> None:
    content = json.dumps({key: str(value) for key, value in config.items()}).encode()
    headers = {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, content, headers, method="PUT"), timeout=240) as answer:
        assert answer.status == 201


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceKafka]:
    """A second Kafka, whose topics are mirrored into the cluster."""
    with reference_kafka(tmp_path_factory.mktemp("other") / "kafka", nodes=1) as running:
        yield running


@through("gateway")
def test_mirrormaker_2_mirrors_topics_and_their_changes(gateway: InFront, other: ReferenceKafka) -> None:
    there, way = admin_of(other), gateway.way
    orders, payments, forbidden = (f"{way}-{each}" for each in ("orders", "payments", "forbidden"))
    for each in (orders, forbidden):
        assert create(there, each, 1, 1)[0] == 0
    send(other.bootstrap, orders, "one", "two")
    with gateway.running(
        "mirror",
        clusters=f"{way},cluster",
        **{f"{way}__bootstrap__servers": other.bootstrap, f"{way}->cluster.enabled": "true"},
        cluster__bootstrap__servers=gateway.server.kafka,
        topics=f"{way}-.*",
        plugin__discovery="service_load",
        refresh__topics__interval__seconds="1",
        sync__topic__configs__interval__seconds="1",
        **{"offset-syncs.topic.location": "target"},
    ):
        receive(gateway.server.kafka, f"{way}.{orders}", b"one", b"two")
        there.create_partitions([NewPartitions(orders, 3)])[orders].result(30)
        set_config(there, orders, "retention.ms", "12345678")
        assert create(there, payments, 1, 1)[0] == 0
        send(other.bootstrap, payments, "three")
        receive(gateway.server.kafka, f"{way}.{payments}", b"three")
        until(
            lambda: seen(gateway.server, f"/v1/topics/{way}.{orders}"),
            lambda topic: len(topic["partitions"]) == 3 and topic["configs"].get("retention.ms") == "12345678",
        )
    events = seen(gateway.server, f"/v1/events?topic={way}.{forbidden}")["events"]
    rejected = next(event["fields"] for event in events if event["type"] == "CreateRejected")
    assert rejected["rule"] == "policy:rules/no-forbidden"
    assert {"TopicCreated", "PartitionsAdded", "TopicConfigsChanged"} <= set(types(gateway.server, f"{way}.{orders}"))
    for each in (f"{way}.{payments}", *(f"mm2-{kind}.{way}.internal" for kind in ("configs", "offsets", "status"))):
        gateway.was_created_here(each)


@through("serve", "gateway")
def test_kafka_streams_continues_counting_after_restarts(gateway: InFront) -> None:
    name = f"streams-{gateway.way}"
    given, counts = f"{name}-input", f"{name}-output"
    for each in (given, counts):
        assert create(gateway.admin, each)[0] == 0
    strings = "org.apache.kafka.common.serialization.Serdes$StringSerde"
    for run in range(3):
        with gateway.running(
            "streams",
            bootstrap__servers=gateway.server.kafka,
            application__id=name,
            state__dir=str(gateway.folder / "state"),
            default__key__serde=strings,
            default__value__serde=strings,
            auto__offset__reset="earliest",
            processing__guarantee="exactly_once_v2",
            input=given,
            output=counts,
            **({"forget": "true"} if run == 2 else {}),  # so that the count is restored from the changelog
        ):
            send(gateway.server.kafka, given, *["word"] * 5)
            receive(gateway.server.kafka, counts, (5 * (run + 1)).to_bytes(8))
    for each in ("words-repartition", "counts-changelog"):
        gateway.was_created_here(f"{name}-{each}")


def send(bootstrap: str, topic: str, *values: str) -> None:
    """Produce records; returns when they are acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for each in values:
        producer.produce(topic, each)
    assert producer.flush(120) == 0


def receive(bootstrap: str, topic: str, *values: bytes) -> None:
    """Consume a topic from its beginning until these values have been read."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "topic.metadata.refresh.interval.ms": 500,
    })  # fmt: skip
    consumer.subscribe([topic])
    missing = set(values)

    def poll() -> set[bytes]:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            missing.discard(message.value() or b"")
        return missing

    until(poll, lambda left: not left)
    consumer.close()
