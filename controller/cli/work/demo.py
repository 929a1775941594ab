"""`topicwright demo`: starts a `serve` in a temporary folder, sends requests of a real client, prints results."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from controller.cli.arguments import http_address
from controller.cli.backend import HttpBackend
from projections.views.brokers import BrokersView, SimulatedBrokerView
from projections.views.topics import CreatedView, PartitionView, TopicView

POLICY = """\
from controller.policy import CreateTopicPolicy, PolicyViolation, RequestMetadata

class Owned(CreateTopicPolicy):
    def validate(self, request: RequestMetadata) -> None:
        if "." not in request.topic:
            raise PolicyViolation(f"topic {request.topic!r} has no owner: name it TEAM.NAME")
"""
SETTINGS = (
    "create.topic.policy.class.name=team_policy.Owned",
    "enable.under.replicated.topic.creation=true",
    "default.replication.factor=3",
    "min.insync.replicas=2",
    "log.level=warning",
)
STARTED_WITHIN_S = 60  # generous: a cold start on a busy machine
ANSWERED_WITHIN_S = 10


def demo(_: argparse.Namespace) -> int:
    """Run the demo; returns the exit code."""
    with TemporaryDirectory(prefix="topicwright-demo-") as folder:
        (Path(folder) / "team_policy.py").write_text(POLICY)
        _announce("A policy in Python (KIP-108):")
        print(_indented(POLICY))
        with _serving(Path(folder)) as (kafka, http), closing(HttpBackend(http_address(http))) as backend:
            _Demo(kafka, http, backend).run()
    return 0


@contextmanager
def _serving(folder: Path) -> Iterator[tuple[str, str]]:
    argv = [sys.executable, "-m", "controller.cli.main", "serve", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    argv += ["--data", str(folder / "data")]
    for setting in SETTINGS:
        argv += ["--set", setting]
    _announce("topicwright serve --set " + " --set ".join(SETTINGS[:4]))
    with subprocess.Popen(argv, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.match(r"ready kafka=(\S+) http=(\S+)", line)
            if found is None:
                raise SystemExit(f"topicwright: the service did not start: {line!r}")
            print(_indented(line))
            yield found[1], found[2]
        finally:
            process.terminate()
            process.wait(timeout=STARTED_WITHIN_S)


class _Demo:
    def __init__(self, kafka: str, http: str, backend: HttpBackend) -> None:
        self._http = http
        self._backend = backend
        self._admin = AdminClient({"bootstrap.servers": kafka, "client.id": "demo"})
        self._admin.list_topics(timeout=ANSWERED_WITHIN_S)  # connect first, so that only the create is timed

    def run(self) -> None:
        _announce("confluent-kafka creates pay.orders with 6 partitions and waits until it is complete (KIP-4):")
        self._create(NewTopic("pay.orders", 6))
        _announce("The policy refuses a topic without an owner:")
        self._create(NewTopic("orders", 6))
        _announce("A dry run shows the replicas that a create would get:")
        body = {"name": "pay.refunds", "num_partitions": 3}
        dry = self._backend.send("POST", "/topics", CreatedView, body=body, validate_only="true")
        self._show_partitions(dry.partitions)
        _announce("Broker 3 stops. Replication factor 3 with two live brokers leaves a placeholder (KIP-409):")
        self._backend.send("POST", "/simulated/brokers/3/stop", SimulatedBrokerView)
        self._await(lambda: len(self._backend.get(BrokersView, "/brokers").live) < 3)
        self._create(NewTopic("pay.refunds", 3))
        self._show_partitions(self._refunds())
        _announce("Broker 3 starts again and replaces the placeholder:")
        self._backend.send("POST", "/simulated/brokers/3/start", SimulatedBrokerView)
        self._await(lambda: all(min(one.replicas) > 0 for one in self._refunds()))
        self._show_partitions(self._refunds())
        _announce("topicwright explain pay.refunds")
        argv = [sys.executable, "-m", "controller.cli.main", "explain", "pay.refunds", "--http", self._http]
        print(_indented(subprocess.run(argv, capture_output=True, text=True, check=True).stdout))
        _announce("Done. `make run` serves on 127.0.0.1:9092; README.md has the rest.")

    def _create(self, topic: NewTopic) -> None:
        started = time.perf_counter()
        try:
            self._admin.create_topics([topic], operation_timeout=ANSWERED_WITHIN_S)[topic.topic].result()
            outcome = "created"
        except KafkaException as refusal:
            outcome = f"{refusal.args[0].name()}: {refusal.args[0].str()}"
        print(f"    {topic.topic}: {outcome}   ({(time.perf_counter() - started) * 1000:.1f} ms)")

    def _refunds(self) -> tuple[PartitionView, ...]:
        return self._backend.get(TopicView, "/topics/pay.refunds").partitions

    def _show_partitions(self, partitions: tuple[PartitionView, ...]) -> None:
        for one in partitions:
            print(f"    partition {one.partition}: replicas {list(one.replicas)} leader {one.leader}")

    def _await(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + ANSWERED_WITHIN_S
        while not reached():
            if time.monotonic() > deadline:
                raise SystemExit("topicwright: the demo timed out waiting for the service")
            time.sleep(0.02)


def _announce(text: str) -> None:
    print(f"\n● {text}", flush=True)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.rstrip().splitlines())
