"""The commands and events topics: created with required configs, rejected with others, reported when deleted."""

import asyncio
import os
import re
import time
import uuid
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from msgspec.structs import replace

from controller.settings.load import ServeSettings, load_settings
from controller.stream.log import topics, transport
from controller.stream.log.topics import KafkaUnavailable, TopicGone, Topics, TopicsMismatch, TopicWatch, prepare_topics
from controller.stream.log.transport import close_client
from tests.support.reference_kafka import ReferenceKafka

FOREVER = {"retention.ms": "-1"}
EMPTY = Path(os.devnull)
"""A folder without content."""


@pytest.fixture
def wanted() -> ServeSettings:
    """Settings with topic names that no other test has."""
    name = f"topics-{uuid.uuid4().hex[:12]}"
    return load_settings(overrides=(f"stream.commands.topic={name}.commands", f"stream.events.topic={name}.events"))


def make(kafka: ReferenceKafka, name: str, partitions: int, replicas: int, configs: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(name, partitions, replicas, config=configs)])[name].result(30)


def prepared(kafka: ReferenceKafka, wanted: ServeSettings) -> Topics:
    """Prepare the topics as services do; retries, because a broker may not know new topics at once."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return prepare_topics({"bootstrap.servers": kafka.bootstrap}, wanted, EMPTY)
        except KafkaUnavailable:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_created_topics_pass_the_checks(kafka44: ReferenceKafka, wanted: ServeSettings) -> None:
    made = prepared(kafka44, wanted)
    names = wanted.stream_commands_topic, wanted.stream_events_topic
    assert (made.commands, made.events, made.partitions) == (*names, 4)
    assert prepared(kafka44, wanted) == made, "the second call creates nothing"
    with pytest.raises(TopicsMismatch, match=r"has 3 replicas a partition, and stream\.replication\.factor=2"):
        prepared(kafka44, replace(wanted, stream_replication_factor=2))


@pytest.mark.parametrize(
    ("commands", "events", "says"),
    [
        ((3, 1, {}), (3, 1, FOREVER), "commands has 3 partitions, and stream.partitions=4: set stream.partitions=3"),
        ((4, 1, {}), (5, 1, FOREVER), "events has 5 partitions"),
        ((4, 1, {}), (4, 1, {}), "events has retention.ms=604800000, and must have retention.ms=-1"),
        ((4, 1, {}), (4, 1, {**FOREVER, "retention.bytes": "9"}), "events has retention.bytes=9, and must have"),
        ((4, 1, {"cleanup.policy": "compact"}), (4, 1, FOREVER), "commands has cleanup.policy=compact, and must have"),
        ((4, 1, {}), (4, 1, {**FOREVER, "cleanup.policy": "compact,delete"}), "events has cleanup.policy=compact,del"),
        (
            (4, 1, {}),
            (4, 3, {**FOREVER, "min.insync.replicas": "1"}),
            "events has min.insync.replicas=1, and for 3 replicas a partition must have 2 to 3",
        ),
        (
            (4, 1, {"min.insync.replicas": "2"}),
            (4, 1, FOREVER),
            "commands has min.insync.replicas=2, and for 1 replicas a partition must have 1;",
        ),
        (
            (4, 1, {}),
            (4, 1, {**FOREVER, "unclean.leader.election.enable": "true"}),
            "events has unclean.leader.election.enable=true, and must have unclean.leader.election.enable=false",
        ),
    ],
)
def test_mismatching_topics_are_rejected(
    kafka44: ReferenceKafka,
    wanted: ServeSettings,
    commands: tuple[int, int, dict[str, str]],
    events: tuple[int, int, dict[str, str]],
    says: str,
) -> None:
    make(kafka44, wanted.stream_commands_topic, *commands)
    make(kafka44, wanted.stream_events_topic, *events)
    with pytest.raises(TopicsMismatch, match=re.escape(says)):
        prepared(kafka44, wanted)


@pytest.fixture
def watch() -> TopicWatch:
    """A watch over topics; the events topic has the id `one`."""
    return TopicWatch({}, Topics("commands", "events", 4, "cluster", "one"), is_archived=False)


def test_an_events_topic_without_its_first_records_is_reported(
    watch: TopicWatch, capfd: pytest.CaptureFixture[str]
) -> None:
    watch.check_first_records([0, 0, 0, 0])
    assert (watch.error, *watch.gauges()) == (None, ("records_deleted", ANY, 0))
    for _ in range(2):
        watch.check_first_records([0, 18, 0, 2])
    assert "topic events has lost its first records (of partitions 1, 3)" in str(watch.error)
    assert list(watch.gauges()) == [("records_deleted", ANY, 20)]
    assert capfd.readouterr().out.count("the events topic lacks its first records") == 1
    archived = TopicWatch({}, watch._topics, is_archived=True)
    archived.check_first_records([0, 18, 0, 2])
    assert archived.error is None


def test_a_topic_missing_twice_in_a_row_is_reported_as_deleted(watch: TopicWatch) -> None:
    for found in ("one", None, "one", None):
        watch.check_id("events", found)
    with pytest.raises(TopicGone, match="topic events was deleted: it had the whole history; restore it"):
        watch.check_id("events", None)


def test_recreated_topic_is_detected(watch: TopicWatch) -> None:
    with pytest.raises(TopicGone, match="topic events was deleted and recreated"):
        watch.check_id("events", "two")
    watch.check_id("commands", "any")
    with pytest.raises(TopicGone, match="topic commands was deleted and recreated: undecided commands are lost"):
        watch.check_id("commands", "other")


class Admin:
    """Each poll returns the next of `looks`, an id of both topics, or raises it."""

    looks: list[str | Exception]
    made = 0

    def __init__(self, _: object) -> None:
        Admin.made += 1

    def describe_topics(self, *_: object, **__: object) -> dict[str, Future[Any]]:
        came = Admin.looks.pop(0)
        if isinstance(came, Exception):
            raise came
        found: dict[str, Future[Any]] = {}
        for name in ("commands", "events"):
            found[name] = Future()
            found[name].set_result(SimpleNamespace(topic_id=came))
        return found


async def test_topic_watch_continues_after_an_exception(watch: TopicWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "AdminClient", Admin)
    monkeypatch.setattr(topics, "offsets_consumer", lambda _: object())
    monkeypatch.setattr(topics, "offset_ranges", lambda *_: [(0, 9), (5, 9)])
    monkeypatch.setattr(topics, "POLL_INTERVAL_S", 0.001)
    Admin.looks = ["one", RuntimeError("odd"), KafkaException("no broker"), RuntimeError("odd"), "one", "two"]
    gone: list[TopicGone] = []
    await asyncio.wait_for(watch.watch(gone.append), 30)
    assert ["was deleted and recreated" in str(each) for each in gone] == [True]
    assert Admin.looks == []
    assert watch.error is not None


@pytest.fixture
def topic(kafka44: ReferenceKafka) -> str:
    name = f"transport-{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": kafka44.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
    return name


def connected(client: Any) -> list[Any]:
    return [each for each in client._conns.values() if each.connected()]


async def test_a_consumer_whose_fetch_is_in_back_off_is_closed(kafka44: ReferenceKafka, topic: str) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka44.bootstrap, retry_backoff_ms=600_000)
    await consumer.start()
    consumer.assign([TopicPartition(topic, 0)])
    await consumer.seek_to_beginning()
    sent = asyncio.Event()

    async def no_answer(*_: object, **__: object) -> None:
        sent.set()
        raise KafkaConnectionError("the broker is gone")

    consumer._client.send = no_answer
    await asyncio.wait_for(sent.wait(), 60)
    assert connected(consumer._client)
    await close_client(consumer)
    assert not connected(consumer._client)


async def test_a_hanging_kafka_client_is_abandoned(kafka44: ReferenceKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client hangs if its broker is gone, or if its `stop` fails."""
    monkeypatch.setattr(transport, "_CLOSE_S", 0.01)
    for stop in (asyncio.Event().wait, asyncio.get_running_loop().create_future, failing):
        producer = AIOKafkaProducer(bootstrap_servers=kafka44.bootstrap)
        await producer.start()
        stopped, producer.stop = producer.stop, stop
        await close_client(producer)
        await stopped()


async def failing() -> None:
    raise RuntimeError("odd")
