"""Following a log: `spark.readStream.format("topicwright").load(LOG)`.

A stream's progress is an offset of the log; of a log in Kafka it is the place in the fold of each partition. Where the
log ends is looked up at each trigger. Of a data directory only events that the service has synced count, of a topic
only what all in-sync replicas have: a stream's checkpoint must not run ahead of what a power cut leaves.

Options beside those of the source: `maxeventspertrigger`, which bounds one micro-batch (of a log in Kafka to so many
for each partition, and the rest of a record).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from events.logs.events_topic import START, PartitionReader, Position
from projections.replay.errors import ReplayError
from projections.replay.log.kafka_ref import KafkaTopic, Reading, reading
from projections.replay.log.kafka_scan import check_begins, folded
from projections.replay.log.log_ref import LogRef, looked_at
from projections.replay.log.ranges import Range, ranges
from projections.replay.log.reading import RANGE_EVENTS, read_range
from projections.replay.spark.options import number_option, positive, wanted_shards

_NOT_HERE = ("at", "endoffset")


def stream_reader(
    log: LogRef | KafkaTopic, names: Sequence[str], options: Mapping[str, str]
) -> FolderStreamReader | KafkaStreamReader:
    """What follows a log. Raises ReplayError."""
    for name in _NOT_HERE:
        if name in options:
            raise ReplayError(f"option {name} is for reading a log once: a stream goes on")
    if isinstance(log, LogRef):
        return FolderStreamReader(log, names, options)
    return KafkaStreamReader(log, names, options)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What following has in common; the names are Spark's."""

    def __init__(self, log: LogRef | KafkaTopic, names: Sequence[str], options: Mapping[str, str]) -> None:
        self._log = log
        self._names = names
        self._start = number_option(options, "startoffset", 0)
        self._range_events = positive(options, "rangeevents", RANGE_EVENTS)
        self._events_max = positive(options, "maxeventspertrigger", 0) if "maxeventspertrigger" in options else None
        self._shards = wanted_shards(options.get("shards"))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """How much a micro-batch may hold."""
        return ReadAllAvailable() if self._events_max is None else ReadMaxRows(self._events_max)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of one range."""
        return read_range(self._log, partition.value, self._names, self._shards)

    @abstractmethod
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The ranges of one micro-batch."""


class FolderStreamReader(_StreamReader):
    """Reads a data directory as it grows."""

    def __init__(self, ref: LogRef, names: Sequence[str], options: Mapping[str, str]) -> None:
        super().__init__(ref, names, options)
        self._ref = ref
        self._stop_at: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Where the stream begins."""
        return {"offset": self._start}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Where the next micro-batch ends."""
        end = self._end() if self._stop_at is None else self._stop_at
        if isinstance(limit, ReadMaxRows):
            end = min(end, start["offset"] + limit.max_rows)
        if end < start["offset"]:
            raise ReplayError(
                f"{self._ref.text} ends at offset {end}, but the stream has read up to {start['offset']}: it is "
                "another log now; begin with a new checkpoint"
            )
        return {"offset": end}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on the log ends where it ends now."""
        self._stop_at = self._end()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """The ranges of one micro-batch."""
        wanted = ranges(start["offset"], end["offset"], self._range_events, self._ref.partition)
        return [InputPartition(one) for one in wanted]

    def _end(self) -> int:
        with looked_at(self._ref) as log:
            return log.durable_offset


class KafkaStreamReader(_StreamReader):
    """Reads the partitions of a topic as they grow."""

    def __init__(self, topic: KafkaTopic, names: Sequence[str], options: Mapping[str, str]) -> None:
        super().__init__(topic, names, options)
        self._topic = topic
        self._stop_at: dict[int, int] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where the stream begins: what counts is settled from the beginning on, whatever is read of it."""
        with reading(self._topic) as kafka:
            return {str(partition): _plain(START) for partition in kafka.now().ranges}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next micro-batch ends."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        with reading(self._topic) as kafka:
            now = kafka.now().ranges
            if now.keys() != {int(name) for name in start}:
                raise self._other(f"it has {len(now)} partitions")
            return {name: _plain(self._folded(kafka, int(name), now, place, most)) for name, place in start.items()}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on the topic ends where it ends now."""
        with reading(self._topic) as kafka:
            self._stop_at = {partition: end for partition, (_, end) in kafka.now().ranges.items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One range for each partition that has grown."""
        made = []
        for name, place in end.items():
            before, after = _position(start[name]), _position(place)
            first = max(before.next_event, self._start)
            if first < after.next_event:
                wanted = Range(first, after.next_event, int(name), before, after.kafka_offset)
                made.append(InputPartition(wanted))
        return made or [InputPartition(Range(0, 0))]

    def _folded(
        self, kafka: Reading, partition: int, now: Mapping[int, tuple[int, int]], place: Any, most: int | None
    ) -> Position:
        position = _position(place)
        first, end = now[partition]
        end = end if self._stop_at is None else self._stop_at[partition]
        if end < position.kafka_offset:
            raise self._other(f"partition {partition} ends at record {end}")
        if position.kafka_offset == 0:
            check_begins(self._topic, partition, first)
        fold = PartitionReader(partition, position)
        for _ in folded(self._topic, fold, kafka.records(partition, position.kafka_offset, end)):
            if most is not None and fold.next_event - position.next_event >= most:
                break
        return fold.position

    def _other(self, why: str) -> ReplayError:
        return ReplayError(
            f"{self._topic.text} is not the topic any more that the stream has read: {why}; begin with a new checkpoint"
        )


def _plain(position: Position) -> dict[str, Any]:
    return {name: getattr(position, name) for name in position.__struct_fields__}


def _position(place: Mapping[str, Any]) -> Position:
    return Position(**place)
