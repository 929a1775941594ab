"""The LOG argument of a replay: a data directory, or the events topic of a distributed controller.

A data directory is one log. An events topic has one log for each of its partitions (`log_partition`), each with its own
offsets from 0 on; a replay never mixes them. `open_ref` returns a `Ref`, the input of most other functions. It scans a
topic once, so everything read through the ref ends at the same events. A task reads one `Range` of the offsets of a log
partition, as Arrow batches with the columns of `columns` (`read_range`).
"""

import gc
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from events.codec import decode_event
from projections.replay.log import kafka_scan
from projections.replay.log.columns import Columns, arrow_schema, shard_of
from projections.replay.log.kafka_ref import KAFKA, KafkaTopic, Properties, kafka_topic
from projections.replay.log.kafka_scan import KafkaRef, Range, decoded, end_at_time, end_of_command, scan
from projections.replay.log.secondary import FrozenLog, frozen_log
from projections.replay.outcome import ReplayError
from projections.text.points_in_time import InvalidPointInTime, end_at, iso, parse_point_in_time, time_at


class LogRef(msgspec.Struct, frozen=True):
    """A data directory: `text` as given, `path` the folder of its log.

    A Spark job may read several data directories. `partition` numbers them, and is the `log_partition` of their events.
    `end` is the offset after the event that was the newest when the log was opened (None: the newest at any time).
    """

    text: str
    path: Path
    partition: int = 0
    end: int | None = None


Ref = LogRef | KafkaRef
Ends = Mapping[int, int]
"""Where to stop, by log partition: the offset after the last event."""


def open_ref(text: str, properties: Properties = ()) -> Ref:
    """The log of a LOG argument, scanned if it is in Kafka; `properties` are librdkafka's. A service may write to the
    log meanwhile.

    Raises LogError if the log is missing, not a log, damaged, or from a newer release, and ReplayError if it is empty.
    """
    named = parse_ref(text, properties=properties)
    ref = scan(named) if isinstance(named, KafkaTopic) else named
    ends = ends_of(ref)
    if not any(ends.values()):
        raise ReplayError(f"{ref.text} holds no events yet: there is nothing to replay")
    return replace(ref, end=ends[ref.partition]) if isinstance(ref, LogRef) else ref


def parse_ref(text: str, partition: int = 0, properties: Properties = ()) -> LogRef | KafkaTopic:
    """The log of a LOG argument, without opening it. Raises ReplayError if the argument is invalid."""
    if text.startswith(KAFKA):
        return kafka_topic(text, properties)
    if not text:
        raise ReplayError("LOG is empty: name the data directory of a service, or kafka://HOST:PORT/TOPIC")
    return LogRef(text, Path(os.path.abspath(text.removeprefix("file://"))), partition)


def archived(ref: Ref) -> str | None:
    """A line that names the events of a data directory that are read from its archive; None if there are none. Raises
    LogError."""
    if isinstance(ref, KafkaRef):
        return None
    with frozen_log(ref.path) as log:
        if not log.start_offset:
            return None
        from events.logs.archive.manifest import archive_status  # loads cryptography

        return f"events below {log.start_offset} are read from {archive_status(log).url}"


def ends_of(ref: Ref, at: str | None = None) -> Ends:
    """Where each log partition stops at a point in time (see `projections.text.points_in_time`); None is the newest
    event. An offset applies to each partition, up to the end of the command behind its event; a partition with fewer
    events stops at its end.

    Raises InvalidPointInTime for an invalid text and for an offset that no partition has reached, and ReplayError for a
    time before the first event.
    """
    if isinstance(ref, KafkaRef):
        return _ends_in_kafka(ref, at)
    if at is None and ref.end is not None:
        return {ref.partition: ref.end}
    with frozen_log(ref.path) as log:
        end = log.durable_offset if at is None else end_at(log, parse_point_in_time(at))
        if at is not None and end == 0:
            raise _too_early(at, time_at(log, 1) or 0)
        return {ref.partition: end}


def _ends_in_kafka(ref: KafkaRef, at: str | None) -> Ends:
    newest = {one.partition: one.end for one in ref.partitions}
    if at is None:
        return newest
    point_in_time = parse_point_in_time(at)
    if isinstance(point_in_time, datetime):
        at_ms = round(point_in_time.timestamp() * 1000)
        ends = {one.partition: end_at_time(ref.topic, one, at_ms) for one in ref.partitions}
        if not any(ends.values()):
            raise _too_early(at, min((one.parts[0].first_ms for one in ref.partitions if one.end), default=0))
        return ends
    if point_in_time >= max(newest.values(), default=0):
        reached = f"the newest event of any partition is at offset {max(newest.values(), default=0) - 1}"
        raise InvalidPointInTime(f"offset {point_in_time} is not reached yet: {reached}")
    return {
        one.partition: end_of_command(ref.topic, one, point_in_time) if point_in_time < one.end else one.end
        for one in ref.partitions
    }


def _too_early(at: str, first_ms: int) -> ReplayError:
    return ReplayError(f"{at} is before the log begins: its first event is of {iso(first_ms)}")


def log_of(ref: Ref) -> LogRef | KafkaTopic:
    """The log that a task opens: a topic without its scan, because a `Range` has all that a task needs from the
    scan."""
    return ref.topic if isinstance(ref, KafkaRef) else ref


def as_of(ends: Ends) -> str:
    """These ends as text."""
    if list(ends) == [0]:
        return f"offset {ends[0] - 1}"
    reached = ", ".join(f"{end - 1} of partition {partition}" for partition, end in ends.items() if end)
    if len(ends) > _PARTITIONS_LISTED:
        return f"{sum(ends.values())} events of {len(ends)} partitions"
    return f"offset {reached}" if len(ends) == 1 else f"offsets {reached}"


_PARTITIONS_LISTED = 8


def offsets_row(ends: Ends) -> dict[str, object]:
    """The ends for JSON: `offset` of the newest event; with several partitions, `offsets` by partition."""
    if list(ends) == [0]:
        return {"offset": ends[0] - 1}
    return {"offsets": {str(partition): end - 1 for partition, end in ends.items()}}


def ranges_of(ref: Ref, start: int, ends: Ends, events_max: int) -> list[Range]:
    """The ranges of a log, or of all partitions of one in Kafka, from an offset up to `ends`. In Kafka they consist of
    whole scanned parts, and have at most `events_max` events unless a single part has more."""
    if isinstance(ref, LogRef):
        return ranges(start, ends[ref.partition], events_max, ref.partition)
    made: list[Range] = []
    for one in ref.partitions:
        end = ends.get(one.partition, 0)
        joined: list[Range] = []
        for part in one.parts:
            if part.end <= start or part.start >= end:
                continue
            if joined and part.end - joined[-1].start <= events_max:
                joined[-1] = joined[-1]._replace(end=part.end, kafka_end=part.kafka_end)
            else:
                joined.append(part)
        made += (part._replace(start=max(start, part.start), end=min(end, part.end)) for part in joined)
    return made or [Range(0, 0)]


def ranges(start: int, end: int, events_max: int, partition: int = 0) -> list[Range]:
    """Ranges of about equal size, of at most `events_max` events; one empty range if there are none."""
    count = max(1, -(-(end - start) // events_max))
    bounds = [start + (end - start) * n // count for n in range(count + 1)]
    return [Range(bounds[n], bounds[n + 1], partition) for n in range(count)]


def stored_events(log: LogRef | KafkaTopic, wanted: Range) -> Iterator[tuple[int, bytes]]:
    """The stored events of a range. Raises LogError, LogCorrupted if an event is missing, and ReplayError if the log
    has become shorter."""
    if wanted.start == wanted.end:
        return
    if isinstance(log, KafkaTopic):
        yield from kafka_scan.stored_events(log, wanted)
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
                f"{log.path} is shorter than before: it ended at offset {wanted.end}, and now ends at {end}"
            )
        yield opened


RANGE_EVENTS = 50_000
"""The maximum number of events that one task reads."""
_BATCH_ROWS = 10_000
_BATCH_BYTES = 4 << 20


@contextmanager
def collector_off() -> Iterator[None]:
    """Turn off Python's garbage collector: events and states have no cycles, and a search for cycles takes half of the
    time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def read_range(
    log: LogRef | KafkaTopic, wanted: Range, names: Sequence[str], shards: frozenset[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The events of a range, of some shards (None: all): archived events as the columns in the archive, others decoded.

    Raises LogError, EventDecodeError; LogCorrupted if an event is missing.
    """
    with collector_off():
        if isinstance(log, KafkaTopic) or wanted.start == wanted.end:
            yield from _decoded(log, stored_events(log, wanted), wanted.partition, names, shards)
            return
        with open_range(log, wanted) as opened:
            here = min(max(wanted.start, opened.start_offset), wanted.end)
            if wanted.start < here:
                yield from _archived(opened, wanted.start, here, wanted.partition, names, shards)
            yield from _decoded(log, opened.read(here, wanted.end), wanted.partition, names, shards)


def _decoded(
    log: LogRef | KafkaTopic,
    stored: Iterable[tuple[int, bytes]],
    partition: int,
    names: Sequence[str],
    shards: frozenset[str] | None,
) -> Iterator[pa.RecordBatch]:
    columns, room = Columns(names, partition), _BATCH_BYTES
    decode = decode_event if isinstance(log, LogRef) else partial(decoded, log, partition)
    for offset, value in stored:
        recorded = decode(offset, value)
        if shards is not None and shard_of(recorded.event) not in shards:
            continue
        columns.add(recorded, value)
        room -= len(value)
        if room <= 0 or len(columns) >= _BATCH_ROWS:
            yield columns.batch()
            room = _BATCH_BYTES
    if len(columns):
        yield columns.batch()


def _archived(
    log: FrozenLog, start: int, end: int, partition: int, names: Sequence[str], shards: frozenset[str] | None
) -> Iterator[pa.RecordBatch]:
    import pyarrow.compute as pc

    from events.logs.archive.segment import SegmentFile

    schema = arrow_schema(tuple(dict.fromkeys((*names, "shard"))))
    for segment in log.archive.segments(start, end):
        file = SegmentFile(segment, log.archive.content(segment))
        for batch in file.batches(start, end, schema):
            chosen = batch
            if shards is not None:
                chosen = batch.filter(pc.is_in(batch.column("shard"), pa.array(sorted(shards), pa.string())))
            if "log_partition" in names and partition:
                at = schema.get_field_index("log_partition")
                chosen = chosen.set_column(at, schema[at], pa.repeat(pa.scalar(partition, pa.int32()), len(chosen)))
            yield chosen.select(list(names))
