"""The data source: `spark.read.format("topicwright").load(LOG)`, one row an event.

What it is for: everything that Spark asks of a log. The columns are described in `columns`.

Options
    startoffset   the first offset to read; 0
    endoffset     the offset to stop before; where the log ends
    at            instead of endoffset: a moment (see `projections.moments`), its last event included
    shards        shard keys, separated by commas, of which to read; `-` for events that concern every topic
    columns       the columns to make, separated by commas; all. Spark does not tell Python sources what it needs, so
                  reading is much faster when it is said
    rangeevents   events that one task reads at most; 50,000
    logpartition  the number that rows carry as `log_partition`, where a job reads several logs; 0

Method. One task reads one range of offsets through a RocksDB secondary of its own (see `secondary`), so the log may be
in use. Where the log ends is found once, when the frame is made, and all that is made of it sees the same events.

A damaged log does not pass: every event in the range is decoded, whichever columns or shards are asked for, and the
first that is missing or is no event of this release fails the job with its offset.

What it does not do: write; and read a log that is in Kafka.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from events.codec import decode_event
from events.names import CLUSTER_SHARD, shard_key
from projections.replay.columns import Columns, arrow_schema, column_names, ddl
from projections.replay.errors import ReplayError
from projections.replay.log_ref import LogRef, Span, end_of, looked_at, parse_ref
from projections.replay.secondary import look

FORMAT = "topicwright"
RANGE_EVENTS = 50_000
_BATCH_ROWS = 10_000
_BATCH_BYTES = 4 << 20
_CLUSTER = "-"


class Range(InputPartition):
    """What one task reads: offsets from `start` up to but not including `end`."""

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end


class TopicwrightSource(DataSource):
    """The data source `topicwright`; register it once a session (`projections.replay.session` does)."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._asked = {name.lower(): text for name, text in options.items()}
        self._names = _columns(self._asked.get("columns"))
        self._span: Span | None = None

    def schema(self) -> str:
        self._pinned()  # Spark asks for the schema once a frame, and keeps this object for all that is made of it
        return ddl(arrow_schema(self._names))

    def reader(self, schema: StructType) -> DataSourceReader:
        return EventReader(self._ref(), self._pinned(), self._names, self._asked)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - the name is Spark's
        from projections.replay.streaming import EventStreamReader

        return EventStreamReader(self._ref(), self._names, self._asked)

    def _ref(self) -> LogRef:
        return parse_ref(self._asked.get("path", ""), number_option(self._asked, "logpartition", 0))

    def _pinned(self) -> Span:
        if self._span is None:
            self._span = _span(self._ref(), self._asked)
        return self._span


class EventReader(DataSourceReader):
    """Reads a span of a log, in ranges."""

    def __init__(self, ref: LogRef, span: Span, names: Sequence[str], asked: Mapping[str, str]) -> None:
        self._ref = ref
        self._span = span
        self._names = names
        self._range_events = positive(asked, "rangeevents", RANGE_EVENTS)
        self._shards = wanted_shards(asked.get("shards"))

    def partitions(self) -> Sequence[InputPartition]:
        return ranges(self._span.start, self._span.end, self._range_events)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range), "Spark hands back the partitions that it was given"
        return read_range(self._ref, partition, self._names, self._shards)


def events_frame(
    spark: SparkSession,
    ref: LogRef,
    at: str | None = None,
    columns: Sequence[str] | None = None,
    *,
    start: int = 0,
    end: int | None = None,
    shards: Sequence[str] | None = None,
    range_events: int = RANGE_EVENTS,
) -> DataFrame:
    """The events of a log up to a moment, or from offset `start` up to but not including `end`.

    Where the log ends is found here and now. Raises ReplayError for a moment or an offset that the log does not have.
    """
    asked = {"startoffset": str(start)}
    asked |= {} if at is None else {"at": at}
    asked |= {} if end is None else {"endoffset": str(end)}
    span = _span(ref, asked)
    reader = spark.read.format(FORMAT).option("startoffset", span.start).option("endoffset", span.end)
    reader = reader.option("rangeevents", range_events).option("logpartition", ref.partition)
    if columns is not None:
        reader = reader.option("columns", ",".join(columns))
    if shards is not None:
        reader = reader.option("shards", ",".join(one or _CLUSTER for one in shards))
    return reader.load(ref.location)


def ranges(start: int, end: int, events_max: int) -> list[Range]:
    """Ranges of about equal size, none above `events_max`; one empty range where there is nothing to read."""
    count = max(1, -(-(end - start) // events_max))
    bounds = [start + (end - start) * n // count for n in range(count + 1)]
    return [Range(bounds[n], bounds[n + 1]) for n in range(count)]


def read_range(
    ref: LogRef, wanted: Range, names: Sequence[str], shards: frozenset[str] | None
) -> Iterator[pa.RecordBatch]:
    """The events of a range in batches. Raises LogError, EventDecodeError; LogCorrupted where one is missing."""
    gc.disable()  # decoded events hold no cycles, and looking for some takes half of the time
    columns, room = Columns(names, ref.partition), _BATCH_BYTES
    for offset, value in read_events(ref.path, wanted):
        recorded = decode_event(offset, value)
        if shards is not None and _shard_of(recorded.event) not in shards:
            continue
        columns.add(recorded, value)
        room -= len(value)
        if room <= 0 or len(columns) >= _BATCH_ROWS:
            yield columns.batch()
            room = _BATCH_BYTES
    if len(columns):
        yield columns.batch()


def read_events(path: Path, wanted: Range) -> Iterator[tuple[int, bytes]]:
    """The stored events of a range. Raises LogError; LogCorrupted where one is missing, ReplayError where the log has
    become shorter."""
    if wanted.start == wanted.end:
        return
    with look(path) as log:
        if log.next_offset < wanted.end:
            raise ReplayError(f"{path} ends at offset {log.next_offset} now: events up to {wanted.end} were there")
        yield from log.read(wanted.start, wanted.end)


def positive(asked: Mapping[str, str], name: str, otherwise: int) -> int:
    """An option that is a whole number above 0. Raises ReplayError."""
    number = number_option(asked, name, otherwise)
    if number == 0:
        raise ReplayError(f"option {name} must be above 0")
    return number


def _span(ref: LogRef, asked: Mapping[str, str]) -> Span:
    """The offsets to read. Raises ReplayError."""
    if "at" in asked and "endoffset" in asked:
        raise ReplayError("options at and endoffset both say where to end: give one of them")
    with looked_at(ref) as log:
        reached = end_of(log, asked.get("at"))
        start, end = number_option(asked, "startoffset", 0), number_option(asked, "endoffset", reached)
        if end > log.next_offset or start > end:
            past = "startoffset" if start > end else "endoffset"
            raise ReplayError(
                f"{past}={asked.get(past)} is past the end: what is to be read of {ref.text} ends at offset {reached}"
            )
        return Span(start, end)


def number_option(asked: Mapping[str, str], name: str, otherwise: int) -> int:
    """An option that is a whole number, 0 or more. Raises ReplayError."""
    text = asked.get(name)
    if text is None:
        return otherwise
    if not (text.isascii() and text.isdigit()):
        raise ReplayError(f"option {name}={text!r} is not a whole number, 0 or more")
    return int(text)


def _columns(text: str | None) -> tuple[str, ...]:
    try:
        return column_names(text)
    except ValueError as error:
        raise ReplayError(str(error)) from None


def wanted_shards(text: str | None) -> frozenset[str] | None:
    """The shard keys that option `shards` names; None for all."""
    if text is None:
        return None
    return frozenset("" if one == _CLUSTER else shard_key(one) for one in map(str.strip, text.split(",")) if one)


def _shard_of(event: Any) -> str:
    topic: str | None = getattr(event, "topic", None)
    return CLUSTER_SHARD if topic is None else shard_key(topic)
