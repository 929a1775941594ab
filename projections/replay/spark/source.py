"""Spark's data source for logs: `spark.read.format("topicwright").load(LOG)` returns one row for each event.

Spark reads a log only through it. `projections.replay.log.columns` describes the columns.

Options
    startoffset   the first offset to read (default 0)
    endoffset     the offset to stop before (default: the end of the log)
    at            instead of endoffset: a point in time (`projections.text.points_in_time`); events up to it are read
    shards        the shard keys to read, separated by commas (default all); `-`: the events that concern every topic
    columns       the columns to return, separated by commas (default all). Name them where speed matters: Spark does
                  not pass the columns of a query to Python sources
    rangeevents   the maximum number of events that one task reads (default 50,000)
    logpartition  for data directories: the value of the column `log_partition`, in jobs that read several of them
                  (default 0). For a log in Kafka: the only partition to read (default all)
    kafka.KEY     librdkafka's properties for a log in Kafka, such as `kafka.security.protocol`

Method. One task reads one range of offsets, of a data directory through a RocksDB secondary of its own (see
`secondary`), so the log may be in use. The end of the log is found once, when the data frame is created, and everything
derived from the frame sees the same events. A topic in Kafka is scanned then (see `kafka_scan`), so that each task
knows with which record its range begins. The rows are those of all partitions; each partition has its own offsets.

A damaged log fails the job: every event in the range is decoded, also if its columns or shard are not requested. The
error has the offset of the first event that is missing or is not an event of this release.

Non-goal: writing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from events.names import shard_key
from projections.replay.log.columns import arrow_schema, column_names
from projections.replay.log.kafka_ref import KafkaTopic
from projections.replay.log.kafka_scan import Range, scan
from projections.replay.log.log_ref import RANGE_EVENTS, LogRef, Ref, ends_of, parse_ref, ranges_of, read_range
from projections.replay.outcome import ReplayError

FORMAT = "topicwright"
_PROPERTY = "kafka."
_CLUSTER = "-"
"""How option `shards` names the shard of events that concern every topic."""


class TopicwrightSource(DataSource):
    """The data source `topicwright`; register it once in each session."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._options = {name.lower(): text for name, text in options.items()}
        self._names = column_names(self._options.get("columns"))
        self._plan: list[Range] | None = None

    def schema(self) -> StructType:
        self._planned()  # Spark requests the schema once a frame, and uses this object for all that is made of it
        return from_arrow_schema(arrow_schema(self._names))

    def reader(self, schema: StructType) -> DataSourceReader:
        log, shards = log_of_options(self._options), _shards(self._options.get("shards"))
        return EventReader(self._planned(), partial(read_range, log, names=self._names, shards=shards))

    def _planned(self) -> list[Range]:
        if self._plan is None:
            self._plan = _plan(self._options)
        return self._plan


class EventReader(DataSourceReader):
    """Reads ranges of a log."""

    def __init__(self, plan: Sequence[Range], read: Callable[[Range], Iterator[pa.RecordBatch]]) -> None:
        self._plan = plan
        self._read = read

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(wanted) for wanted in self._plan]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._read(partition.value)


def log_of_options(options: Mapping[str, str]) -> LogRef | KafkaTopic:
    """The log that options name; Spark hands over the names of librdkafka's properties in lower case. Raises
    ReplayError."""
    given = ((key.removeprefix(_PROPERTY), value) for key, value in options.items() if key.startswith(_PROPERTY))
    return parse_ref(options.get("path", ""), _number(options, "logpartition", 0), tuple(given))


def _plan(options: Mapping[str, str]) -> list[Range]:
    """The ranges that tasks read. Raises ReplayError."""
    if "at" in options and "endoffset" in options:
        raise ReplayError("options at and endoffset both say where to end: give one of them")
    range_events = _number(options, "rangeevents", RANGE_EVENTS)
    if range_events == 0:
        raise ReplayError("option rangeevents must be above 0")
    log = log_of_options(options)
    only = _number(options, "logpartition", 0) if "logpartition" in options else None
    ref: Ref = log if isinstance(log, LogRef) else scan(log, only, range_events)
    ends = ends_of(ref, options.get("at"))
    reached = max(ends.values(), default=0)
    start, end = _number(options, "startoffset", 0), _number(options, "endoffset", reached)
    if end > reached or start > end:
        name = "startoffset" if start > end else "endoffset"
        reads = f"what is to be read of {ref.text} ends at offset {reached}"
        raise ReplayError(f"{name}={options.get(name)} is past the end: {reads}")
    return ranges_of(ref, start, {partition: min(one, end) for partition, one in ends.items()}, range_events)


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    """An option that is an integer, 0 or more. Raises ReplayError."""
    text = options.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()):
        raise ReplayError(f"option {name}={text!r} is not a whole number, 0 or more")
    return int(text)


def _shards(text: str | None) -> frozenset[str] | None:
    """The shard keys that option `shards` names; None for all."""
    if text is None:
        return None
    return frozenset("" if one == _CLUSTER else shard_key(one) for one in map(str.strip, text.split(",")) if one)
