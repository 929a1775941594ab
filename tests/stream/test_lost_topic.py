"""Kafka has lost the events topic, or a part of it: workers and fronts keep what may be the last copy."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from controller.stream.log.partition import events_in
from tests.stream.front.test_service import create
from tests.support.processes import Process
from tests.support.reference_kafka import ReferenceKafka
from tests.support.stream import Stream
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
    "the events topic is deleted": ("events", delete, r"there is no topic \S+\.events in Kafka, and \S+ holds \d+ ev"),
    "the commands topic is deleted": ("commands", delete, r"there is no topic \S+\.commands in Kafka, and \S+ holds "),
    "the events topic is empty": ("events", recreate, r"is of the events topic with id \S+, and the one in Kafka has"),
}


@pytest.mark.parametrize("what", LOST)
def test_what_workers_and_fronts_hold_stays_where_kafka_lost_it(
    stream_kafka: ReferenceKafka, tmp_path: Path, what: str
) -> None:
    which, lose, says = LOST[what]
    admin = AdminClient({"bootstrap.servers": stream_kafka.bootstrap})
    with ExitStack() as held:
        one = Stream(tmp_path, stream_kafka.bootstrap, f"lost-{time.time_ns()}", SETTINGS, "plain", ROOT, held)
        worker, front = one.start_worker(), one.start_front()
        assert create(front.kafka, "a", "b", "c", "d") == dict.fromkeys("abcd", 0)
        for process in (front.process, worker):
            assert process.stop(within_s=120) == 0
        before = {name: events_in(tmp_path / name) for name in ("worker-0", "front-0")}
        assert min(before.values()) > 8
        lose(admin, f"{one.names}.{which}")
        for process in again(one):
            assert process.wait(120) in (2, 3), process.output[-3000:]
            assert re.search(says, process.output), process.output[-3000:]
        assert {name: events_in(tmp_path / name) for name in before} == before


def again(one: Stream) -> list[Process]:
    """The worker and the front, started on their folders."""
    argv = [one._argv("worker", "worker-0", one.common), one._argv("front", "front-0", one.common)]
    argv[0] += ["--driver", one.driver, "--brokers", "simulated:3"]
    argv[1] += ["--kafka", "127.0.0.1:0"]
    return [one.held.enter_context(one._process(each)) for each in argv]
