"""`topicwright worker` as a process on a real Kafka: start, stop, health and metrics, invalid input."""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from controller.stream.log.codec import encode_command, partition_of
from events.catalog import EVENT_VERSION
from events.logs.events_topic import Fence, encode_record
from events.names import shard_key
from tests.events.logs.test_tree_heads import key_files
from tests.stream.checking import check_topics, next_source
from tests.stream.load import POISON, read_topic
from tests.stream.log.records import create
from tests.stream.requests import until
from tests.support.processes import Process
from tests.support.reference_kafka import ReferenceKafka
from tests.support.stream import Stream
from tests.support.tools import ROOT
from tests.support.topicwright import command, fetch

DRIVERS = pytest.mark.parametrize("driver", ["plain", "faust"])
PARTITIONS = 4
USAGE, FAILED = 2, 3

Settings = dict[str, str]


class Group(Stream):
    """Workers of one pair of topics."""

    @property
    def commands(self) -> str:
        return f"{self.names}.commands"

    @property
    def events(self) -> str:
        return f"{self.names}.events"

    def start(self, driver: str = "plain", data: str = "a", settings: Settings | None = None) -> Process:
        """Returns a worker that may not be ready yet."""
        argv = self._argv("worker", data, {**self.common, **(settings or {})})
        return self.held.enter_context(self._process([*argv, "--driver", driver, "--brokers", "simulated:3"]))

    def ready(self, driver: str = "plain", data: str = "a", settings: Settings | None = None) -> tuple[Process, str]:
        """Returns a ready worker and its HTTP address."""
        worker = self.start(driver, data, settings)
        return worker, worker.wait_for_line(r"^ready http=(\S+)$", within_s=90)[1]

    def put(self, *names: str, poison: bool = False, times: int = 1) -> None:
        """Produce each create `times` times, and with `poison` one poison command to each partition."""
        producer = Producer({"bootstrap.servers": self.kafka, "acks": "all", "enable.idempotence": True})
        for name in names:
            at_ms, home = time.time_ns() // 1_000_000, partition_of(shard_key(name), PARTITIONS)
            value = encode_command(create(name, at_ms=at_ms, timeout_ms=20_000))
            for _ in range(times):
                producer.produce(self.commands, value, partition=home)
        for partition in range(PARTITIONS if poison else 0):
            producer.produce(self.commands, POISON, partition=partition)
        assert producer.flush(30) == 0

    def decided(self) -> dict[str, int]:
        """Wait until all commands are decided, and check both topics; returns the counts."""
        topics: list[Any] = []

        def all_decided() -> bool:
            topics[:] = self.read()
            return all(next_source(each) == len(sent) for sent, each in zip(*topics, strict=True))

        until("commands are decided", all_decided)
        found = check_topics(*topics)
        assert not found.wrong, found.wrong[:10]
        return dict(found.counts)

    def read(self) -> tuple[Any, Any]:
        """Returns the values of both topics."""
        commands = read_topic(self.kafka, self.commands, PARTITIONS)
        return commands, read_topic(self.kafka, self.events, PARTITIONS)

    def make(self, name: str, partitions: int, **configs: str) -> None:
        """Create a topic with an admin client."""
        admin = AdminClient({"bootstrap.servers": self.kafka})
        config = {key.replace("_", "."): value for key, value in configs.items()}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
        admin.create_topics([topic])[name].result(30)


def group_of(folder: Path, kafka: str, held: ExitStack) -> Group:
    settings = {"stream.session.timeout.ms": "1500"}
    return Group(folder, kafka, f"worker-{time.time_ns()}", settings, "plain", ROOT, held)


@pytest.fixture
def group(kafka44: ReferenceKafka, tmp_path: Path) -> Iterator[Group]:
    """Workers on the shared Kafka; the fixture stops them."""
    with ExitStack() as held:
        yield group_of(tmp_path, kafka44.bootstrap, held)


@DRIVERS
def test_worker_decides_reports_health_and_leaves_the_group(group: Group, driver: str) -> None:
    worker, http = group.ready(driver)
    group.put(*(f"t{n}" for n in range(50)), poison=True, times=2)
    counts = group.decided()
    assert (counts["requests"], counts["copies"], counts["faults"], counts["lost"]) == (100, 50, PARTITIONS, 0)
    assert fetch(http, "/health/live")[0] == fetch(http, "/health/ready")[0] == 200
    metrics = fetch(http, "/metrics")[1]
    assert f"topicwright_partitions_owned {PARTITIONS}.0" in metrics
    assert f"topicwright_commands_passed_over {PARTITIONS}.0" in metrics
    assert "topicwright_commands_duplicate 50.0" in metrics
    assert "topicwright_ready 1.0" in metrics
    assert worker.stop(within_s=120) == 0, worker.output[-3000:]
    passed = [line for line in _lines(worker) if line.get("event") == "command skipped"]
    assert len(passed) == PARTITIONS
    assert "not a command" in passed[0]["why"]
    assert [path.name for path in group.folder.iterdir()] == ["a"], "the worker writes only into its data folder"


def _lines(worker: Process) -> list[dict[str, Any]]:
    return [json.loads(line) for line in worker.output.splitlines() if line.startswith("{")]


def test_a_rolling_change_of_worker_settings_and_driver_is_recorded(group: Group) -> None:
    """During a rolling change, each partition records the settings of the worker that owns it."""
    _, first = group.ready("plain", "a", {"num.partitions": "3"})
    refused = group.start("plain", "a")
    group.put("before")
    group.decided()
    second, other = group.ready("faust", "b", {"num.partitions": "5"})
    assert refused.wait(100) == USAGE
    assert "is used by process" in refused.output
    until("each owns two partitions", lambda: "topicwright_partitions_owned 2.0" in fetch(first, "/metrics")[1])
    assert "topicwright_partitions_owned 2.0" in fetch(other, "/metrics")[1]
    group.put(*(f"t{n}" for n in range(20)))
    assert second.stop(within_s=120) == 0, second.output[-3000:]
    until("one owns all partitions", lambda: "topicwright_partitions_owned 4.0" in fetch(first, "/metrics")[1])
    counts = group.decided()
    assert (counts["lost"], counts["requests"]) == (0, 21)
    assert counts["fences"] > PARTITIONS


def test_a_worker_fails_on_events_of_a_newer_release(group: Group) -> None:
    group.make(group.commands, PARTITIONS)
    group.make(group.events, PARTITIONS, retention_ms="-1", retention_bytes="-1")
    producer = Producer({"bootstrap.servers": group.kafka})
    producer.produce(group.events, encode_record(Fence(1, "w", "9.0", EVENT_VERSION + 1)), partition=2)
    producer.flush(30)
    worker = group.start("faust")
    assert worker.wait(100) == FAILED, worker.output[-3000:]
    assert "written by release 9.0" in worker.output
    assert read_topic(group.kafka, group.events, PARTITIONS)[2][1:] == [], "the worker writes nothing there"


def test_a_worker_records_signed_tree_heads_of_its_partitions(group: Group, tmp_path: Path) -> None:
    private, public = key_files(tmp_path)
    worker, _ = group.ready(settings={"log.signing.key.location": str(private), "log.signing.interval.ms": "100"})
    group.put("a", "b", "c")
    until(
        "every partition has a signed head",
        lambda: all(any(b"HeadSigned" in record for record in one if record) for one in group.read()[1]),
    )
    group.decided()
    assert worker.stop() == 0
    verified = verify(group, public)
    assert verified.returncode == 0, verified
    assert verified.stdout.count(" signed heads") == PARTITIONS
    other = tmp_path / "other"
    other.mkdir()
    assert "was not signed by the expected key" in verify(group, key_files(other)[1]).stdout


def verify(group: Group, public: Path) -> subprocess.CompletedProcess[str]:
    return command("verify", group.folder / "a", "--key", public)


@pytest.mark.parametrize("lost", ["commands", "events"])
def test_a_deleted_topic_fails_workers_and_gateways(kafka44: ReferenceKafka, tmp_path: Path, lost: str) -> None:
    """Kafka may recreate the topic at once (auto.create.topics.enable). A worker may detect the loss at a takeover,
    before its watch polls."""
    names = f"gone-{time.time_ns()}"
    with ExitStack() as held:
        one = Stream(tmp_path, kafka44.bootstrap, names, {}, "plain", ROOT, held)
        processes = [one.start_worker(), one.start_gateway().process]
        topic = f"{names}.{lost}"
        admin = AdminClient({"bootstrap.servers": kafka44.bootstrap})
        admin.delete_topics([topic])[topic].result(30)
        for process in processes:
            assert process.wait(100) == FAILED, process.output[-3000:]
            assert re.search(f"topic {topic} was deleted|commands partition .* it was recreated", process.output)
