"""The lost events topic: workers and gateways retain the last copy. External transactions do not count."""

import json
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from controller.settings.load import load_settings
from controller.stream.log.partition import events_in
from controller.stream.log.topics import KafkaUnavailable, TopicsMismatch, prepare_topics
from events.catalog import EVENT_VERSION
from events.logs.events_topic import Fence, encode_record
from projections.replay.log.kafka_ref import kafka_topic
from projections.replay.log.kafka_scan import scan
from projections.replay.log.secondary import FrozenLog
from tests.stream.requests import create, until
from tests.support.processes import Process
from tests.support.reference_kafka import ReferenceKafka
from tests.support.stream import Stream, stream
from tests.support.tools import ROOT
from tests.support.topicwright import command, fetch

PARTITIONS = 2
SETTINGS = {"stream.partitions": str(PARTITIONS)}
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


def events_of(data: Path) -> list[list[bytes]]:
    """Returns the events of each partition in a folder."""
    found = []
    for number in range(PARTITIONS):
        with closing(FrozenLog(data / f"partition-{number:05}")) as log:
            found.append([value for _, value in log.read()])
    return found


def test_a_lost_events_topic_is_restored_from_worker_folders(kafka44: ReferenceKafka, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": kafka44.bootstrap})
    with ExitStack() as held:
        one = Stream(tmp_path, kafka44.bootstrap, f"lost-{time.time_ns()}", SETTINGS, "plain", ROOT, held)
        one.start_worker()
        gateway = one.start_gateway()
        names = [f"before.{number}" for number in range(20)]
        assert create(gateway.kafka, *names) == dict.fromkeys(names, 0)
        _stop(one)
        code, said = _restore(one, "gateway-0")
        assert code == 2
        assert re.search(r"topic \S+\.events has or had records: if the folders have all", said), said

        delete(admin, f"{one.names}.commands")
        _is_missing(one, r"topic \S+\.commands is missing in Kafka, but \S+ has ")
        delete(admin, f"{one.names}.events")
        assert _restore(one, "nowhere") == (2, f"topicwright: {tmp_path / 'nowhere'} is not a folder\n")
        _is_restored(one, {names[0]: 36, "after": 0}, "gateway-0", "worker-0")

        delete(admin, f"{one.names}.events")
        _is_missing(one, r"topic \S+\.events is missing in Kafka, but \S+ has \d+ ev")
        _is_restored(one, {names[0]: 36, "again": 0}, "worker-0", "gateway-0")

        places = [TopicPartition(f"{one.names}.events", number, 2) for number in range(PARTITIONS)]
        for each in admin.delete_records(places).values():
            each.result(30)
        _is_reported(one)
        recreate(admin, f"{one.names}.events")
        _refused(one, r"is of the events topic with id \S+, and the one in Kafka has")


def _stop(one: Stream) -> None:
    for process in (*(gateway.process for gateway in one.gateways), *one.workers):
        if process.popen.poll() is None:
            assert process.stop(within_s=120) == 0, process.output[-3000:]


def _is_missing(one: Stream, words: str) -> None:
    """Wait until the start checks of workers and gateways raise an error with these words."""
    settings = load_settings(overrides=[f"{key}={value}" for key, value in one.common.items()])
    for name in ("worker-0", "gateway-0"):

        def is_said(data: Path = one.folder / name) -> bool:
            try:
                prepare_topics({"bootstrap.servers": one.kafka}, settings, data)
            except (TopicsMismatch, KafkaUnavailable) as error:
                return re.search(words, str(error)) is not None
            return False  # the broker that answers has stale metadata

        until("the topic is reported as missing", is_said)


def _refused(one: Stream, words: str) -> None:
    """A worker and a gateway refuse to start, and retain what may be the last copy."""
    folders = [one.folder / name for name in ("worker-0", "gateway-0")]
    before = [events_in(folder) for folder in folders]
    assert min(before) > 8
    for process in again(one):
        assert process.wait(120) in (2, 3), process.output[-3000:]
        assert re.search(words, process.output), process.output[-3000:]
    assert [events_in(folder) for folder in folders] == before


def _restore(one: Stream, *folders: str) -> tuple[int, str]:
    settings = [word for key, value in one.common.items() for word in ("--set", f"{key}={value}")]
    places = [one.folder / each for each in folders]
    done = command("restore-topic", "--bootstrap", one.kafka, *places, *settings)
    return done.returncode, done.stdout + done.stderr


def _is_restored(one: Stream, answers: dict[str, int], *folders: str) -> None:
    """The restored topic has all events. Processes need empty folders, because theirs belong to the lost topic."""
    data = one.folder / "gateway-0"
    before = events_of(data)
    code, said = _restore(one, *folders)
    assert code == 0, said
    assert f"partition 1: {len(before[1])} events from " in said
    for each in folders:
        shutil.rmtree(one.folder / each)
    worker, gateway = again(one)
    for process in (worker, gateway):
        ready = process.wait_for_line(r"^ready (?:kafka=(\S+) )?http=", within_s=240)
    assert create(ready[1], *answers) == answers
    for process in (gateway, worker):
        assert process.stop(within_s=120) == 0, process.output[-3000:]
    after = events_of(data)
    assert [there[: len(here)] for here, there in zip(before, after, strict=True)] == before
    replayed = scan(kafka_topic(f"kafka://{one.kafka}/{one.names}.events"))
    assert [each.end for each in replayed.partitions] == list(map(len, after))
    assert _restore(one, "gateway-0")[0] == 2, "the topic is no longer lost"


def _is_reported(one: Stream) -> None:
    """A process with all events in its folder continues, and reports that Kafka deleted the first records."""
    for process in again(one):
        (http,) = process.wait_for_line(r"^ready .*?http=(\S+)", within_s=240).groups()
        until("it looks at the topic", lambda at=http: bool(json.loads(fetch(at, "/health/ready")[1])["reason"]))  # type: ignore[misc]
        said = json.loads(fetch(http, "/health/ready")[1])
        assert said["status"] == "ready"
        assert "has lost its first records (of partitions 0, 1)" in said["reason"]
        assert "the events topic lacks its first records" in process.output
        assert "topicwright_records_deleted 4.0" in fetch(http, "/metrics")[1]
        assert process.stop(within_s=120) == 0


def again(one: Stream) -> list[Process]:
    """Returns the worker and the gateway, restarted on their folders."""
    argv = [one._argv("worker", "worker-0", one.common), one._argv("gateway", "gateway-0", one.common)]
    argv[0] += ["--driver", one.driver, "--brokers", "simulated:3"]
    argv[1] += ["--kafka", "127.0.0.1:0"]
    return [one.held.enter_context(one._process(each)) for each in argv]


IGNORED = encode_record(Fence(0, "somebody", "1.0", EVENT_VERSION))


@contextmanager
def transaction(kafka: str, topic: str, value: bytes) -> Iterator[Producer]:
    """An external transaction with one record in each partition; it stays open until the block ends."""
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": f"somebody-{time.time_ns()}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce(topic, value, partition=partition)
    assert producer.flush(60) == 0
    yield producer


def test_external_transactions_in_the_events_topic_delay_and_lose_nothing(
    kafka44: ReferenceKafka, tmp_path: Path
) -> None:
    kafka, names = kafka44.bootstrap, f"aborted-{time.time_ns()}"
    with stream(tmp_path, kafka, names, SETTINGS) as one:
        events, gateway = f"{names}.events", one.gateways[0]
        assert create(gateway.kafka, "a", "b", "c", "d") == dict.fromkeys("abcd", 0)
        with transaction(kafka, events, b"not a record") as producer:
            assert create(gateway.kafka, "x", timeout_ms=1000) == {"x": 7}, "REQUEST_TIMED_OUT: it may be decided later"
            producer.abort_transaction(60)
        assert create(gateway.kafka, "x", "y") in ({"x": 36, "y": 0}, {"x": 0, "y": 0})
        for value, ends in ((b"not a record", "abort_transaction"), (IGNORED, "commit_transaction")):
            with transaction(kafka, events, value) as producer:
                getattr(producer, ends)(60)
            more = [f"{ends}-{number}" for number in range(4)]
            assert create(gateway.kafka, *more) == dict.fromkeys(more, 0), "running processes continue"
        with transaction(kafka, events, b"not a record") as producer:
            producer.abort_transaction(60)
        assert one.workers[0].stop(within_s=120) == 0
        one.start_worker()  # its folder is empty, and each partition ends with a control record
        cold = one.start_gateway()
        assert create(cold.kafka, "e", "f", "g", "h") == dict.fromkeys("efgh", 0)
        for process in (gateway.process, cold.process, *one.workers):
            assert process.stop(within_s=120) == 0, process.output[-3000:]
        with transaction(kafka, events, b"not a record") as producer:
            producer.abort_transaction(60)
        found = scan(kafka_topic(f"kafka://{kafka}/{events}"))
        assert sum(each.end for each in found.partitions) == events_in(cold.data) > 30
        warm = one.start_gateway(folder=cold.data.name)
        one.start_worker()
        assert create(warm.kafka, "i") == {"i": 0}
