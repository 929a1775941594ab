"""Kafka's command line tools do the same through Topicwright as directly at the cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.brokers.cluster.served import in_front_by, until
from tests.support import tools
from tests.support.kafka_tools import KafkaTools, kafka_tools
from tests.support.reference_kafka import ReferenceKafka
from tests.support.topicwright import Topicwright

SERVER = "--bootstrap-server"
LOG = "tools-log"
"""What the names of the topics that hold the gateway's log begin with."""


class Both(NamedTuple):
    """The tools, with a topic of their own and both bootstrap addresses."""

    tools: KafkaTools
    topic: str
    kafka: ReferenceKafka
    server: Topicwright
    folder: Path
    groups: str
    """Through a gateway without offsets: the topics that hold its log are not shown."""


@pytest.fixture(
    scope="module", params=[(tools.KAFKA_SERVER, "serve"), (tools.KAFKA_SERVERS_OTHER[-1], "gateway")], ids="-".join
)
def both(
    request: pytest.FixtureRequest, kafka: ReferenceKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Both]:
    version, way = request.param
    groups = "--all-groups --members" if way == "gateway" else "--all-groups"
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
        yield Both(running, topic, kafka, server, folder, groups)


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
kafka-consumer-groups --describe GROUPS
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
"""The default that Kafka keeps for eligible leader replicas (docs/kafka-differences.md)."""
NOT_HERE = re.compile(rf"{ELIGIBLE}|^{LOG}\.\w+\n", re.MULTILINE)
"""Printed directly alone: that default, and the topics that hold the gateway's log."""


@pytest.mark.parametrize("line", ALIKE.strip().splitlines())
def test_tools_print_the_same_directly_and_through_topicwright(both: Both, line: str) -> None:
    line = line.replace("TOPIC", both.topic).replace("FOLDER", str(both.folder)).replace("GROUPS", both.groups)
    tool, *words = line.split()

    def through(bootstrap: str) -> tuple[int, str]:
        at = words.index("cluster-id") + 1 if "cluster-id" in words else 0
        code, output = both.tools.run(tool, *words[:at], SERVER, bootstrap, *words[at:])
        return code, MOVING.sub("…", NOT_HERE.sub("", output))

    def ways() -> tuple[tuple[int, str], tuple[int, str]]:
        return through(both.kafka.bootstrap), through(both.server.kafka)

    until(ways, lambda found: found[0] == found[1], within_s=60)
