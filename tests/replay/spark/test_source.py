"""The data source: every event once, whatever columns are requested; errors for damaged logs; and concurrent writes."""

import asyncio
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from events.catalog import Recorded
from events.codec import EventDecodeError, decode_event, value_without_secrets
from events.errors import UserError
from events.logs.log import Commit, Entry, LogCorrupted, LogError, LogFromNewerVersion, read_one
from projections.replay.log.columns import COLUMNS
from projections.replay.log.log_ref import LogRef, ends_of, parse_ref, ranges
from projections.replay.log.secondary import FrozenLog, frozen_log
from projections.replay.outcome import Options, message_of
from projections.replay.rebuild.compare import run_compare
from projections.replay.runner import InProcess
from tests.events.logs.rocksdb_folders import cut, flip, largest
from tests.replay.damage import event_bytes, put_event, put_view
from tests.replay.history import BORN_MS, open_log
from tests.replay.written import read, records_of

END = 1 << 20
"""Past the end of every log in this module."""


def frame_of(spark: SparkSession, ref: LogRef, **options: str) -> DataFrame:
    """A log as a data frame."""
    return spark.read.format("topicwright").options(**options).load(str(ref.path))


@pytest.fixture
def empty_temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files, which must be empty at the end."""
    folder = tmp_path / "temp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == [], "temporary folders are removed"


# --- reading


def test_spark_source_returns_every_event_once(spark: SparkSession, history: LogRef) -> None:
    frame = frame_of(spark, history)
    assert frame.columns == list(COLUMNS)
    rows = frame.select("offset", "value", "type", "at_ms").orderBy("offset").collect()
    with frozen_log(history.path) as log:
        whole = [(offset, value_without_secrets(decode_event(offset, value), value)) for offset, value in log.read()]
    assert [(row.offset, bytes(row.value)) for row in rows] == whole
    assert [row.type for row in rows] == [type(one.event).__name__ for one in records_of(history)]


def test_spark_source_returns_the_same_events_with_small_ranges(spark: SparkSession, history: LogRef) -> None:
    reader = spark.read.format("topicwright").option("rangeevents", 7).option("columns", "offset")
    frame = reader.load(str(history.path))
    count = len(records_of(history))
    assert frame.rdd.getNumPartitions() == -(-count // 7)
    assert sorted(row.offset for row in frame.collect()) == list(range(count))


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        ({"startoffset": "80"}, range(80, END)),
        ({"endoffset": "3"}, range(3)),
        ({"startoffset": "5", "endoffset": "5"}, range(0)),
        ({"at": "8"}, range(9)),
        ({"at": f"{BORN_MS + 60}ms"}, None),
        ({"at": "2100-01-01", "startoffset": "9"}, range(9, END)),
    ],
    ids=str,
)
def test_spark_source_start_and_end_offset(history: LogRef, options: dict[str, str], offsets: range | None) -> None:
    known = records_of(history)
    early = [record.offset for record in known if record.at_ms <= BORN_MS + 60]
    expected = early if offsets is None else [one for one in offsets if one < len(known)]
    assert [row["offset"] for row in read(str(history.path), columns="offset", **options)] == expected


def test_spark_source_filters_by_shard(spark: SparkSession, history: LogRef) -> None:
    rows = frame_of(spark, history, columns="shard,type", shards="pay.orders,-").collect()
    shards = [row.shard for row in rows]
    assert set(shards) == {"pay_orders", ""}
    assert shards.count("") == sum(1 for one in records_of(history) if not hasattr(one.event, "topic"))


def test_spark_sql_queries_the_columns(spark: SparkSession, history: LogRef) -> None:
    frame_of(spark, history).createOrReplaceTempView("events")
    rows = spark.sql("select topic, size(partitions[0].replicas) as factor from events where type = 'TopicCreated'")
    expected = {one.event.topic: one.event.replication_factor for one in records_of(history) if _created(one)}  # type: ignore[union-attr]
    assert {row.topic: row.factor for row in rows.collect()} == expected


def _created(one: Recorded) -> bool:
    return type(one.event).__name__ == "TopicCreated"


def test_a_data_frame_excludes_events_written_after_its_creation(spark: SparkSession, own_history: LogRef) -> None:
    frame = spark.read.format("topicwright").option("columns", "offset").load(str(own_history.path))
    count = len(records_of(own_history))
    log = open_log(own_history.path)
    first = read_one(log, 0)
    log.write(Commit((Entry(first),)))
    log.flush()
    log.close()
    assert frame.count() == count, "the end is pinned"
    assert frame_of(spark, own_history, columns="offset").count() == count + 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startoffset": "1000"}, "startoffset=1000 is past the end"),
        ({"endoffset": "1000"}, "endoffset=1000 is past the end"),
        ({"endoffset": "-1"}, "option endoffset='-1' is not a whole number"),
        ({"at": "1000"}, "offset 1000 is not reached yet: the newest event is at offset "),
        ({"at": "2001-01-01"}, "2001-01-01 is before the log begins: its first event is of 2023-11-14T22:13:20.010Z"),
        ({"at": "soon"}, "'soon' is not a valid point in time"),
        ({"at": "1", "endoffset": "1"}, "options at and endoffset both say where to end"),
        ({"columns": "offset,colour"}, "unknown column colour"),
        ({"rangeevents": "0"}, "option rangeevents must be above 0"),
    ],
    ids=str,
)
def test_invalid_source_options_are_rejected(history: LogRef, options: dict[str, str], says: str) -> None:
    with pytest.raises(UserError) as raised:
        read(str(history.path), **options)
    assert str(raised.value).startswith(says)


def test_invalid_source_options_are_reported_through_spark(spark: SparkSession, history: LogRef) -> None:
    with pytest.raises(PySparkException) as raised:
        spark.read.format("topicwright").option("at", "soon").load(str(history.path))
    assert message_of(raised.value).startswith("'soon' is no")


def test_offset_ranges_cover_the_log_without_overlap() -> None:
    for start, end, most in ((0, 10, 3), (5, 6, 50), (0, 100_001, 50_000), (4, 4, 9)):
        cut = ranges(start, end, most)
        assert [cut[0].start, cut[-1].end] == [start, end]
        assert all(before.end == after.start for before, after in pairwise(cut))
        assert all(one.end - one.start <= most for one in cut)


# --- the location of the log


def test_a_relative_path_and_a_file_url_name_the_same_log(history: LogRef, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(history.path.parent)
    for text in ("data", f"file://{history.path}"):
        assert parse_ref(text) == LogRef(text, history.path)
    assert ends_of(history) == {0: len(records_of(history))}


# --- reading while a service writes


def test_unsynced_events_are_not_read(own_history: LogRef) -> None:
    log = open_log(own_history.path)
    synced = log.durable_offset
    try:
        log.write(Commit((Entry(read_one(log, 0)),)))
        with frozen_log(own_history.path) as seen:
            assert (seen.durable_offset, seen.next_offset) == (synced, synced + 1)
        assert ends_of(own_history) == {0: synced}
    finally:
        log.close()
    with frozen_log(own_history.path) as seen:
        assert seen.durable_offset == seen.next_offset == synced + 1


def test_a_frozen_log_is_consistent_during_concurrent_writes(tmp_path: Path, empty_temp: Path) -> None:
    """Files change during each read. No event is missing, and no damage is reported."""
    log = open_log(tmp_path / "data")
    value = bytes(range(200))

    def write(commits: int) -> None:
        for _ in range(commits):
            offset = log.next_offset
            log.write(Commit([Entry(value, "a", "r")] * 300, {b"k": str(offset).encode()}))
            log.flush()

    async def both() -> None:
        writing = asyncio.create_task(asyncio.to_thread(write, 400))
        looks = 0
        while not writing.done():
            await asyncio.to_thread(look_once)
            looks += 1
        await writing
        assert looks > 0, "some reads ran during the writes"

    def look_once() -> None:
        durable = log.durable_offset
        with frozen_log(log.path) as seen:
            end = seen.next_offset
            assert durable <= seen.durable_offset <= end, "every durable event is visible"
            assert sum(1 for _ in seen.read()) == end, "no event is missing"
            assert (seen.get(b"k") or b"0") == str(max(0, end - 300)).encode(), "state and events match"

    write(1)
    asyncio.run(both())
    look_once()
    log.close()


def test_a_copy_without_a_durable_mark_is_read_to_its_end(own_history: LogRef) -> None:
    expected = len(records_of(own_history))
    (own_history.path / "DURABLE").unlink()
    assert len(records_of(own_history)) == expected


def test_a_frozen_log_rejects_writes(own_history: LogRef) -> None:
    with frozen_log(own_history.path) as seen, pytest.raises(Exception, match="rejects writes"):
        seen.write(Commit((Entry(b"x"),)))


def test_a_log_of_a_newer_release_is_rejected(own_history: LogRef) -> None:
    put_view(own_history.path, b"mevents", b"99")
    with pytest.raises(LogFromNewerVersion, match="event version 99"):
        FrozenLog(own_history.path)
    with pytest.raises(LogError):
        FrozenLog(own_history.path / "nowhere")


# --- damage


DAMAGES: dict[str, tuple[Callable[[bytes], bytes | None], str]] = {
    "an unknown type": (
        lambda event: event.replace(b"CreateRequested", b"CreateDreamedOf"),
        "event at offset 20: unknown event type 'CreateDreamedOf'",
    ),
    "no event": (lambda _: b"\xc1garbage", "event at offset 20: not an event"),
    "cut short": (lambda event: event[:-5], "event at offset 20: not an event"),
    "missing": (lambda _: None, "event 20 is missing"),
}


@pytest.mark.parametrize(("damage", "says"), DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("options", [{}, {"columns": "offset"}, {"shards": "late_one"}], ids=str)
def test_a_damaged_event_fails_the_read_with_any_options(
    own_history: LogRef, damage: Callable[[bytes], bytes | None], says: str, options: dict[str, str]
) -> None:
    put_event(own_history.path, 20, damage(event_bytes(own_history.path, 20)))
    with pytest.raises((LogError, EventDecodeError), match=re.escape(says)):
        read(str(own_history.path), **options)


def _unclean(source: Path, target: Path) -> Path:
    """A copy of a log after kill -9: all events are in the write-ahead log."""
    log = open_log(source)
    value = read_one(log, 0)
    for _ in range(50):
        log.write(Commit((Entry(value),)))
        log.flush()
    shutil.copytree(source, target)
    log.close()
    return target


FILES: dict[str, tuple[str, Callable[[Path, int], None]]] = {
    "the write-ahead log ends in a record": (".log", lambda file, size: cut(file, size // 2 - 3)),
    "a bit of the write-ahead log": (".log", lambda file, size: flip(file, size // 2, 0x40)),
    "a bit of a table, where its data is": (".sst", lambda file, size: flip(file, size // 4, 0x40)),
}


def test_compare_fails_on_damaged_state(own_history: LogRef) -> None:
    with frozen_log(own_history.path) as log:
        database: Any = log._database
        name = next(each["name"] for each in database._events.live_files() if each["start_key"][0] != 0)
    views = own_history.path / name.lstrip("/")
    flip(views, views.stat().st_size // 4, 0x40)
    with pytest.raises(LogCorrupted, match=rf"is damaged \(Corruption: .*{views}.*\); restore the folder"):
        run_compare(InProcess(), own_history, Options())


@pytest.mark.parametrize(("suffix", "damage"), FILES.values(), ids=FILES)
def test_damaged_rocksdb_files_fail_the_read(
    own_history: LogRef, tmp_path: Path, suffix: str, damage: Callable[[Path, int], None]
) -> None:
    copy = _unclean(own_history.path, tmp_path / "copy")
    with frozen_log(copy) as whole:
        assert whole.next_offset == len(list(whole.read()))
    file = largest(copy, suffix)
    damage(file, file.stat().st_size)
    with pytest.raises(LogCorrupted, match="damaged"), frozen_log(copy) as seen:
        list(seen.read())


def test_a_log_with_missing_sst_files_is_reported(own_history: LogRef) -> None:
    largest(own_history.path, ".sst").unlink()
    with pytest.raises(LogCorrupted, match="damaged"):
        records_of(own_history)


def test_parsing_a_log_url_opens_no_files() -> None:
    assert parse_ref("/nowhere") == LogRef("/nowhere", Path("/nowhere"))
