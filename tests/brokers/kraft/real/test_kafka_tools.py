"""Kafka's own command line tools, unchanged, with Kafka brokers that Topicwright leads."""

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.kafka_tools import KafkaTools, kafka_tools
from tests.support.real_brokers import RealCluster, until
from tests.support.topicwright import command, fetch


class ToolsAt(NamedTuple):
    """The tools, with the addresses of the brokers and of the controller."""

    tools: KafkaTools
    cluster: RealCluster

    def run(self, tool: str, *arguments: str, code: int | None = 0, controller: bool = False) -> str:
        """Run a tool; returns its output. With `controller` it connects to the controller instead of the brokers.
        `code` is the expected exit code, None if the tool's exit code has no meaning."""
        at = ("--bootstrap-controller", self.cluster.address)
        at = at if controller else ("--bootstrap-server", self.cluster.bootstrap)
        found, output = self.tools.run(tool, *at, *arguments)
        assert code in (None, found), f"{tool} {' '.join(arguments)}: exit code {found}\n{output}"
        return output


@pytest.fixture
def kafka(cluster: RealCluster) -> ToolsAt:
    return ToolsAt(kafka_tools(), cluster)


def partitions(output: str) -> dict[int, tuple[int, str, set[str]]]:
    """Partition → leader, replicas and ISR, from the output of kafka-topics."""
    found = re.findall(r"Partition: (\d+)\s+Leader: (\S+)\s+Replicas: (\S+)\s+Isr: (\S*)", output)
    return {
        int(index): (-1 if leader == "none" else int(leader), replicas, set(filter(None, isr.split(","))))
        for index, leader, replicas, isr in found
    }


def test_kafka_topics_creates_alters_and_deletes_topics(kafka: ToolsAt) -> None:
    kafka.run("kafka-topics", "--create", "--topic", "made", "--partitions", "3", "--replication-factor", "3")

    def described() -> dict[int, tuple[int, str, set[str]]]:
        return partitions(kafka.run("kafka-topics", "--describe", "--topic", "made"))

    until(lambda: [len(isr) for _, _, isr in described().values()] == [3] * 3, 120, "all replicas are in sync")
    assert [len(replicas.split(",")) for _, replicas, _ in described().values()] == [3] * 3
    assert sorted(leader for leader, _, _ in described().values()) == [1, 2, 3], "leaders are not balanced"
    twice = kafka.run("kafka-topics", "--create", "--topic", "made", code=1)
    assert "Topic 'made' already exists" in twice
    kafka.run("kafka-topics", "--alter", "--topic", "made", "--partitions", "5")
    until(lambda: len(described()) == 5, 120, "5 partitions")
    kafka.run("kafka-topics", "--delete", "--topic", "made")
    until(lambda: "made" not in kafka.run("kafka-topics", "--list").split(), 120, "the topic is gone")
    kafka.run("kafka-topics", "--create", "--topic", "made", "--partitions", "1", "--replication-factor", "3")


def test_brokers_with_all_log_directories_cordoned_get_no_new_replicas(kafka: ToolsAt) -> None:
    broker = ("--entity-type", "brokers", "--entity-name", "1")

    def brokers_of(topic: str) -> set[int]:
        described = partitions(kafka.run("kafka-topics", "--describe", "--topic", topic))
        return {int(broker_id) for _, replicas, _ in described.values() for broker_id in replicas.split(",")}

    def cordoned() -> list[int]:
        brokers = json.loads(fetch(kafka.cluster.http, "/v1/brokers")[1])["brokers"]
        return [one["broker_id"] for one in brokers if one["cordoned"]]

    def create(name: str, *options: str, code: int = 0) -> str:
        return kafka.run("kafka-topics", "--create", "--topic", name, *options, code=code)

    kafka.run("kafka-configs", *broker, "--alter", "--add-config", "cordoned.log.dirs=*")
    until(lambda: cordoned() == [1], 60, "broker 1 is cordoned")
    create("drained", "--partitions", "30", "--replication-factor", "1")
    kafka.run("kafka-topics", "--alter", "--topic", "drained", "--partitions", "42")
    assert brokers_of("drained") == {2, 3}
    in_sync = ("--config", "min.insync.replicas=3")
    refused = create("too-wide", "--partitions", "1", "--replication-factor", "3", *in_sync, code=1)
    assert "some brokers have all their log directories cordoned, and a topic needs " in refused
    create("by-hand", "--replica-assignment", "1:2")
    assert brokers_of("by-hand") == {1, 2}
    explained = command("explain", "drained", "--http", kafka.cluster.http).stdout
    assert "but not on broker 1, with all log directories cordoned" in explained
    kafka.run("kafka-configs", *broker, "--alter", "--delete-config", "cordoned.log.dirs")
    until(lambda: cordoned() == [], 60, "no broker is cordoned")
    create("wide", "--partitions", "1", "--replication-factor", "3")


def test_kafka_configs_alters_topic_and_broker_configs(kafka: ToolsAt) -> None:
    kafka.run("kafka-topics", "--create", "--topic", "set", "--partitions", "1", "--replication-factor", "1")

    def configs(kind: str, name: str, *change: str, code: int = 0, controller: bool = False) -> str:
        of = ("--entity-default",) if not name else ("--entity-name", name)
        how = change or ("--describe",)
        return kafka.run("kafka-configs", "--entity-type", kind, *of, *how, code=code, controller=controller)

    for kind, name, config in (
        ("topics", "set", "retention.ms=60000"),
        ("brokers", "1", "log.cleaner.threads=2"),
        ("brokers", "", "log.retention.ms=90000000"),
        ("groups", "readers", "consumer.session.timeout.ms=50000"),
    ):
        configs(kind, name, "--alter", "--add-config", config)
        until(lambda: config in configs(kind, name), 120, f"{config} of {kind} {name}")  # noqa: B023
        configs(kind, name, "--alter", "--delete-config", config.partition("=")[0])
        until(lambda: config not in configs(kind, name), 120, f"{config} is gone")  # noqa: B023
    configs("brokers", "2", "--alter", "--add-config", "log.cleaner.threads=2", controller=True)
    until(lambda: "log.cleaner.threads=2" in configs("brokers", "2"), 120, "what was set at the controller")
    refused = configs("topics", "set", "--alter", "--add-config", "retention.ms=soon", code=1)
    assert "retention.ms" in refused
    configs("users", "ann", "--alter", "--add-config", "producer_byte_rate=1")
    until(lambda: "producer_byte_rate=1" in configs("users", "ann"), 120, "the quota of a user")


def test_kafka_reassign_partitions_and_kafka_leader_election(kafka: ToolsAt, tmp_path: Path) -> None:
    kafka.run("kafka-topics", "--create", "--topic", "moved-by-tool", "--replica-assignment", "1:2,2:1")
    plan = tmp_path / "plan.json"
    wanted = [
        {"topic": "moved-by-tool", "partition": 0, "replicas": [3, 2]},
        {"topic": "moved-by-tool", "partition": 1, "replicas": [3]},
    ]
    plan.write_text(json.dumps({"version": 1, "partitions": wanted}))
    executed = kafka.run("kafka-reassign-partitions", "--execute", "--reassignment-json-file", str(plan))
    assert "Successfully started partition reassignments for moved-by-tool-0,moved-by-tool-1" in executed

    def verified() -> bool:
        output = kafka.run("kafka-reassign-partitions", "--verify", "--reassignment-json-file", str(plan))
        return output.count("is completed.") == 2

    until(verified, 120, "the partitions have moved")
    assert "No partition reassignments found." in kafka.run("kafka-reassign-partitions", "--list")
    described = partitions(kafka.run("kafka-topics", "--describe", "--topic", "moved-by-tool"))
    assert described == {0: (3, "3,2", {"3", "2"}), 1: (3, "3", {"3"})}
    plan.write_text(json.dumps({"version": 1, "partitions": [{**wanted[0], "replicas": [2, 3]}]}))
    kafka.run("kafka-reassign-partitions", "--execute", "--reassignment-json-file", str(plan))
    of_first = ("--topic", "moved-by-tool", "--partition", "0")
    elected = kafka.run("kafka-leader-election", "--election-type", "preferred", *of_first)
    assert "Successfully completed leader election (PREFERRED) for partitions moved-by-tool-0" in elected
    again = kafka.run("kafka-leader-election", "--election-type", "preferred", *of_first)
    assert "Valid replica already elected for partitions moved-by-tool-0" in again
    described = partitions(kafka.run("kafka-topics", "--describe", "--topic", "moved-by-tool"))
    assert described[0][0] == 2, "the preferred replica does not lead"
    nobody = kafka.run(
        "kafka-leader-election", "--election-type", "unclean", "--topic", "no", "--partition", "0", code=1
    )
    assert "UnknownTopicOrPartitionException" in nobody


@pytest.mark.parametrize("controller", [False, True])
def test_kafka_metadata_quorum_and_kafka_features(kafka: ToolsAt, controller: bool) -> None:
    status = kafka.run("kafka-metadata-quorum", "describe", "--status", controller=controller)
    assert re.search(r"LeaderId:\s+3000", status), status
    replication = kafka.run("kafka-metadata-quorum", "describe", "--replication", controller=controller)
    rows = re.findall(r"^(3000|1|2|3)\b.*(Leader|Observer)", replication, re.MULTILINE)
    # A broker whose disk another test emptied has two directory ids, and for five minutes two rows, as in Kafka.
    assert list(dict.fromkeys(rows)) == [("3000", "Leader"), ("1", "Observer"), ("2", "Observer"), ("3", "Observer")]
    level = r"metadata.version.*FinalizedVersionLevel: 4\.4"  # raised some seconds after the last broker registered
    until(lambda: re.search(level, kafka.run("kafka-features", "describe", controller=controller)), 60, "the level")
    refused = kafka.run("kafka-features", "upgrade", "--feature", "nothing.version=1", code=1, controller=controller)
    assert "nothing.version" in refused
