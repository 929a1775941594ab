"""Kafka has lost the events topic, or a part of it: workers and gateways keep what may be the last copy."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from controller.stream.log.partition import events_in
from projections.replay.log.kafka_ref import kafka_topic
from projections.replay.log.kafka_scan import scan
from projections.replay.log.secondary import Look
from tests.stream.gateway.test_service import command, create, until
from tests.support.processes import Process
from tests.support.reference_kafka import ReferenceKafka
from tests.support.stream import Stream, stream
from tests.support.tools import ROOT

PARTITIONS = 2
SETTINGS = {"stream.partitions": str(PARTITIONS), "stream.replication.factor": "1"}
FOREVER = {"retention.ms": "-1", "cleanup.policy": "delete", "unclean.leader.election.enable": "false"}


def delete(admin: AdminClient, topic: str) -> None:
    admin.delete_topics([topic])[topic].result(30)


def recreate(admin: AdminClient, topic: str) -> None:
    delete(admin, topic)
    deadline = time.monotonic() + 60
    while topic in admin.list_topics(timeout=30).topics:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=FOREVER)])[topic].result(30)


LOST: dict[str, tuple[str, Callable[[AdminClient, str], None], str]] = {
    "the events topic is deleted": ("events", delete, r"topic \S+\.events is missing in Kafka, but \S+ has \d+ ev"),
    "the commands topic is deleted": ("commands", delete, r"topic \S+\.commands is missing in Kafka, but \S+ has "),
    "the events topic is empty": ("events", recreate, r"is of the events topic with id \S+, and the one in Kafka has"),
}


@pytest.mark.parametrize("what", LOST)
def test_what_workers_and_gateways_hold_stays_where_kafka_lost_it(
    stream_kafka: ReferenceKafka, tmp_path: Path, what: str
) -> None:
    which, lose, says = LOST[what]
    admin = AdminClient({"bootstrap.servers": stream_kafka.bootstrap})
    with ExitStack() as held:
        one = Stream(tmp_path, stream_kafka.bootstrap, f"lost-{time.time_ns()}", SETTINGS, "plain", ROOT, held)
        worker, gateway = one.start_worker(), one.start_gateway()
        assert create(gateway.kafka, "a", "b", "c", "d") == dict.fromkeys("abcd", 0)
        for process in (gateway.process, worker):
            assert process.stop(within_s=120) == 0
        before = {name: events_in(tmp_path / name) for name in ("worker-0", "gateway-0")}
        assert min(before.values()) > 8
        lose(admin, f"{one.names}.{which}")
        for process in again(one):
            assert process.wait(120) in (2, 3), process.output[-3000:]
            assert re.search(says, process.output), process.output[-3000:]
        assert {name: events_in(tmp_path / name) for name in before} == before


def events_of(data: Path) -> list[list[bytes]]:
    """The events of each partition in a folder."""
    found = []
    for number in range(PARTITIONS):
        with closing(Look(data / f"partition-{number:05}")) as log:
            found.append([value for _, value in log.read()])
    return found


@pytest.mark.parametrize("lost", ["events", "both"])
def test_a_topic_that_was_lost_is_restored(stream_kafka: ReferenceKafka, tmp_path: Path, lost: str) -> None:
    admin = AdminClient({"bootstrap.servers": stream_kafka.bootstrap})
    with ExitStack() as held:
        one = Stream(tmp_path, stream_kafka.bootstrap, f"restored-{time.time_ns()}", SETTINGS, "plain", ROOT, held)
        one.start_worker()
        one.start_worker()
        gateway = one.start_gateway()
        names = [f"before.{number}" for number in range(20)]
        assert create(gateway.kafka, *names) == dict.fromkeys(names, 0)
        for process in (gateway.process, *one.workers):
            assert process.stop(within_s=120) == 0
        before = events_of(gateway.data)

        def restore(*folders: str) -> tuple[int, str]:
            settings = [word for key, value in one.common.items() for word in ("--set", f"{key}={value}")]
            done = command("restore-topic", "--bootstrap", one.kafka, *(tmp_path / each for each in folders), *settings)
            return done.returncode, done.stdout + done.stderr

        code, said = restore("gateway-0")
        assert code == 2
        assert re.search(r"topic \S+\.events has or had records: if the folders have all", said), said
        for topic in [f"{one.names}.{each}" for each in (("events",) if lost == "events" else ("events", "commands"))]:
            delete(admin, topic)
        assert restore("nowhere") == (2, f"topicwright: {tmp_path / 'nowhere'} is not a folder\n")
        code, said = restore("gateway-0", "worker-0")
        assert code == 0, said
        assert f"partition 1: {len(before[1])} events from " in said
        gateway = one.start_gateway()
        one.start_worker()
        assert create(gateway.kafka, names[0], "after") == {names[0]: 36, "after": 0}
        assert gateway.process.stop(within_s=120) == 0
        after = events_of(gateway.data)
        assert [there[: len(here)] for here, there in zip(before, after, strict=True)] == before
        replayed = scan(kafka_topic(f"kafka://{one.kafka}/{one.names}.events"))
        assert [each.end for each in replayed.partitions] == list(map(len, after))
        assert restore("gateway-0")[0] == 2, "it is not lost any more"


def test_a_trimmed_topic_is_reported_while_folders_have_it_all(stream_kafka: ReferenceKafka, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": stream_kafka.bootstrap})
    with stream(tmp_path, stream_kafka.bootstrap, f"trimmed-{time.time_ns()}", SETTINGS) as one:
        (worker,), (gateway,) = one.workers, one.gateways
        assert create(gateway.kafka, "a", "b", "c", "d") == dict.fromkeys("abcd", 0)
        for process in (gateway.process, worker):
            assert process.stop(within_s=120) == 0
        places = [TopicPartition(f"{one.names}.events", number, 2) for number in range(PARTITIONS)]
        for each in admin.delete_records(places).values():
            each.result(30)
        for process in again(one):
            (http,) = process.wait_for_line(r"^ready .*?http=(\S+)", within_s=240).groups()
            until("it looks at the topic", lambda at=http: bool(json.loads(get(at, "/health/ready"))["reason"]))  # type: ignore[misc]
            said = json.loads(get(http, "/health/ready"))
            assert said["status"] == "ready"
            assert "has lost its first records (of partitions 0, 1)" in said["reason"]
            assert "the events topic lacks its first records" in process.output
            assert "topicwright_records_deleted 4.0" in get(http, "/metrics")
            assert process.stop(within_s=120) == 0


def get(http: str, path: str) -> str:
    with urllib.request.urlopen(f"http://{http}{path}", timeout=60) as answer:
        body: str = answer.read().decode()
        return body


def again(one: Stream) -> list[Process]:
    """The worker and the gateway, started on their folders."""
    argv = [one._argv("worker", "worker-0", one.common), one._argv("gateway", "gateway-0", one.common)]
    argv[0] += ["--driver", one.driver, "--brokers", "simulated:3"]
    argv[1] += ["--kafka", "127.0.0.1:0"]
    return [one.held.enter_context(one._process(each)) for each in argv]
