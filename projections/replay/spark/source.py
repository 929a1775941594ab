"""The data source: `spark.read.format("topicwright").load(LOG)`, one row an event.

What it is for: everything that Spark asks of a log. The columns are described in `columns`.

Options
    startoffset   the first offset to read; 0
    endoffset     the offset to stop before; where the log ends
    at            instead of endoffset: a moment (see `projections.text.moments`), its last event included
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
first that is missing or is not an event of this release fails the job with its offset.

What it does not do: write.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from projections.replay.errors import ReplayError
from projections.replay.log import log_ref
from projections.replay.log.kafka_ref import KafkaTopic, Properties, checked_properties
from projections.replay.log.ranges import Range, kafka_ranges, ranges, ranges_of
from projections.replay.spark.columns import arrow_schema, column_names, ddl
from projections.replay.spark.mapping import map_numbers
from projections.replay.spark.options import CLUSTER, RANGE_EVENTS, number_option, positive, read_range, wanted_shards

FORMAT = "topicwright"
FOLLOWED = "followed"
"""The option, for this project's own use, that says that a stream is made: it looks for the end of the log itself."""
_PROPERTY = "kafka."
_BOTH = "options at and endoffset both say where to end: give one of them"


class TopicwrightSource(DataSource):
    """The data source `topicwright`, to be registered once a session."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._options = {name.lower(): text for name, text in options.items()}
        self._names = _columns(self._options.get("columns"))
        self._plan: list[Range] | None = None

    def schema(self) -> str:
        if FOLLOWED not in self._options:
            self._planned()  # Spark asks for the schema once a frame, and keeps this object for all that is made of it
        return ddl(arrow_schema(self._names))

    def reader(self, schema: StructType) -> DataSourceReader:
        return EventReader(log_of_options(self._options), self._planned(), self._names, self._options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - the name is Spark's
        from projections.replay.spark.streaming import stream_reader

        return stream_reader(log_of_options(self._options), self._names, self._options)

    def _planned(self) -> list[Range]:
        if self._plan is None:
            self._plan = _plan(self._options)
        return self._plan


class EventReader(DataSourceReader):
    """Reads ranges of a log."""

    def __init__(
        self, log: log_ref.LogRef | KafkaTopic, plan: Sequence[Range], names: Sequence[str], options: Mapping[str, str]
    ) -> None:
        self._log = log
        self._plan = plan
        self._names = names
        self._shards = wanted_shards(options.get("shards"))

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(wanted) for wanted in self._plan]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._log, partition.value, self._names, self._shards)


def events_frame(
    spark: SparkSession,
    ref: log_ref.Ref,
    at: str | None = None,
    columns: Sequence[str] | None = None,
    *,
    start: int = 0,
    end: log_ref.End | None = None,
    shards: Sequence[str] | None = None,
    range_events: int = RANGE_EVENTS,
) -> DataFrame:
    """The events of a log up to a moment, or from offset `start` up to but not including `end`.

    Where the log ends is found here and now, or, of a log in Kafka, when it was scanned. Raises ReplayError for a
    moment or an offset that the log does not have.
    """
    if at is not None and end is not None:
        raise ReplayError(_BOTH)
    names = _columns(None if columns is None else ",".join(columns))
    wanted = wanted_shards(None if shards is None else ",".join(one or CLUSTER for one in shards))
    if isinstance(ref, log_ref.LogRef):
        stop = None if end is None else log_ref.in_partitions(ref, end)[ref.partition]
        end = _span(ref, {"startoffset": str(start), **_end_options(at, stop)}).end
    elif end is None:
        end = log_ref.ends_of(ref, at)
    log, plan = log_ref.log_of(ref), ranges_of(ref, start, end, range_events)

    def read(number: int) -> Iterator[pa.RecordBatch]:
        return read_range(log, plan[number], names, wanted)

    return map_numbers(spark, len(plan), read, arrow_schema(names))


def kafka_options(ref: log_ref.KafkaRef) -> dict[str, str]:
    """The options with which the source reaches a log in Kafka."""
    return {f"{_PROPERTY}{key}": value for key, value in ref.topic.properties}


def log_of_options(options: Mapping[str, str]) -> log_ref.LogRef | KafkaTopic:
    """The log that options name. Raises ReplayError."""
    return log_ref.parse_ref(options.get("path", ""), number_option(options, "logpartition", 0), _properties(options))


def _properties(options: Mapping[str, str]) -> Properties:
    """librdkafka's properties among options, whose names Spark hands over in lower case."""
    given = ((key.removeprefix(_PROPERTY), value) for key, value in options.items() if key.startswith(_PROPERTY))
    return checked_properties(tuple(given))


def _plan(options: Mapping[str, str]) -> list[Range]:
    """What tasks read. Raises ReplayError."""
    range_events = positive(options, "rangeevents", RANGE_EVENTS)
    log = log_of_options(options)
    if isinstance(log, log_ref.LogRef):
        span = _span(log, options)
        return ranges(span.start, span.end, range_events, log.partition)
    only = number_option(options, "logpartition", 0) if "logpartition" in options else None
    ref = log_ref.scanned(log, only, range_events)
    start, ends = _kafka_span(ref, options)
    return kafka_ranges(ref.scan, start, ends, range_events)


def _kafka_span(ref: log_ref.KafkaRef, options: Mapping[str, str]) -> tuple[int, log_ref.Ends]:
    """Where to begin and to stop in the partitions of a topic. Raises ReplayError."""
    if "at" in options and "endoffset" in options:
        raise ReplayError(_BOTH)
    ends = log_ref.ends_of(ref, options.get("at"))
    reached = max(ends.values(), default=0)
    start, end = number_option(options, "startoffset", 0), number_option(options, "endoffset", reached)
    if end > reached or start > end:
        raise _past(options, start, end, ref.text, reached)
    return start, {partition: min(one, end) for partition, one in ends.items()}


def _end_options(at: str | None, end: int | None) -> dict[str, str]:
    return ({} if at is None else {"at": at}) | ({} if end is None else {"endoffset": str(end)})


def _past(options: Mapping[str, str], start: int, end: int, text: str, reached: int) -> ReplayError:
    name = "startoffset" if start > end else "endoffset"
    what = f"what is to be read of {text} ends at offset {reached}"
    return ReplayError(f"{name}={options.get(name)} is past the end: {what}")


def _span(ref: log_ref.LogRef, options: Mapping[str, str]) -> log_ref.Span:
    """The offsets to read. Raises ReplayError."""
    if "at" in options and "endoffset" in options:
        raise ReplayError(_BOTH)
    with log_ref.looked_at(ref) as log:
        reached = log_ref.end_of(log, options.get("at"))
        start, end = number_option(options, "startoffset", 0), number_option(options, "endoffset", reached)
        if end > log.next_offset or start > end:
            raise _past(options, start, end, ref.text, reached)
        return log_ref.Span(start, end)


def _columns(text: str | None) -> tuple[str, ...]:
    try:
        return column_names(text)
    except ValueError as error:
        raise ReplayError(str(error)) from None
