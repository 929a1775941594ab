"""Several logs in one job, each with offsets of its own: what is in different log partitions is kept apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession

from events.catalog import Recorded, TopicCreated
from events.names import shard_key
from projections.replay.checks.on_spark import check_frame
from projections.replay.log.log_ref import LogRef
from projections.replay.rebuild.rebuild import rebuilt_topics, topics_in
from projections.replay.redecide.redecide import decided_again_in
from projections.replay.spark.folding import cluster_events, shards_frame
from projections.replay.spark.packed import packs_frame
from projections.replay.spark.source import events_frame
from tests.projections.logs import story
from tests.replay.written import records_of, written

RELEASE = "1.0"
STORIES = (
    "1@x 2@y 3@z count=2\ncreate a 2x3\nconfirm 1 2 3\ncreate b 1x1\ndelete a",
    "1@x 2@y count=4\ncreate c 1x1\ncreate a -1x2\nconfirm 1 2\nfence 2\nreconcile a c",
)
"""Both have a topic `a`, of other brokers and other settings."""


@pytest.fixture
def logs(tmp_path: Path) -> list[LogRef]:
    """Two data directories, numbered as the partitions of one log."""
    return [
        replace(written(tmp_path / f"log-{number}", story(text).log), partition=number)
        for number, text in enumerate(STORIES)
    ]


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """The rows of all frames."""
    first, second = frames
    return first.unionByName(second)


def ends(logs: Sequence[LogRef]) -> list[int]:
    """Where each log ends."""
    return [len(records_of(ref)) for ref in logs]


def test_events_name_their_log(spark: SparkSession, logs: list[LogRef]) -> None:
    events = union([events_frame(spark, ref, columns=["log_partition", "offset"]) for ref in logs])
    counts = {row.log_partition: row["count"] for row in events.groupBy("log_partition").count().collect()}
    assert counts == dict(enumerate(ends(logs)))


def test_topics_of_one_name_are_rebuilt_apart(spark: SparkSession, logs: list[LogRef]) -> None:
    packs = union([packs_frame(spark, ref, end, 3) for ref, end in zip(logs, ends(logs), strict=True)])
    together = {(row.log_partition, row.shard): row.state_hash for row in topics_in(packs, 3).collect()}
    alone = {
        (ref.partition, row.shard): row.state_hash
        for ref, end in zip(logs, ends(logs), strict=True)
        for row in rebuilt_topics(spark, ref, end).collect()
    }
    assert together == alone
    assert set(together) == {(0, "b"), (1, "a"), (1, "c")}


def test_each_log_is_checked_by_itself(spark: SparkSession, logs: list[LogRef]) -> None:
    events = union([events_frame(spark, ref) for ref in logs]).persist()
    try:
        assert check_frame(events).found == []
        planted = events.where("not (log_partition = 1 and offset = 5)")
        found = check_frame(planted).found
    finally:
        events.unpersist()
    assert "offsets-contiguous" in {one.check for one in found}
    assert {row["log_partition"] for one in found for row in one.violations} == {1}


def _deadline_moved(record: Recorded) -> Recorded:
    if not isinstance(record.event, TopicCreated) or shard_key(record.event.topic) != "a":
        return record
    return replace(record, event=replace(record.event, deadline_ms=record.event.deadline_ms + 1))


def test_each_log_is_decided_again_with_its_own_brokers_and_settings(
    spark: SparkSession, logs: list[LogRef], tmp_path: Path
) -> None:
    other = written(tmp_path / "other", map(_deadline_moved, story(STORIES[1]).log))
    for second, found in ((logs[1], []), (replace(other, partition=1), [(1, "a")])):
        both = [logs[0], second]
        events = union([shards_frame(spark, ref, end) for ref, end in zip(both, ends(both), strict=True)])
        clusters = {
            ref.partition: cluster_events(ref, end)[ref.partition] for ref, end in zip(both, ends(both), strict=True)
        }
        again = decided_again_in(events, clusters, RELEASE)
        assert again.requests == 5
        assert [(one.log_partition, one.shard) for one in again.first] == found
