"""Notifications in a topic of a real Kafka that is killed: in order, none lost, with the topic as key."""

import json
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its types do not export these

from tests.cli.commands import Run
from tests.cli.test_notify import until
from tests.support.processes import Process
from tests.support.reference_kafka import command, write_nodes
from tests.support.tools import ROOT
from tests.support.topicwright import COMMAND, fetch, topicwright

KILLS, EVENTS = 3, 40


def test_a_kafka_that_is_killed_gets_every_event_in_order(run: Run, tmp_path: Path) -> None:
    bootstrap, state = write_nodes(tmp_path / "kafka", 1, {})[1], tmp_path / "notify.prom"
    with topicwright(tmp_path / "served") as server, ExitStack() as stack:
        argv: list[str | Path] = [COMMAND, "notify", "--to", f"kafka://{bootstrap}/audit", "--state", state]
        argv += ["--from", "0", "--events", "changes", "--http", server.http]
        environment = {"PYTHONPATH": str(ROOT)}
        notifier = stack.enter_context(Process(argv, cwd=tmp_path, env=environment))
        notifier.wait_for_line("audit: ", within_s=120)
        for kill in range(KILLS + 1):
            for number in range(EVENTS):
                assert fetch(server.http, "/v1/topics", {"name": f"t{kill}.{number}", "num_partitions": 1})[0] == 201
            end = int(json.loads(fetch(server.http, "/v1/events?limit=1")[1])["end"])
            with Process(command(tmp_path / "kafka", 1), cwd=tmp_path / "kafka") as kafka:
                kafka.wait_for_line("^ready", within_s=300)
                if kill == 0:
                    notifier.wait_for_line("Kafka topic audit does not exist", within_s=120)
                    admin = AdminClient({"bootstrap.servers": bootstrap})
                    admin.create_topics([NewTopic("audit", 1, 1)])["audit"].result()
                if kill == 1:
                    notifier.kill()
                    stack.enter_context(Process(argv, cwd=tmp_path, env=environment))
                at_least = end if kill == KILLS else end - EVENTS
                until(lambda wanted=at_least: int(state.read_text().split()[1]) >= wanted)
                if kill == KILLS:
                    records = _records(bootstrap)
                kafka.kill()
    found = [json.loads(value) for _, value, _ in records]
    offsets = [one["data"]["offset"] for one in found]
    created = [f"t{kill}.{number}" for kill in range(KILLS + 1) for number in range(EVENTS)]
    names = [one["subject"] for one in found if one["data"]["type"] == "TopicCreated"]
    assert list(dict.fromkeys(names)) == created
    assert offsets == sorted(offsets), "only the last event is sent again"
    assert len(offsets) - len(set(offsets)) <= 1, "only after notify was killed"
    for (key, _, headers), event in zip(records, found, strict=True):
        assert key == event["subject"].encode()
        assert headers == [("content-type", b"application/cloudevents+json")]
        assert event["id"].endswith(f"-{event['data']['offset']}")


def _records(bootstrap: str) -> list[tuple[Any, Any, Any]]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "test", "enable.partition.eof": True}
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition("audit", 0, 0)])
        found: list[tuple[Any, Any, Any]] = []
        while True:
            (message,) = consumer.consume(1, 120)
            if message.error() is not None:
                return found
            found.append((message.key(), message.value(), message.headers()))
