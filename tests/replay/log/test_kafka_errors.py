"""Kafka topics that cannot be replayed are reported with a remedy, and never pass as sound."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from events.catalog import EVENT_VERSION
from events.logs.events_topic import Decided, Fence, encode_record
from projections.replay.log import kafka_ref
from projections.replay.log.kafka_ref import kafka_topic
from projections.replay.log.kafka_scan import KafkaRef, stored_events
from projections.replay.log.log_ref import open_ref
from projections.replay.outcome import ReplayError
from tests.machine.audit.planted import clean
from tests.replay.kafka_history import as_records, in_partitions, make_topic, url
from tests.replay.test_cli_replay import Run, run, run_without_spark
from tests.support.ports import free_ports
from tests.support.reference_kafka import ReferenceKafka

__all__ = ["run", "run_without_spark"]


def records() -> list[bytes]:
    """One partition of a sound history."""
    return as_records(in_partitions(clean(), 1)[0])


@contextmanager
def refused(says: str) -> Iterator[None]:
    """The replay fails with this message."""
    with pytest.raises(ReplayError) as error:
        yield
    assert says in str(error.value)


def failed(run: Run, *words: object) -> str:
    """The error message of a command that cannot run."""
    ended = run(*words)
    assert (ended.code, ended.out) == (2, "")
    return ended.err


@pytest.mark.parametrize(
    "text",
    [
        "kafka://",
        "kafka://localhost",
        "kafka://localhost/topic",
        "kafka://localhost:0/topic",
        "kafka://localhost:99999/topic",
        "kafka://localhost:9092",
        "kafka://localhost:9092/",
        "kafka://localhost:9092/a/b",
        "kafka://localhost:9092/to pic",
        "kafka://localhost:9092,/topic",
    ],
)
def test_an_invalid_kafka_url_is_rejected(text: str) -> None:
    with refused(f"{text} is not a log in Kafka: use kafka://HOST:PORT[,HOST:PORT]/TOPIC"):
        kafka_topic(text)


def test_a_valid_kafka_url_is_parsed() -> None:
    topic = kafka_topic("kafka://one:9092,[::1]:9093/topicwright.events")
    assert (topic.bootstrap, topic.topic) == ("one:9092,[::1]:9093", "topicwright.events")


def test_an_unreachable_kafka_is_reported(monkeypatch: pytest.MonkeyPatch, run_without_spark: Run) -> None:
    monkeypatch.setattr(kafka_ref, "ANSWERS_WITHIN_S", 1.0)
    (port,) = free_ports(1)
    log = f"kafka://127.0.0.1:{port}/events"
    assert f"Kafka at 127.0.0.1:{port} does not answer" in failed(run_without_spark, "rebuild", log)


def test_a_missing_events_topic_is_reported_and_not_created(kafka44: ReferenceKafka, run_without_spark: Run) -> None:
    said = failed(run_without_spark, "invariants", url(kafka44, "no-such-topic"))
    assert f"there is no topic no-such-topic in Kafka at {kafka44.bootstrap}" in said
    known = AdminClient({"bootstrap.servers": kafka44.bootstrap}).list_topics(timeout=30).topics
    assert "no-such-topic" not in known


def test_an_empty_events_topic_is_reported(kafka44: ReferenceKafka, run_without_spark: Run) -> None:
    topic = make_topic(kafka44.bootstrap, [[], []])
    said = failed(run_without_spark, "compare", url(kafka44, topic), "--data", "data")
    assert f"/{topic} holds no events yet: there is nothing to replay" in said


@pytest.mark.parametrize("up_to", [3, -1], ids=["cut", "emptied"])
def test_an_events_topic_without_its_first_records_is_rejected(kafka44: ReferenceKafka, up_to: int) -> None:
    topic = make_topic(kafka44.bootstrap, [records()])
    end = len(records()) if up_to < 0 else up_to
    admin = AdminClient({"bootstrap.servers": kafka44.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, end)]).values():
        future.result(30)
    with refused(f"the records of partition 0 before {end} are gone"):
        open_ref(url(kafka44, topic))


def test_records_deleted_during_a_read_are_an_error(kafka44: ReferenceKafka) -> None:
    topic = make_topic(kafka44.bootstrap, [records()])
    ref = open_ref(url(kafka44, topic))
    assert isinstance(ref, KafkaRef)
    (part,) = ref.partitions[0].parts
    admin = AdminClient({"bootstrap.servers": kafka44.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, 5)]).values():
        future.result(30)
    with refused("record 0 of partition 0 no longer exists"):
        list(stored_events(ref.topic, part))


FENCE = encode_record(Fence(1, "w", "1.0", EVENT_VERSION))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([FENCE, b"\xc1"], "events partition 1, record 1: not a record of this release"),
        ([FENCE, b""], "events partition 1, record 1: not a record of this release"),
        ([FENCE, encode_record(Decided(1, 2, ()))], "record 1: it decides command 2, and the next one is 0"),
        ([FENCE, encode_record(Decided(1, 0, (b"\xc1",)))], "partition 1, event at offset 0: not an event"),
        (
            [encode_record(Fence(1, "w", "9.9", EVENT_VERSION + 1))],
            f"written by release 9.9 in event version {EVENT_VERSION + 1}",
        ),
    ],
    ids=["no record", "empty", "gap", "no event", "newer"],
)
def test_malformed_records_are_reported(kafka44: ReferenceKafka, values: list[bytes], says: str) -> None:
    topic = make_topic(kafka44.bootstrap, [records(), values])
    with refused(says):
        open_ref(url(kafka44, topic))


def test_kafka_client_properties_are_read_from_a_file(kafka44: ReferenceKafka, tmp_path: Path, run: Run) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("# how to get in\nclient.id = someone\n\nsecurity.protocol=PLAINTEXT\n")
    topic = make_topic(kafka44.bootstrap, [records()])
    ended = run("redecide", url(kafka44, topic), "--kafka-properties", file, "--json")
    assert ended.code == 0, ended.err
    answer = json.loads(ended.out)
    assert (answer["found"], answer["rows"]) == (False, [])


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nonsense", 'No such configuration property: "nonsense"'),
        ("group.id=mine", "Kafka property group.id cannot be set here"),
        ("no.such.property=1", 'No such configuration property: "no.such.property"'),
        ("security.protocol=TELEPATHY", "security.protocol"),
    ],
)
def test_an_invalid_kafka_property_is_rejected(tmp_path: Path, run_without_spark: Run, line: str, says: str) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text(f"{line}\n")
    assert says in failed(run_without_spark, "rebuild", "kafka://127.0.0.1:1/events", "--kafka-properties", file)


def test_compare_of_an_events_topic_requires_a_live_side(kafka44: ReferenceKafka, run_without_spark: Run) -> None:
    log = url(kafka44, make_topic(kafka44.bootstrap, [records()]))
    assert "no state to compare with: name --data DIR, the data folder of" in failed(run_without_spark, "compare", log)
