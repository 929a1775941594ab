"""Ranges of the offsets of a log partition: each is what one task reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from events.logs.events_topic import START, Position
from projections.replay.errors import ReplayError
from projections.replay.log import kafka_scan
from projections.replay.log.kafka_ref import KafkaTopic
from projections.replay.log.kafka_scan import Scan, Stretch
from projections.replay.log.log_ref import Ends, KafkaRef, LogRef, Ref
from projections.replay.log.secondary import FrozenLog, frozen_log


class Range:
    """Offsets from `start` up to `end` (exclusive) of a log partition.

    Of a log in Kafka, reading begins at `position` (the next record and event, and the writer's epoch there), and ends
    before the record `kafka_end`.
    """

    def __init__(
        self, start: int, end: int, partition: int = 0, position: Position = START, kafka_end: int = 0
    ) -> None:
        self.start = start
        self.end = end
        self.partition = partition
        self.position = position
        self.kafka_end = kafka_end


def ranges_of(ref: Ref, start: int, ends: Ends, events_max: int) -> list[Range]:
    """The ranges of a log, or of all partitions of one in Kafka, from an offset up to `ends`."""
    if isinstance(ref, KafkaRef):
        return kafka_ranges(ref.scan, start, ends, events_max)
    return ranges(start, ends[ref.partition], events_max, ref.partition)


def ranges(start: int, end: int, events_max: int, partition: int = 0) -> list[Range]:
    """Ranges of about equal size, of at most `events_max` events; one empty range if there are none."""
    count = max(1, -(-(end - start) // events_max))
    bounds = [start + (end - start) * n // count for n in range(count + 1)]
    return [Range(bounds[n], bounds[n + 1], partition) for n in range(count)]


def kafka_ranges(scan: Scan, start: int, ends: Ends, events_max: int) -> list[Range]:
    """The ranges of a topic's partitions, from an offset of each up to `ends`. They consist of whole stretches (runs
    of records that the scan noted), and have at most `events_max` events unless a single stretch has more."""
    made: list[Range] = []
    for one in scan.partitions:
        end = min(ends.get(one.partition, 0), one.end)
        wanted = [stretch for stretch in one.stretches if stretch.end > start and stretch.start.next_event < end]
        for run in _runs(wanted, events_max):
            first, last = run[0].start, run[-1]
            made.append(Range(max(start, first.next_event), min(end, last.end), one.partition, first, last.kafka_end))
    return made or [Range(0, 0)]


def _runs(stretches: Sequence[Stretch], events_max: int) -> Iterator[list[Stretch]]:
    run: list[Stretch] = []
    for stretch in stretches:
        if run and stretch.end - run[0].start.next_event > events_max:
            yield run
            run = []
        run.append(stretch)
    if run:
        yield run


def stored_events(log: LogRef | KafkaTopic, wanted: Range) -> Iterator[tuple[int, bytes]]:
    """The stored events of a range. Raises LogError, LogCorrupted if one is missing, and ReplayError if the log has
    become shorter."""
    if wanted.start == wanted.end:
        return
    if isinstance(log, KafkaTopic):
        found = kafka_scan.stored_events(log, wanted.partition, wanted.position, wanted.kafka_end, wanted.end)
        yield from (one for one in found if one[0] >= wanted.start)
        return
    with open_range(log, wanted) as opened:
        yield from opened.read(wanted.start, wanted.end)


@contextmanager
def open_range(log: LogRef, wanted: Range) -> Iterator[FrozenLog]:
    """Open a data directory that must hold a range. Raises LogError, and ReplayError if the log has become shorter."""
    with frozen_log(log.path) as opened:
        if opened.next_offset < wanted.end:
            end = opened.next_offset
            raise ReplayError(
                f"{log.path} has become shorter: it ends at offset {end}, and ended at {wanted.end} before"
            )
        yield opened
