"""A history in the partitions of a Kafka topic, as workers write it, interleaved with records that readers must
ignore."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from uuid import uuid4

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # it does not say that it exports

from controller.stream.log.codec import partition_of
from events.catalog import EVENT_VERSION, Recorded
from events.codec import encode_event
from events.logs.events_topic import Decided, Fence, encode_record
from events.names import shard_key
from tests.machine.audit.planted import renumbered
from tests.support.reference_kafka import ReferenceKafka

WITHIN_S = 240.0
IGNORED_IN_EACH = 4
"""The number of ignored records that `as_records` inserts."""


def in_partitions(records: Iterable[Recorded], count: int) -> list[list[Recorded]]:
    """Split a history as workers do: each partition has its own shards, and all broker and settings events."""
    parts: list[list[Recorded]] = [[] for _ in range(count)]
    for record in records:
        topic = getattr(record.event, "topic", None)
        for number, part in enumerate(parts):
            if topic is None or partition_of(shard_key(topic), count) == number:
                part.append(record)
    return [renumbered(part) for part in parts]


def as_records(records: Sequence[Recorded]) -> list[bytes]:
    """The records of one partition: decisions of two workers, and records of fenced or mistaken writers."""
    decisions = [list(run) for _, run in groupby(records[1:], lambda one: (one.cause, one.at_ms))]
    half = len(decisions) // 2
    return [
        _fence(1, "first", records[:1]),
        _fence(1, "too late", records[:1]),
        *(_decided(1, source, run) for source, run in enumerate(decisions[:half])),
        encode_record(Decided(1, half, (), fault="a poison command")),
        _fence(2, "second", ()),
        _decided(1, half + 1, decisions[half]),
        _decided(2, half, decisions[half - 1]),
        _decided(3, half + 1, decisions[half]),
        *(_decided(2, half + 1 + source, run) for source, run in enumerate(decisions[half:])),
    ]


def _fence(epoch: int, writer: str, records: Sequence[Recorded]) -> bytes:
    return encode_record(Fence(epoch, writer, "1.0", EVENT_VERSION, tuple(_bytes(records))))


def _decided(epoch: int, source: int, records: Sequence[Recorded]) -> bytes:
    return encode_record(Decided(epoch, source, tuple(_bytes(records))))


def _bytes(records: Sequence[Recorded]) -> Iterator[bytes]:
    return (encode_event(record.at_ms, record.cause, record.event) for record in records)


def make_topic(bootstrap: str, partitions: Sequence[Sequence[bytes]]) -> str:
    """Create a topic with these records in its partitions; returns its name."""
    name = f"events-{uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, len(partitions), 1)]).values():
        future.result(WITHIN_S)
    for number, values in enumerate(partitions):
        append(bootstrap, name, number, values)
    return name


def url(kafka: ReferenceKafka, topic: str) -> str:
    """The LOG argument for a topic."""
    return f"kafka://{kafka.bootstrap}/{topic}"


def append(bootstrap: str, topic: str, partition: int, values: Sequence[bytes]) -> None:
    """Append records to a partition; returns when they are acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(WITHIN_S) == 0, "all records are acknowledged"
