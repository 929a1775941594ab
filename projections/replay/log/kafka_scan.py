"""Scans an events topic once and divides it into ranges, which the tasks of a replay read in parallel.

Records of fenced workers and duplicate decisions do not count (`events.logs.events_topic`). To recognize them, a reader
must know the records before. So the process that starts the replay reads each partition from the beginning, and stores
the reader's position every SCAN_EVENTS events: a task may begin there. It also stores the events that concern every
topic (brokers, settings), which every task needs. The end of each partition is fixed before the scan.

Memory: some hundred bytes for each range, and the events of brokers and settings.

Non-goal: storing the other events. Tasks read them from Kafka again.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import closing
from operator import attrgetter
from typing import NamedTuple

import msgspec

from events.catalog import Recorded
from events.codec import EventDecodeError, decode_event
from events.logs.events_topic import KEEP_ALL, START, PartitionReader, Position, RecordError
from events.logs.log import LogError
from projections.replay.log.kafka_ref import KafkaTopic, TopicReader
from projections.replay.outcome import ReplayError

SCAN_EVENTS = 50_000  # the events of a partition between two positions at which a task may begin
Stored = tuple[int, bytes]
"""An event as it is stored: its offset and its canonical bytes."""


class Range(NamedTuple):
    """Offsets from `start` up to `end` (exclusive) of a log partition.

    In Kafka, a task reads from the `position` of the `PartitionReader` up to the record `kafka_end` (exclusive).
    `first_ms` is the time of the first event at this position.
    """

    start: int
    end: int
    partition: int = 0
    position: Position = START
    kafka_end: int = 0
    first_ms: int = 0


class PartitionScan(msgspec.Struct, frozen=True):
    """A partition: its parts with events, in order, and the events that concern every topic."""

    partition: int
    end: int
    parts: tuple[Range, ...]
    cluster: tuple[Stored, ...]


class KafkaRef(msgspec.Struct, frozen=True):
    """An events topic, or some of its partitions, with their ends at the time of the scan."""

    topic: KafkaTopic
    cluster_id: str
    partitions: tuple[PartitionScan, ...]

    @property
    def text(self) -> str:
        return self.topic.text


def scan(topic: KafkaTopic, only: int | None = None, segment_events: int = SCAN_EVENTS) -> KafkaRef:
    """Scan a topic, or `only` one of its partitions, up to its current end. Tasks may begin after each `segment_events`
    events, at most SCAN_EVENTS. Raises ReplayError if Kafka cannot be reached, records are missing or invalid, or the
    partition does not exist."""
    segment_events = min(segment_events, SCAN_EVENTS)
    with closing(TopicReader(topic)) as kafka:
        cluster_id, ranges = kafka.current_ranges()
        if only is not None and only not in ranges:
            raise ReplayError(f"{topic.text} has no partition {only}: it has partitions 0 to {len(ranges) - 1}")
        wanted = ranges if only is None else {only: ranges[only]}
        scans = [_scan(kafka, topic, partition, *ends, segment_events) for partition, ends in wanted.items()]
    return KafkaRef(topic, cluster_id, tuple(scans))


def _scan(
    kafka: TopicReader, topic: KafkaTopic, partition: int, first: int, end: int, segment_events: int
) -> PartitionScan:
    if first > 0:
        raise ReplayError(
            f"{topic.text}: the records of partition {partition} before {first} are gone, and with them the beginning "
            f"of the history: {KEEP_ALL}"
        )
    cluster: list[Stored] = []
    parts: list[Range] = []
    start, first_ms = START, -1
    fold = PartitionReader(partition)

    def end_part() -> None:
        parts.append(Range(start.next_event, fold.next_event, partition, start, fold.kafka_offset, first_ms))

    for events in folded(topic, fold, kafka.records(partition, 0, end)):
        for number, value in events:
            recorded = decoded(topic, partition, number, value)
            first_ms = recorded.at_ms if first_ms < 0 else first_ms
            if not hasattr(recorded.event, "topic"):
                cluster.append((number, value))
        if fold.next_event - start.next_event >= segment_events:
            end_part()
            start, first_ms = fold.position, -1
    if fold.next_event > start.next_event:
        end_part()
    return PartitionScan(partition, fold.next_event, tuple(parts), tuple(cluster))


def folded(topic: KafkaTopic, fold: PartitionReader, records: Iterable[tuple[int, bytes]]) -> Iterator[list[Stored]]:
    """The events of each record that counts, with their offsets. Raises ReplayError."""
    for kafka_offset, value in records:
        try:
            taken = fold.read(kafka_offset, value)
        except (LogError, RecordError) as error:
            raise ReplayError(f"{topic.text}: {error}") from None
        if taken is not None:
            yield list(enumerate(taken.events, fold.next_event - len(taken.events)))


def decoded(topic: KafkaTopic, partition: int, number: int, value: bytes) -> Recorded:
    """Decode an event. Raises ReplayError, which names the partition."""
    try:
        return decode_event(number, value)
    except EventDecodeError as error:
        raise ReplayError(f"{topic.text}: partition {partition}, {error}") from None


def stored_events(topic: KafkaTopic, wanted: Range) -> Iterator[Stored]:
    """The events of a range. Raises ReplayError, also if the topic was replaced by another one."""
    for events in _commands(topic, wanted):
        yield from (one for one in events if wanted.start <= one[0] < wanted.end)


def _commands(topic: KafkaTopic, wanted: Range) -> Iterator[list[Stored]]:
    """The events of each command from the position of a range until its end is reached."""
    end, partition, position = wanted[1:4]
    fold = PartitionReader(partition, position)
    with closing(TopicReader(topic)) as kafka:
        for events in folded(topic, fold, kafka.records(partition, position.kafka_offset, wanted.kafka_end)):
            yield events
            if fold.next_event >= end:
                return
    raise ReplayError(
        f"{topic.text}: partition {partition} is shorter than before: it ended at offset {end}, and now ends at "
        f"{fold.next_event}"
    )


def end_at_time(topic: KafkaTopic, one: PartitionScan, at_ms: int) -> int:
    """The offset after the last event of a partition at or before a time; 0 before the first."""
    place = bisect_right(one.parts, at_ms, key=attrgetter("first_ms"))
    if place == 0:
        return 0
    part = one.parts[place - 1]
    for number, value in stored_events(topic, part):
        if decoded(topic, one.partition, number, value).at_ms > at_ms:
            return number
    return part.end


def end_of_command(topic: KafkaTopic, one: PartitionScan, offset: int) -> int:
    """The offset after the last event of the command behind an event of a partition."""
    return _command_of(topic, one, offset)[-1][0] + 1


def event_at(topic: KafkaTopic, one: PartitionScan, offset: int) -> bytes:
    """The event at an offset before the end of a partition."""
    return dict(_command_of(topic, one, offset))[offset]


def _command_of(topic: KafkaTopic, one: PartitionScan, offset: int) -> list[Stored]:
    part = one.parts[bisect_right(one.parts, offset, key=attrgetter("start")) - 1]
    *_, events = _commands(topic, part._replace(end=offset + 1))
    return events
