"""Following a log in Kafka: each event arrives once, and a watch alerts to violations in new records."""

from __future__ import annotations

import io
from contextlib import closing

import pytest
from msgspec.structs import replace

from events.catalog import CreateAnswered, Recorded
from events.codec import encode_event
from events.logs.events_topic import Decided, PartitionReader, encode_record
from events.names import CLUSTER_SHARD, Offset
from projections.replay.log.kafka_ref import TopicReader, kafka_topic
from projections.replay.log.kafka_scan import KafkaRef
from projections.replay.log.log_ref import open_ref
from projections.replay.outcome import ReplayError
from projections.replay.watch import Alerts, followed
from tests.machine.audit.planted import at, clean
from tests.replay.kafka_history import append, as_records, in_partitions, make_topic, url
from tests.replay.watch.test_watch import WITHIN_S, following
from tests.support.reference_kafka import ReferenceKafka

Offsets = set[tuple[int, int]]


@pytest.fixture
def parts() -> list[list[Recorded]]:
    """Two partitions of a sound history."""
    return in_partitions(clean(), 2)


@pytest.fixture
def topic(kafka44: ReferenceKafka, parts: list[list[Recorded]]) -> str:
    """A topic with these partitions."""
    return make_topic(kafka44.bootstrap, [as_records(part) for part in parts])


def decided(record: Recorded, source: int) -> bytes:
    """Another decision, with one event."""
    return encode_record(Decided(2, source, (encode_event(record.at_ms, record.cause, record.event),)))


def last_source(part: list[Recorded]) -> int:
    """The source offset after the commands decided in a partition."""
    fold = PartitionReader(0)
    for offset, value in enumerate(as_records(part)):
        fold.read(offset, value)
    return fold.next_source


def test_a_follower_reads_each_event_once_and_fails_on_a_recreated_topic(
    kafka44: ReferenceKafka, topic: str, parts: list[list[Recorded]]
) -> None:
    ref = open_ref(url(kafka44, topic))
    with followed(ref) as log:

        def new() -> Offsets:
            rows = [row for batch in log.new() for row in batch.to_pylist()]
            assert len(rows) == len({(row["log_partition"], row["offset"]) for row in rows})
            return {(row["log_partition"], row["offset"]) for row in rows}

        assert new() == {(number, offset) for number, part in enumerate(parts) for offset in range(len(part))}
        append(kafka44.bootstrap, topic, 1, [decided(parts[1][-1], last_source(parts[1]))])
        assert new() == {(1, len(parts[1]))}
        assert new() == set()
        (batch,) = log.before({1: len(parts[1])}, {1: {CLUSTER_SHARD}})
        earlier = batch["offset"].to_pylist()
        assert earlier == [one.offset for one in parts[1] if not hasattr(one.event, "topic")]
    assert isinstance(ref, KafkaRef)
    shorter = make_topic(kafka44.bootstrap, [as_records(parts[0][:9]), as_records(parts[1])])
    other = kafka_topic(url(kafka44, shorter))
    with followed(ref) as log, closing(TopicReader(other)) as kafka:
        assert list(log.new())
        log._kafka = kafka  # type: ignore[union-attr]
        with pytest.raises(ReplayError, match="is not the log any more that the watch has read: partition 0 ends at"):
            list(log.new())


@pytest.mark.timeout(WITHIN_S)
def test_watch_alerts_name_the_log_partition(kafka44: ReferenceKafka, topic: str, parts: list[list[Recorded]]) -> None:
    alerts, out = Alerts(), io.StringIO()
    number = next(n for n, part in enumerate(parts) if any(isinstance(one.event, CreateAnswered) for one in part))
    part = parts[number]
    answered = replace(part[at(part, CreateAnswered)], offset=Offset(len(part)), at_ms=part[-1].at_ms)
    with following(open_ref(url(kafka44, topic)), alerts, out) as checked:
        checked(sum(map(len, parts)))
        assert alerts.count == 0, out.getvalue()
        append(kafka44.bootstrap, topic, number, [decided(answered, last_source(part))])
        checked(sum(map(len, parts)) + 1)
    assert alerts.next_offsets[number] == len(part) + 1
    (line,) = out.getvalue().splitlines()
    assert line.startswith(f"ALERT one-answer: offset {len(part)} of partition {number}, topic ")
