"""Consoles and administration tools read everything from a service with simulated brokers, without an error: Kafka's
own tools, librdkafka's admin client and kafka-python's."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType  # type: ignore[attr-defined]
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource as KafkaPythonResource
from kafka.admin import ConfigResourceType

from tests.support.kafka_tools import FAILED_READS, failed_reads, run_tools
from tests.support.reference_kafka import TRANSACTIONS, reference_kafka
from tests.support.topicwright import Topicwright, topicwright
from tests.support.wire import Wire

TOOLS = (
    ("log-dirs --describe", '"logDir":"simulated"'),
    ("metadata-quorum describe --status", "LeaderId:               0"),
    ("metadata-quorum describe --replication", "Leader"),
    ("leader-election --election-type preferred --all-topic-partitions", ""),
    ("leader-election --election-type preferred --topic {topic} --partition 0", "Valid replica already elected"),
    ("transactions list", "TransactionalId"),
    ("transactions describe-producers --topic {topic} --partition 0", "ProducerId"),
    ("transactions find-hanging --broker-id 1", "Topic"),
    ("groups --list", "GROUP"),
    ("consumer-groups --list", ""),
    ("consumer-groups --describe --all-groups", ""),
    ("share-groups --list", ""),
    ("share-groups --describe --all-groups", ""),
    ("streams-groups --list", ""),
    ("streams-groups --describe --all-groups", ""),
    ("configs --describe --entity-type topics", "Dynamic configs for topic"),
    ("configs --describe --entity-type brokers", "Default configs for brokers"),
    ("configs --describe --entity-type broker-loggers --entity-name 1", "root=INFO"),
    ("configs --describe --entity-type users", ""),
    ("configs --describe --entity-type groups", ""),
    ("configs --alter --entity-type client-metrics --entity-name {topic} --add-config interval.ms=1000", "Completed"),
    ("configs --describe --entity-type client-metrics", "interval.ms=1000"),
    ("client-metrics --list", "{topic}"),
    ("client-metrics --describe", "interval.ms=1000"),
    ("configs --alter --entity-type client-metrics --entity-name {topic} --delete-config interval.ms", "Completed"),
    ("features describe", "Feature: metadata.version"),
    ("features upgrade --feature metadata.version=33", "was upgraded to 33"),
    ("get-offsets --topic {topic}", "{topic}:0:0"),
    ("reassign-partitions --list", "No partition reassignments found."),
    ("topics --describe --topic {topic}", "PartitionCount: 2"),
)


def create(bootstrap: str, topic: str) -> None:
    with Wire(bootstrap) as wire:
        wanted = {"name": topic, "num_partitions": 2, "replication_factor": 3, "assignments": [], "configs": []}
        wire.call("CreateTopics", 7, topics=[wanted], timeout_ms=60_000, validate_only=False)


@pytest.fixture
def created(topicwright_server: Topicwright, topic: str) -> str:
    create(topicwright_server.kafka, topic)
    return topic


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a simulated broker with a listener of its own."""
    settings = {"simulated.broker.listeners": "true"}
    with topicwright(tmp_path_factory.mktemp("listeners") / "server", settings) as running, Wire(running.kafka) as wire:
        found = wire.call("Metadata", 12, topics=[])
        one = next(each for each in found["brokers"] if each["node_id"] != found["controller_id"])
        yield f"{one['host']}:{one['port']}"


@pytest.mark.parametrize("at", ["service", "broker"])
def test_kafka_tools(at: str, topicwright_server: Topicwright, broker: str, topic: str) -> None:
    bootstrap = broker if at == "broker" else topicwright_server.kafka
    run_tools(bootstrap, ("topics", "--create", "--topic", topic, "--partitions", "2", "--replication-factor", "3"))
    commands = [(command.format(topic=topic), text.format(topic=topic)) for command, text in TOOLS]
    done = run_tools(bootstrap, *(command.split() for command, _ in commands))
    wrong = [
        (command, code, output)
        for (command, text), (code, output) in zip(commands, done, strict=True)
        if code or text not in output or "Exception" in output
    ]
    assert not wrong, "\n".join(map(str, wrong))


@pytest.fixture(params=["kafka", "topicwright"])
def read(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """HOST:PORT of Topicwright, and of a Kafka of its own: Kafka creates a topic when transactions are described, which
    other tests of a shared one do not expect."""
    if request.param == "topicwright":
        yield request.getfixturevalue("topicwright_server").kafka
        return
    with reference_kafka(tmp_path / "kafka", **TRANSACTIONS) as kafka:
        yield kafka.bootstrap


def test_every_read_of_javas_admin_client(read: str, topic: str) -> None:
    create(read, topic)
    assert failed_reads(read, topic) == FAILED_READS


def test_librdkafka_admin_client(topicwright_server: Topicwright, created: str) -> None:
    admin: Any = AdminClient({"bootstrap.servers": topicwright_server.kafka})
    assert admin.list_consumer_groups().result(60).valid == []
    assert [each.topic for each in admin.list_topics(created, timeout=60).topics.values()] == [created]
    latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    (offset,) = admin.list_offsets({TopicPartition(created, 0): latest}).values()
    assert offset.result(60).offset == 0
    assert len(admin.describe_cluster().result(60).nodes) == 3
    for kind, name in ((ResourceType.TOPIC, created), (ResourceType.BROKER, "1"), (ResourceType.GROUP, "g")):
        (found,) = admin.describe_configs([ConfigResource(kind, name)]).values()
        assert found.result(60)
    (group,) = admin.describe_consumer_groups(["g"]).values()
    assert group.result(60).state.name == "DEAD"
    assert admin.describe_user_scram_credentials().result(60) == {}


def test_kafka_python_admin_client(topicwright_server: Topicwright, created: str) -> None:
    admin: Any = KafkaAdminClient(bootstrap_servers=topicwright_server.kafka)
    try:
        assert admin.list_groups() == []
        assert set(map(tuple, admin.list_transactions().values())) == {()}
        for read in (
            admin.describe_cluster,
            admin.describe_features,
            admin.describe_log_dirs,
            admin.describe_metadata_quorum,
            admin.describe_topics,
            admin.list_config_resources,
            admin.list_partition_reassignments,
        ):
            assert read() is not None, read
        resources = [KafkaPythonResource(ConfigResourceType.TOPIC, created)]
        assert admin.describe_configs(resources)
    finally:
        admin.close()
