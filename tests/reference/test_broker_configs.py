"""Configs of brokers, of Kafka 4.4 and of Topicwright: the same keys, the same changes taken and refused, the same
sources and synonyms afterwards, for brokers and for topics."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import TABLE_SETTINGS
from tests.reference.answers import code_name
from tests.reference.cases import APPEND, BROKER, DELETE, SET, SUBTRACT, TOPIC
from tests.support.reference_kafka import reference_kafka
from tests.support.topicwright import topicwright
from tests.support.wire import Wire

Body = dict[str, Any]
Step = tuple[str, int, str | None]

GIVEN = {"num.partitions": "3", "log.retention.hours": "24", "compression.type": "lz4"}
"""The settings of both."""
ELIGIBLE = "min.insync.replicas"
"""Kafka sets this one itself, for eligible leader replicas."""
SHOWN = ["log.retention.ms", "log.retention.hours", "log.retention.minutes", "log.cleanup.policy", "compression.type",
         "num.partitions", "message.max.bytes", "unclean.leader.election.enable", "nonsense", "num.io.threads",
         "leader.replication.throttled.rate", "listener.name.broker.max.connections", "log.roll.ms"]  # fmt: skip
OF_TOPICS = ["retention.ms", "cleanup.policy", "compression.type", "max.message.bytes", "segment.ms"]

CHANGES: tuple[Step, ...] = (
    ("num.partitions", SET, "3"),
    ("num.partitions", DELETE, None),
    ("default.replication.factor", SET, "1"),
    ("auto.create.topics.enable", SET, "false"),
    ("log.retention.hours", SET, "7"),
    ("log.retention.ms", SET, "x"),
    ("log.retention.ms", SET, "0"),
    ("log.retention.ms", SET, "7000"),
    ("log.retention.ms", APPEND, "1"),
    ("log.retention.ms", SET, None),
    ("log.roll.ms", SET, "0"),
    ("log.roll.ms", SET, "7200000"),
    ("log.cleanup.policy", APPEND, "compact"),
    ("log.cleanup.policy", SUBTRACT, "delete"),
    ("log.cleanup.policy", SET, "shred"),
    ("log.cleanup.policy", DELETE, None),
    ("compression.type", SET, "zip"),
    ("compression.type", SET, "zstd"),
    ("compression.gzip.level", SET, "0"),
    ("message.max.bytes", SET, "500000"),
    ("message.max.bytes", SET, "-1"),
    ("unclean.leader.election.enable", SET, "maybe"),
    ("unclean.leader.election.enable", SET, "true"),
    ("unclean.leader.election.enable", DELETE, None),
    ("nonsense", SET, "1"),
    ("nonsense", APPEND, "1"),
    ("nonsense", DELETE, None),
    ("num.io.threads", SET, "100"),
    ("num.io.threads", SET, "12"),
    ("num.io.threads", DELETE, None),
    ("background.threads", SET, "2"),
    ("log.local.retention.ms", SET, "8640000000"),
    ("log.local.retention.ms", SET, "-1"),
    ("leader.replication.throttled.rate", SET, "-5"),
    ("leader.replication.throttled.rate", SET, "5"),
    ("ssl.keystore.location", SET, "/x"),
    ("listener.name.broker.ssl.keystore.type", SET, "PEM"),
    ("listener.name.broker.ssl.keystore.type", DELETE, None),
    ("listener.name.broker.max.connections", SET, "9"),
    ("sasl.enabled.mechanisms", SET, "PLAIN"),
    ("sasl.enabled.mechanisms", DELETE, None),
    ("max.connections", SET, "-1"),
    ("log.retention.ms", 9, "1"),
    (ELIGIBLE, SET, "0"),
    (ELIGIBLE, SET, "x"),
)


class Server:
    """One of the two, and what it is requested."""

    def __init__(self, address: str) -> None:
        self._wire = Wire(address, timeout_s=120)
        self._topics = 0
        self.create("watched")

    def create(self, name: str) -> Body:
        one = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        made: Body = self._wire.call("CreateTopics", 7, topics=[one], timeout_ms=60_000, validate_only=False)
        assert made["topics"][0]["error_code"] == 0, made
        return dict(made["topics"][0])

    def alter(self, name: str, step: Step) -> tuple[str, str]:
        key, operation, value = step
        configs = [{"name": key, "config_operation": operation, "value": value}]
        resource = {"resource_type": BROKER, "resource_name": name, "configs": configs}
        body = self._wire.call("IncrementalAlterConfigs", 1, resources=[resource], validate_only=False)
        return _outcome(body)

    def replace(self, name: str, **configs: str) -> tuple[str, str]:
        pairs = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        resource = {"resource_type": BROKER, "resource_name": name, "configs": pairs}
        return _outcome(self._wire.call("AlterConfigs", 2, resources=[resource], validate_only=False))

    def described(self, kind: int, name: str, keys: list[str] | None = None, docs: bool = False) -> dict[str, Body]:
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        more = {"include_synonyms": True, "include_documentation": docs}
        (result,) = self._wire.call("DescribeConfigs", 4, resources=[resource], **more)["results"]
        assert result["error_code"] == 0, result
        return {each["name"]: each for each in result["configs"] if each["name"] != ELIGIBLE}

    def settle(self) -> None:
        """Until a broker goes by what was changed: it learns of topics in the same order, and of one batch at once."""
        for _ in range(2):
            self._topics += 1
            self.create(f"barrier-{self._topics}")
            deadline = time.monotonic() + 120
            wanted = [{"name": f"barrier-{self._topics}"}]
            while self._wire.call("Metadata", 12, topics=wanted)["topics"][0]["error_code"]:
                assert time.monotonic() < deadline, "the broker never learned of a topic"
                time.sleep(0.01)

    def close(self) -> None:
        self._wire.close()


def _outcome(body: Body) -> tuple[str, str]:
    (row,) = body["responses"]
    wrapped = r"Invalid value org\.apache\.\S+: (.*) for configuration Invalid dynamic configuration"
    return code_name(row["error_code"]), re.sub(
        wrapped, r"Invalid dynamic configuration: \1", row["error_message"] or ""
    )


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    folder = tmp_path_factory.mktemp("broker-configs")
    given = {**GIVEN, "num.io.threads": "8", "num.network.threads": "3"}
    kafkas = {key.replace(".", "_"): text for key, text in given.items()}
    ours = {**TABLE_SETTINGS, **GIVEN}
    with (
        reference_kafka(folder / "kafka", nodes=1, **kafkas) as kafka,
        topicwright(folder / "topicwright", ours, brokers="simulated:1") as own,
    ):
        both = Server(kafka.bootstrap), Server(own.kafka)
        yield both
        for each in both:
            each.close()


@pytest.fixture(autouse=True)
def nothing_is_set_of_the_broker_itself(servers: tuple[Server, Server]) -> None:
    """Topics of Kafka go by what is set of the very broker that shows them; here by what is set of all brokers."""
    for each in servers:
        assert each.replace("1") == ("NONE", "")
        each.settle()


def test_the_keys_are_kafkas_with_their_types_defaults_and_documentation(servers: tuple[Server, Server]) -> None:
    kafka, own = (each.described(BROKER, "1", docs=True) for each in servers)
    assert own.keys() == kafka.keys()
    differ = set()
    for name, theirs in kafka.items():
        ours = own[name]
        for field in ("read_only", "is_sensitive", "config_type", "documentation"):
            assert ours[field] == theirs[field], f"{field} of {name}"
        if theirs["config_source"] == ours["config_source"] == 5 and not name.startswith(
            ("ssl.", "sasl.enabled", "list")
        ):
            differ |= {name} if (ours["value"], ours["synonyms"]) != (theirs["value"], theirs["synonyms"]) else set()
    assert differ == {"socket.request.max.bytes", "queued.max.request.bytes"}, "as docs/kafka-differences.md says"
    for name in GIVEN:
        assert own[name] == kafka[name], "a static config"


@pytest.mark.parametrize("name", ["", "1"])
def test_changes_come_to_the_same(servers: tuple[Server, Server], name: str) -> None:
    for step in CHANGES:
        (code, message), (our_code, ours) = (each.alter(name, step) for each in servers)
        assert (our_code, ours[: len(message)]) == (code, message), f"{name!r} {step}"
        if code == "NONE":
            for each in servers:
                each.settle()
            for kind, resource, keys in ((BROKER, "", None), (BROKER, "1", SHOWN)):
                theirs, own = (_without_pool(each.described(kind, resource, keys)) for each in servers)
                assert own == theirs, f"{resource!r} after {step} of {name!r}"
            if name == "":
                theirs, own = (each.described(TOPIC, "watched", OF_TOPICS) for each in servers)
                assert own == theirs, f"a topic after {step}"


def _without_pool(configs: dict[str, Body]) -> dict[str, Body]:
    """Without the source of a setting that only Kafka was given, so that both begin with as many threads."""
    return {name: each for name, each in configs.items() if name != "num.io.threads"}


def test_the_older_request_replaces_all_in_both(servers: tuple[Server, Server]) -> None:
    for configs in ({"log_retention_ms": "9000", "compression_type": "gzip"}, {}):
        outcomes = [each.replace("1", **configs) for each in servers]
        assert outcomes == [("NONE", "")] * 2
        for each in servers:
            each.settle()
        theirs, own = (_without_pool(each.described(BROKER, "1", SHOWN)) for each in servers)
        assert own == theirs


def test_a_created_topic_shows_the_same_defaults(servers: tuple[Server, Server]) -> None:
    for each in servers:
        assert each.alter("", ("log.retention.ms", SET, "8000"))[0] == "NONE"
        each.settle()
    theirs, own = (
        [each for each in server.create("shown")["configs"] if each["name"] != ELIGIBLE] for server in servers
    )
    assert own == theirs
