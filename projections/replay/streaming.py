"""Following a log: `spark.readStream.format("topicwright").load(LOG)`.

A stream's progress is an offset of the log. Where the log ends is looked up at each trigger, and only events that the
service has synced count: a stream's checkpoint must not run ahead of what a power cut leaves.

Options beside those of the source: `maxeventspertrigger`, which bounds one micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from projections.replay.errors import ReplayError
from projections.replay.log_ref import LogRef, looked_at
from projections.replay.source import RANGE_EVENTS, Range, number_option, positive, ranges, read_range, wanted_shards

_NOT_HERE = ("at", "endoffset")


class EventStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a log as it grows."""

    def __init__(self, ref: LogRef, names: Sequence[str], asked: Mapping[str, str]) -> None:
        for name in _NOT_HERE:
            if name in asked:
                raise ReplayError(f"option {name} is for reading a log once: a stream goes on")
        self._ref = ref
        self._names = names
        self._start = number_option(asked, "startoffset", 0)
        self._range_events = positive(asked, "rangeevents", RANGE_EVENTS)
        self._events_max = positive(asked, "maxeventspertrigger", 0) if "maxeventspertrigger" in asked else None
        self._shards = wanted_shards(asked.get("shards"))
        self._stop_at: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - the names are Spark's
        """Where the stream begins."""
        return {"offset": self._start}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """How much a micro-batch may hold."""
        return ReadAllAvailable() if self._events_max is None else ReadMaxRows(self._events_max)

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
        return ranges(start["offset"], end["offset"], self._range_events)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of one range."""
        assert isinstance(partition, Range), "Spark hands back the partitions that it was given"
        return read_range(self._ref, partition, self._names, self._shards)

    def _end(self) -> int:
        with looked_at(self._ref) as log:
            return log.durable_offset
