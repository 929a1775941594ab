"""Following a log with Spark: every event once, as it comes, through restarts of the stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from projections.replay.errors import ReplayError, message_of
from projections.replay.log.log_ref import LogRef, looked_at
from projections.replay.spark.streaming import FolderStreamReader, stream_reader
from tests.replay.export.test_export import grow
from tests.replay.history import open_log


class ExternalDecision:
    """A stream over a log that keeps the offsets of each micro-batch."""

    def __init__(self, spark: SparkSession, ref: LogRef, checkpoint: Path, **options: str) -> None:
        self.batches: list[list[int]] = []
        reader = spark.readStream.format("topicwright").options(columns="offset", **options)
        writer = reader.load(str(ref.path)).writeStream.foreachBatch(self._keep)
        self._writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)

    def _keep(self, frame: DataFrame, _: int) -> None:
        self.batches.append(sorted(row.offset for row in frame.collect()))

    def run(self) -> list[list[int]]:
        """Read all that is there now."""
        query = self._writer.start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return self.batches


@pytest.fixture
def end(own_history: LogRef) -> int:
    """How many events there are."""
    with looked_at(own_history) as log:
        return log.next_offset


def test_a_stream_goes_on_where_it_was(spark: SparkSession, own_history: LogRef, end: int, tmp_path: Path) -> None:
    first = ExternalDecision(spark, own_history, tmp_path / "checkpoint").run()
    assert first == [list(range(end))]
    grow(own_history.path, 4)
    assert ExternalDecision(spark, own_history, tmp_path / "checkpoint").run() == [list(range(end, end + 4))]
    assert ExternalDecision(spark, own_history, tmp_path / "checkpoint").run() == []


def test_micro_batches_are_bounded(spark: SparkSession, own_history: LogRef, end: int, tmp_path: Path) -> None:
    batches = ExternalDecision(
        spark, own_history, tmp_path / "checkpoint", maxeventspertrigger="40", startoffset="5", rangeevents="7"
    ).run()
    assert [offset for batch in batches for offset in batch] == list(range(5, end))
    assert all(0 < len(batch) <= 40 for batch in batches)


def test_events_that_are_not_synced_are_not_followed_yet(own_history: LogRef, end: int) -> None:
    reader = FolderStreamReader(own_history, ("offset",), {})
    start = reader.initialOffset()
    log = open_log(own_history.path)
    try:
        grow_unsynced(log)
        assert reader.latestOffset(start, reader.getDefaultReadLimit()) == {"offset": end}
        log.flush()
        assert reader.latestOffset(start, reader.getDefaultReadLimit()) == {"offset": end + 1}
    finally:
        log.close()


def grow_unsynced(log: Any) -> None:
    """One more event, in memory only."""
    from events.logs.log import Commit, Entry

    log.write(Commit((Entry(log.read_one(1)),)))


def test_what_is_available_now_is_what_was_at_the_start(own_history: LogRef, end: int) -> None:
    reader = FolderStreamReader(own_history, ("offset",), {})
    reader.prepareForTriggerAvailableNow()
    grow(own_history.path, 3)
    assert reader.latestOffset({"offset": 0}, reader.getDefaultReadLimit()) == {"offset": end}


def test_damage_ends_a_stream(spark: SparkSession, own_history: LogRef, tmp_path: Path) -> None:
    from tests.replay.damage import put_event

    put_event(own_history.path, 20, b"\xc1")
    with pytest.raises(StreamingQueryException) as raised:
        ExternalDecision(spark, own_history, tmp_path / "checkpoint").run()
    assert message_of(raised.value).startswith("event at offset 20: not an event")


def _refused() -> Iterator[tuple[dict[str, str], str]]:
    yield {"at": "3"}, "option at is for reading a log once"
    yield {"endoffset": "3"}, "option endoffset is for reading a log once"
    yield {"maxeventspertrigger": "0"}, "option maxeventspertrigger must be above 0"


@pytest.mark.parametrize(("options", "says"), list(_refused()), ids=str)
def test_options_that_make_no_stream(history: LogRef, options: dict[str, str], says: str) -> None:
    with pytest.raises(ReplayError, match=says):
        stream_reader(history, ("offset",), options)


def test_a_log_that_became_another_ends_a_stream(history: LogRef) -> None:
    reader = FolderStreamReader(history, ("offset",), {})
    with pytest.raises(ReplayError, match="but the stream has read up to 5000: it is another log now"):
        reader.latestOffset({"offset": 5000}, reader.getDefaultReadLimit())
