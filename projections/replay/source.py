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
    logpartition  the number that rows carry as `log_partition`, where a job reads several data directories; 0. Of a
                  log in Kafka: read only this partition
    kafka.KEY     librdkafka's properties for a log in Kafka, such as `kafka.security.protocol`

Method. One task reads one range of offsets, of a data directory through a RocksDB secondary of its own (see
`secondary`), so the log may be in use. Where the log ends is found once, when the frame is made, and all that is made
of it sees the same events. A topic in Kafka is folded once at that moment (see `kafka_scan`), which tells each task
with which record its range begins. Its rows are those of all partitions; offsets count within one of them.

A damaged log does not pass: every event in the range is decoded, whichever columns or shards are asked for, and the
first that is missing or is no event of this release fails the job with its offset.

What it does not do: write.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from events.codec import EventDecodeError, decode_event
from events.names import CLUSTER_SHARD, shard_key
from projections.replay.column_batches import Columns
from projections.replay.columns import arrow_schema, column_names, ddl
from projections.replay.errors import ReplayError
from projections.replay.kafka_ref import KafkaTopic, Properties, checked_properties
from projections.replay.log_ref import (
    End,
    Ends,
    KafkaRef,
    LogRef,
    Ref,
    Span,
    end_of,
    ends_of,
    in_partitions,
    looked_at,
    parse_ref,
    scanned,
)
from projections.replay.ranges import Range, kafka_ranges, planned, planned_text, ranges, stored_events

FORMAT = "topicwright"
RANGE_EVENTS = 50_000
_BATCH_ROWS = 10_000
_BATCH_BYTES = 4 << 20
_CLUSTER = "-"
_PROPERTY = "kafka."
_BOTH = "options at and endoffset both say where to end: give one of them"


class TopicwrightSource(DataSource):
    """The data source `topicwright`; register it once a session (`projections.replay.session` does)."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._asked = {name.lower(): text for name, text in options.items()}
        self._names = _columns(self._asked.get("columns"))
        self._plan: list[Range] | None = None

    def schema(self) -> str:
        self._planned()  # Spark asks for the schema once a frame, and keeps this object for all that is made of it
        return ddl(arrow_schema(self._names))

    def reader(self, schema: StructType) -> DataSourceReader:
        return EventReader(asked_log(self._asked), self._planned(), self._names, self._asked)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - the name is Spark's
        from projections.replay.streaming import stream_reader

        return stream_reader(asked_log(self._asked), self._names, self._asked)

    def _planned(self) -> list[Range]:
        if self._plan is None:
            self._plan = _plan(self._asked)
        return self._plan


class EventReader(DataSourceReader):
    """Reads ranges of a log."""

    def __init__(
        self, log: LogRef | KafkaTopic, plan: Sequence[Range], names: Sequence[str], asked: Mapping[str, str]
    ) -> None:
        self._log = log
        self._plan = plan
        self._names = names
        self._shards = wanted_shards(asked.get("shards"))

    def partitions(self) -> Sequence[InputPartition]:
        return self._plan

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range), "Spark hands back the partitions that it was given"
        return read_range(self._log, partition, self._names, self._shards)


def events_frame(
    spark: SparkSession,
    ref: Ref,
    at: str | None = None,
    columns: Sequence[str] | None = None,
    *,
    start: int = 0,
    end: End | None = None,
    shards: Sequence[str] | None = None,
    range_events: int = RANGE_EVENTS,
) -> DataFrame:
    """The events of a log up to a moment, or from offset `start` up to but not including `end`.

    Where the log ends is found here and now, or, of a log in Kafka, when it was scanned. Raises ReplayError for a
    moment or an offset that the log does not have.
    """
    if at is not None and end is not None:
        raise ReplayError(_BOTH)
    reader = spark.read.format(FORMAT).option("rangeevents", range_events)
    if isinstance(ref, KafkaRef):
        ends = ends_of(ref, at) if end is None else in_partitions(ref, end)
        reader = reader.options(**kafka_options(ref)).option(
            "plan", planned_text(kafka_ranges(ref.scan, start, ends, range_events))
        )
    else:
        stop = None if end is None else in_partitions(ref, end)[ref.partition]
        span = _span(ref, {"startoffset": str(start), **_end_options(at, stop)})
        reader = reader.option("startoffset", span.start).option("endoffset", span.end)
        reader = reader.option("logpartition", ref.partition)
    if columns is not None:
        reader = reader.option("columns", ",".join(columns))
    if shards is not None:
        reader = reader.option("shards", ",".join(one or _CLUSTER for one in shards))
    return reader.load(ref.location)


def kafka_options(ref: KafkaRef) -> dict[str, str]:
    """The options with which the source reaches a log in Kafka."""
    return {f"{_PROPERTY}{key}": value for key, value in ref.topic.properties}


def asked_log(asked: Mapping[str, str]) -> LogRef | KafkaTopic:
    """The log that options name. Raises ReplayError."""
    return parse_ref(asked.get("path", ""), number_option(asked, "logpartition", 0), _properties(asked))


def _properties(asked: Mapping[str, str]) -> Properties:
    """librdkafka's properties among options, whose names Spark hands over in lower case."""
    given = ((key.removeprefix(_PROPERTY), value) for key, value in asked.items() if key.startswith(_PROPERTY))
    return checked_properties(tuple(given))


def _plan(asked: Mapping[str, str]) -> list[Range]:
    """What tasks read. Raises ReplayError."""
    if "plan" in asked:
        return planned(asked["plan"])
    range_events = positive(asked, "rangeevents", RANGE_EVENTS)
    log = asked_log(asked)
    if isinstance(log, LogRef):
        span = _span(log, asked)
        return ranges(span.start, span.end, range_events, log.partition)
    only = number_option(asked, "logpartition", 0) if "logpartition" in asked else None
    ref = scanned(log, only, range_events)
    start, ends = _kafka_span(ref, asked)
    return kafka_ranges(ref.scan, start, ends, range_events)


def _kafka_span(ref: KafkaRef, asked: Mapping[str, str]) -> tuple[int, Ends]:
    """Where to begin and to stop in the partitions of a topic. Raises ReplayError."""
    if "at" in asked and "endoffset" in asked:
        raise ReplayError(_BOTH)
    ends = ends_of(ref, asked.get("at"))
    reached = max(ends.values(), default=0)
    start, end = number_option(asked, "startoffset", 0), number_option(asked, "endoffset", reached)
    if end > reached or start > end:
        raise _past(asked, start, end, ref.text, reached)
    return start, {partition: min(one, end) for partition, one in ends.items()}


def _end_options(at: str | None, end: int | None) -> dict[str, str]:
    return ({} if at is None else {"at": at}) | ({} if end is None else {"endoffset": str(end)})


def _past(asked: Mapping[str, str], start: int, end: int, text: str, reached: int) -> ReplayError:
    name = "startoffset" if start > end else "endoffset"
    what = f"what is to be read of {text} ends at offset {reached}"
    return ReplayError(f"{name}={asked.get(name)} is past the end: {what}")


def read_range(
    log: LogRef | KafkaTopic, wanted: Range, names: Sequence[str], shards: frozenset[str] | None
) -> Iterator[pa.RecordBatch]:
    """The events of a range in batches. Raises LogError, EventDecodeError; LogCorrupted where one is missing."""
    gc.disable()  # decoded events hold no cycles, and looking for some takes half of the time
    columns, room = Columns(names, wanted.partition), _BATCH_BYTES
    for offset, value in stored_events(log, wanted):
        try:
            recorded = decode_event(offset, value)
        except EventDecodeError as error:
            if isinstance(log, LogRef):
                raise
            raise ReplayError(f"{log.text}: partition {wanted.partition}, {error}") from None
        if shards is not None and _shard_of(recorded.event) not in shards:
            continue
        columns.add(recorded, value)
        room -= len(value)
        if room <= 0 or len(columns) >= _BATCH_ROWS:
            yield columns.batch()
            room = _BATCH_BYTES
    if len(columns):
        yield columns.batch()


def positive(asked: Mapping[str, str], name: str, otherwise: int) -> int:
    """An option that is a whole number above 0. Raises ReplayError."""
    number = number_option(asked, name, otherwise)
    if number == 0:
        raise ReplayError(f"option {name} must be above 0")
    return number


def _span(ref: LogRef, asked: Mapping[str, str]) -> Span:
    """The offsets to read. Raises ReplayError."""
    if "at" in asked and "endoffset" in asked:
        raise ReplayError(_BOTH)
    with looked_at(ref) as log:
        reached = end_of(log, asked.get("at"))
        start, end = number_option(asked, "startoffset", 0), number_option(asked, "endoffset", reached)
        if end > log.next_offset or start > end:
            raise _past(asked, start, end, ref.text, reached)
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
