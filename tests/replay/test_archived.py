"""A replay of a mostly archived log has the same result as one of the complete local log."""

import re
import shutil
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from controller.cli.main import main
from controller.serving import archiving
from events.logs.archive.manifest import segments_of
from events.logs.archive.segment import SegmentFile
from projections.replay.log.columns import COLUMNS, arrow_schema
from projections.replay.log.kafka_scan import Range
from projections.replay.log.log_ref import LogRef, read_range
from tests.replay.history import open_log
from tests.store.archive.archives import archive_all, forget_all, take_snapshot, write_a_day

EVENTS = 400


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archived") / "log"
    write_a_day(folder, EVENTS)
    return folder


@pytest.fixture(scope="module")
def cut(day: Path) -> Path:
    """The same log, whose events are only in the archive, except the last ones."""
    folder = Path(shutil.copytree(day, day.parent / "cut"))
    with closing(open_log(folder)) as log:
        manifests = archive_all(log, day.parent / "archive")
        take_snapshot(log, manifests[-1].end)
        assert archiving.drop(log, manifests, 10**15, 0, -1)
        forget_all(log)
    return folder


def rows(folder: Path, start: int, end: int, names: tuple[str, ...], shards: frozenset[str] | None = None) -> pa.Table:
    """Reads a range of a log as a replay's task does, as log partition 3."""
    wanted = Range(start, end, 3)
    batches = list(read_range(LogRef(str(folder), folder, 3), wanted, names, shards))
    return pa.Table.from_batches(batches, arrow_schema(names)).combine_chunks()


@pytest.mark.parametrize("names", [tuple(COLUMNS), ("offset", "topic"), ("log_partition", "value", "type")])
@pytest.mark.parametrize(("start", "end"), [(0, EVENTS), (100, 300), (130, 140), (0, 128), (EVENTS - 5, EVENTS)])
def test_archived_columns_equal_those_of_the_log(
    day: Path, cut: Path, start: int, end: int, names: tuple[str, ...]
) -> None:
    assert rows(cut, start, end, names).equals(rows(day, start, end, names))


def test_archive_reads_filter_by_shard(day: Path, cut: Path) -> None:
    for shards in (frozenset({""}), frozenset({"late_one", "more_200"}), frozenset({"nobody"})):
        found = rows(cut, 0, EVENTS, ("offset", "topic"), shards)
        assert found.equals(rows(day, 0, EVENTS, ("offset", "topic"), shards)), shards


def test_a_column_missing_in_an_older_segment_is_null(cut: Path, day: Path) -> None:
    with closing(open_log(cut)) as log:
        segment = next(segments_of(log))
        content = log.archive.content(segment)
    older = pq.read_table(pa.BufferReader(content)).drop_columns(["host"])
    sink = pa.BufferOutputStream()
    pq.write_table(older, sink)
    (batch,) = SegmentFile(segment, sink.getvalue().to_pybytes()).batches(0, 5, arrow_schema(("offset", "host")))
    assert batch.to_pydict() == {"offset": [0, 1, 2, 3, 4], "host": [None] * 5}


@pytest.mark.parametrize(
    "words",
    ["replay invariants {} --local", "replay compare {} --local", "replay rebuild {} --local --at 200", "verify {}"],
)
def test_archived_log_replays_the_same(words: str, day: Path, cut: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for folder in (day, cut):
        assert main(words.format(folder).split()) == 0, capsys.readouterr()
        out, err = capsys.readouterr()
        said.append(out.replace(str(folder), "LOG").splitlines())
    assert "replay" not in words or re.search(r"^events below \d+ are read from .*/archive$", err, re.MULTILINE), err
    assert [line for line in said[1] if "snapshot" not in line] == [line for line in said[0] if "snapshot" not in line]


def test_spark_reads_the_archive(spark: SparkSession, day: Path, cut: Path) -> None:
    names = ("offset", "topic", "type", "partitions", "value")
    found = [
        spark.read.format("topicwright")
        .options(columns=",".join(names), rangeevents="100")
        .load(str(folder))
        .orderBy("offset")
        .collect()
        for folder in (day, cut)
    ]
    assert found[1] == found[0]
    assert len(found[1]) >= EVENTS
