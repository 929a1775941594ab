"""A history in the partitions of a real topic, as workers write it, with records between that must be ignored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from uuid import uuid4

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # it does not say that it exports

from events.catalog import EVENT_VERSION, Recorded
from events.codec import encode_event
from events.logs.events_topic import Decided, Fence, encode_record, partition_of
from events.names import shard_key
from tests.machine.audit.planted import renumbered
from tests.support.reference_kafka import ReferenceKafka

WITHIN_S = 240.0
IGNORED_IN_EACH = 4
"""How many records that do not count `as_records` puts in."""


def in_partitions(records: Iterable[Recorded], count: int) -> list[list[Recorded]]:
    """A history as a distributed controller has it: each partition has its shards, and all brokers and settings."""
    parts: list[list[Recorded]] = [[] for _ in range(count)]
    for record in records:
        topic = getattr(record.event, "topic", None)
        for number, part in enumerate(parts):
            if topic is None or partition_of(shard_key(topic), count) == number:
                part.append(record)
    return [renumbered(part) for part in parts]


def as_records(records: Sequence[Recorded]) -> list[bytes]:
    """The records of one partition: decisions of two workers, and what others wrote that thought it theirs."""
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
    """A new topic with these records in its partitions; its name."""
    name = f"events-{uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, len(partitions), 1)]).values():
        future.result(WITHIN_S)
    for number, values in enumerate(partitions):
        append(bootstrap, name, number, values)
    return name


def url(kafka: ReferenceKafka, topic: str) -> str:
    """A topic as LOG."""
    return f"kafka://{kafka.bootstrap}/{topic}"


def append(bootstrap: str, topic: str, partition: int, values: Sequence[bytes]) -> None:
    """Put records at the end of a partition; they are there when this returns."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(WITHIN_S) == 0, "all records are acknowledged"
