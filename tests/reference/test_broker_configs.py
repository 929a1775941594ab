"""Broker configs of Kafka 4.4 and of Topicwright: the same keys, the same alterations accepted and rejected, and the
same sources and synonyms afterwards, for brokers and for topics."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from tests.conftest import TABLE_SETTINGS
from tests.reference.answers import code_name
from tests.reference.cases import APPEND, BROKER, DELETE, SET, SUBTRACT, TOPIC, topic
from tests.reference.golden import recorded
from tests.support.reference_kafka import reference_kafka
from tests.support.topicwright import topicwright
from tests.support.wire import Wire

Body = dict[str, Any]
Step = tuple[str, int, str | None]
Both = tuple[dict[str, Any], dict[str, Any]]

GIVEN = {"num.partitions": "3", "log.retention.hours": "24", "compression.type": "lz4"}
"""The settings of both servers."""
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
    """A server, and requests to it."""

    def __init__(self, address: str) -> None:
        self._wire = Wire(address, timeout_s=120)
        self._topics = 0
        self.create("watched")

    def create(self, name: str) -> Body:
        made: Body = self._wire.call("CreateTopics", 7, topics=[topic(name)], timeout_ms=60_000, validate_only=False)
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
        """Wait until a broker has applied a change: it applies topics in the same order, and a batch at once."""
        for _ in range(2):
            self._topics += 1
            self.create(f"barrier-{self._topics}")
            deadline = time.monotonic() + 120
            wanted = [{"name": f"barrier-{self._topics}"}]
            while self._wire.call("Metadata", 12, topics=wanted)["topics"][0]["error_code"]:
                assert time.monotonic() < deadline, "the broker never applied a topic"
                time.sleep(0.01)

    def close(self) -> None:
        self._wire.close()


def _outcome(body: Body) -> tuple[str, str]:
    (row,) = body["responses"]
    wrapped = r"Invalid value org\.apache\.\S+: (.*) for configuration Invalid dynamic configuration"
    return code_name(row["error_code"]), re.sub(
        wrapped, r"Invalid dynamic configuration: \1", row["error_message"] or ""
    )


def _answers(server: Server) -> Iterator[tuple[str, Any]]:
    """Yields all configs of a broker; then the outcome of each alteration and the configs after it; each with a name.
    In Kafka, a topic's configs depend on the broker that answers, so broker 1 has none while those of all brokers
    change."""
    server.settle()
    of_one = server.described(BROKER, "1", docs=True)
    yield (
        "all configs",
        {
            name: {**each, "documentation": crc32((each["documentation"] or "").encode())}
            for name, each in of_one.items()
        },
    )
    for resource in ("", "1"):
        for step in CHANGES:
            name = f"{step} of {resource!r}"
            code, message = server.alter(resource, step)
            yield name, [code, message]
            if code == "NONE":
                server.settle()
                yield f"of all brokers after {name}", server.described(BROKER, "")
                yield f"of broker 1 after {name}", _without_pool(server.described(BROKER, "1", SHOWN))
                if resource == "":
                    yield f"of a topic after {name}", server.described(TOPIC, "watched", OF_TOPICS)
    for configs in ({"log_retention_ms": "9000", "compression_type": "gzip"}, {}):  # AlterConfigs replaces all configs
        yield f"replaced by {configs}", list(server.replace("1", **configs))
        server.settle()
        yield f"of broker 1 after {configs}", _without_pool(server.described(BROKER, "1", SHOWN))
    yield "defaults of topics", list(server.alter("", ("log.retention.ms", SET, "8000")))
    server.settle()
    yield "created", [each for each in server.create("shown")["configs"] if each["name"] != ELIGIBLE]


def _without_pool(configs: dict[str, Body]) -> dict[str, Body]:
    """Removes the thread settings that only Kafka was given, so that both begin with equally many threads."""
    return {name: each for name, each in configs.items() if name != "num.io.threads"}


def answers_of_kafka(folder: Path) -> dict[str, Any]:
    given = {**GIVEN, "num.io.threads": "8", "num.network.threads": "3"}
    with (
        reference_kafka(folder, nodes=1, **{key.replace(".", "_"): text for key, text in given.items()}) as kafka,
        closing(Server(kafka.bootstrap)) as server,
    ):
        return dict(_answers(server))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    """The responses of Kafka and of Topicwright."""
    with (
        topicwright(
            tmp_path_factory.mktemp("broker-configs"), {**TABLE_SETTINGS, **GIVEN}, brokers="simulated:1"
        ) as own,
        closing(Server(own.kafka)) as server,
    ):
        return recorded("configs of brokers"), json.loads(json.dumps(dict(_answers(server))))


def test_broker_config_keys_types_and_defaults_equal_kafkas(both: Both) -> None:
    kafka, own = (each["all configs"] for each in both)
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
    assert differ == {"socket.request.max.bytes", "queued.max.request.bytes"}, "see docs/kafka-differences.md"
    for name in GIVEN:
        assert own[name] == kafka[name], "a static config"


def test_broker_config_alterations_equal_kafkas(both: Both) -> None:
    kafka, own = both
    assert own.keys() == kafka.keys(), "both accept and reject the same changes"
    for name, theirs in kafka.items():
        ours = own[name]
        if isinstance(theirs, list) and isinstance(theirs[0], str):
            assert (ours[0], ours[1][: len(theirs[1])]) == tuple(theirs), name
        elif name != "all configs":
            assert ours == theirs, name
