"""The export has every event once. A second run adds only new events, and never mixes two logs.

Files of failed or duplicate tasks do not count.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from events.logs.archive.store import ArchiveAway
from events.logs.log import Commit, Entry, read_one
from projections.replay import export as export_module
from projections.replay.checks.checking import check_in_buckets
from projections.replay.checks.history import history_of
from projections.replay.checks.invariants import run_invariants
from projections.replay.checks.sql import run_sql
from projections.replay.export import (
    NOTE,
    Note,
    check_export,
    export,
    exported,
    exported_files,
    read_note,
    run_export,
    write_files,
)
from projections.replay.log.columns import COLUMNS
from projections.replay.log.kafka_scan import Range
from projections.replay.log.log_ref import LogRef, ends_of
from projections.replay.outcome import Options, ReplayError, message_of
from projections.replay.runner import InProcess, Source, events_of
from projections.replay.spark.session import OnSpark
from tests.replay.damage import put_event
from tests.replay.history import open_log
from tests.support.s3_server import ENV, S3Server


def grow(path: Path, count: int) -> None:
    """Append `count` events."""
    log = open_log(path)
    value = read_one(log, 1)
    log.write(Commit([Entry(value)] * count))
    log.flush()
    log.close()


def added_to(folder: Path, ref: LogRef, at: str | None = None) -> tuple[int, Note]:
    """Export a log up to a point in time. Returns the number of added events, and the new export note."""
    return export(InProcess(), ref, str(folder), ends_of(ref, at))[str(folder)]


def table(source: Source) -> pa.Table:
    return pa.Table.from_batches(source.batches(), source.schema).sort_by("offset").combine_chunks()


def offsets(folder: Path, end: int) -> list[int]:
    """The offsets in an export."""
    found: list[int] = table(exported(str(folder), {0: end}, ("offset",)))["offset"].to_pylist()
    return found


def file_name(start: int, end: int) -> str:
    """The name of a file of events."""
    return f"events-{start:012}-{end:012}.parquet"


def offsets_in(file: str | Path) -> list[int]:
    """The offsets in a file."""
    return sorted(pq.ParquetFile(file).read(["offset"])["offset"].to_pylist())


def test_an_export_contains_every_event_of_the_log(history: LogRef, tmp_path: Path) -> None:
    added, note = added_to(tmp_path / "out", history)
    ends, names = ends_of(history), tuple(COLUMNS)
    assert {0: added} == {0: note.next_offset} == ends
    mine, theirs = exported(str(tmp_path / "out"), ends, names), events_of(history, ends, names)
    assert table(mine) == table(theirs)
    assert table(exported(str(tmp_path / "out"), {0: 50}, ("offset",)))["offset"].to_pylist() == list(range(50))


def test_each_bucket_of_an_export_contains_all_events_of_its_shards(history: LogRef, tmp_path: Path) -> None:
    added_to(tmp_path / "out", history, "60")
    added_to(tmp_path / "out", history)
    source, shards = exported(str(tmp_path / "out"), ends_of(history), ("shard", "offset")), dict[str, int]()
    found = list[int]()
    for number, part in enumerate(source.buckets):
        for row in table(Source([part], source.read, source.schema)).to_pylist():
            assert shards.setdefault(row["shard"], number) == number
            found.append(row["offset"])
    assert {0: len(set(found))} == {0: len(found)} == ends_of(history)
    assert len(set(shards.values())) > 1


def test_spark_folds_each_bucket_of_an_export_once(spark: SparkSession, history: LogRef, tmp_path: Path) -> None:
    added_to(tmp_path / "out", history)
    source = exported(str(tmp_path / "out"), ends_of(history), ("shard", "offset"))
    schema = source.schema

    def loaded(query: str) -> Iterator[pa.RecordBatch]:
        with history_of(query, schema) as database:
            yield from database.sql("from log.events").to_arrow_table().cast(schema).to_batches()

    folded = OnSpark(spark).fold(source, loaded, schema, buckets=3)
    assert folded.sort_by("offset").combine_chunks() == table(source)


def test_spark_reads_an_export_as_plain_parquet(spark: SparkSession, history: LogRef, tmp_path: Path) -> None:
    added_to(tmp_path / "out", history, "39")
    added_to(tmp_path / "out", history)
    frame = spark.read.parquet(str(tmp_path / "out"))
    assert {0: frame.count()} == ends_of(history)


def test_a_second_export_adds_only_new_events(own_history: LogRef, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first, _ = added_to(out, own_history, "52")
    files = {file: file.stat().st_mtime_ns for file in out.rglob("*.parquet")}
    grow(own_history.path, 5)
    second, note = added_to(out, own_history)
    assert first == 53
    assert {0: first + second} == ends_of(own_history)
    assert note.files == (file_name(0, 53), file_name(53, note.next_offset))
    assert {file: file.stat().st_mtime_ns for file in files} == files, "existing files do not change"
    assert added_to(out, own_history) == (0, note)
    assert offsets(out, note.next_offset) == list(range(note.next_offset))


def test_an_export_removes_files_of_a_dead_run(own_history: LogRef, tmp_path: Path) -> None:
    out = tmp_path / "out"
    added_to(out, own_history, "50")
    left = out / file_name(51, 60)
    left.write_bytes(b"half of a file")
    end = added_to(out, own_history)[1].next_offset
    assert offsets(out, end) == list(range(end))
    assert not left.exists()


def test_an_export_of_another_log_is_rejected_unchanged(own_history: LogRef, tmp_path: Path) -> None:
    out = tmp_path / "out"
    _, exported_all = added_to(out, own_history)
    note, end = (out / NOTE).read_text(), exported_all.next_offset
    for before, after, says in (
        (exported_all.last_event, "0" * 64, f"at offset {end - 1}, is not the one in"),
        (f'"next_offset": {end}', f'"next_offset": {end + 1}', "it has lost events, or is an older copy"),
        ("replayed-cluster", "another-cluster", "is an export of cluster another-cluster"),
        ('"release"', '"formerly"', "exported by another release"),
        (note[30:], "", "cannot be read"),
    ):
        assert before in note
        (out / NOTE).write_text(note.replace(before, after))
        with pytest.raises(ReplayError, match=says):
            check_export(own_history, Options(export=str(out)))
        with pytest.raises(ReplayError, match=says):
            added_to(out, own_history)


def test_a_folder_with_other_files_is_rejected_as_export_output(history: LogRef, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("of years")
    with pytest.raises(ReplayError, match="holds files that are not an export"):
        run_export(InProcess(), history, Options(export=str(tmp_path)))
    with pytest.raises(ReplayError, match="holds no export"):
        exported(str(tmp_path / "nowhere"), {0: 1}, ("offset",))
    assert read_note(str(tmp_path / "nowhere")) is None


def test_export_reports_the_number_of_added_events(history: LogRef, tmp_path: Path) -> None:
    options = Options(at="11", export=str(tmp_path / "out"))
    outcome = run_export(InProcess(), history, options)
    assert outcome.lines == [
        f"12 events added: {tmp_path / 'out'} holds 12 events of cluster replayed-cluster, up to offset 11"
    ]
    assert run_export(InProcess(), history, options).rows[0]["added"] == 0


# --- the files


def test_export_files_are_named_by_their_first_offset(
    history: LogRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_module, "FILE_EVENTS", 30)
    added_to(tmp_path / "out", history, "49")
    added_to(tmp_path / "out", history, "89")
    names = [file_name(*limits) for limits in ((0, 25), (25, 50), (50, 70), (70, 90))]
    assert exported_files(str(tmp_path / "out"), {0: 90}, {}) == [(str(tmp_path / "out"), name) for name in names]
    read = [offset for name in names for offset in offsets_in(tmp_path / "out" / name)]
    assert read == list(range(90)), "each offset once, in order"
    assert {one.name for one in (tmp_path / "out").iterdir()} == {NOTE, *names}


def test_row_groups_are_small_and_typed(history: LogRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = pq.ParquetFile(tmp_path / export_module._write(history, Range(0, 5), str(tmp_path)))
    assert few.num_row_groups == 1, "a few events are not divided"
    monkeypatch.setattr(export_module, "CHUNK_BYTES", 1)
    monkeypatch.setattr(export_module, "GROUP_EVENTS", 1)
    monkeypatch.setattr(export_module, "BUCKETS", 8)
    monkeypatch.setattr("projections.replay.log.log_ref._BATCH_ROWS", 16)
    name = file_name(5, 53)
    assert export_module._write(history, Range(5, 53), str(tmp_path)) == name
    file = pq.ParquetFile(tmp_path / name)
    groups = [file.read_row_group(n, ["offset", "bucket"]).to_pydict() for n in range(file.num_row_groups)]
    assert {len(set(group["bucket"])) for group in groups} == {1}, "a row group has one bucket"
    assert all(max(group["offset"]) - min(group["offset"]) < 16 for group in groups)
    assert file.schema_arrow.equals(export_module.SCHEMA), "the file has the declared schema"
    assert file.metadata.row_group(0).column(1).compression == "SNAPPY"


def test_a_failed_export_leaves_earlier_files_unchanged(own_history: LogRef, tmp_path: Path) -> None:
    out = tmp_path / "out"
    added_to(out, own_history, "50")
    note = (out / NOTE).read_bytes()
    put_event(own_history.path, 90, None)
    with pytest.raises(Exception, match="90") as failed:
        added_to(out, own_history)
    assert "event 90 is missing" in message_of(failed.value)
    assert (out / NOTE).read_bytes() == note
    assert {one.name for one in out.iterdir()} == {NOTE, file_name(0, 53)}


def test_an_export_task_that_runs_twice_writes_the_same_file(history: LogRef, tmp_path: Path) -> None:
    name = export_module._write(history, Range(3, 60), str(tmp_path))
    first = (tmp_path / name).read_bytes()
    export_module._write(history, Range(3, 60), str(tmp_path))
    assert (tmp_path / name).read_bytes() == first
    assert [one.name for one in tmp_path.iterdir()] == [name]


def test_a_failed_export_task_leaves_no_partial_file(own_history: LogRef, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    put_event(own_history.path, 40, None)
    with pytest.raises(Exception, match="event 40 is missing"):
        export_module._write(own_history, Range(0, 60), str(tmp_path / "out"))
    assert list((tmp_path / "out").iterdir()) == []


class Elsewhere(InProcess):
    """An exporter that writes to folders of another machine."""

    def fold(self, source: Source, function: Any, schema: pa.Schema, *_: Any, **__: Any) -> pa.Table:
        rows = [{"file": file_name(one.start, one.end)} for one in source.parts]
        return pa.Table.from_pylist(rows, schema=schema)


def test_an_export_folder_that_workers_do_not_share_is_an_error(history: LogRef, tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match="name a folder that they share"):
        write_files(Elsewhere(), history, str(tmp_path), 0, {0: 20})


def test_an_export_in_an_object_store_grows_and_is_checked(
    own_history: LogRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in ENV.items():
        monkeypatch.setenv(key, value)
    server = S3Server(tmp_path / "s3")
    options = Options(export=server.url("replay"), all_rows=True)
    with server.running():
        for events in (30, ends_of(own_history)[0]):
            checked = run_invariants(InProcess(), own_history, options._replace(at=str(events - 1)))
            assert (checked.found, checked.about["events"] >= events) == (False, True)
        source = exported(options.export or "", {0: events}, ("offset",))
        assert table(source)["offset"].to_pylist() == list(range(events))
        found = run_sql(None, own_history, options._replace(subject="select count(*) as events from events"))
        assert list(found.rows) == [{"events": events}]
        of_buckets = check_in_buckets(InProcess(), partial(exported, options.export or "", {0: events}))
        assert (of_buckets.rows, of_buckets.events) == ([], events)
    with pytest.raises(ArchiveAway, match="cannot be used now"):
        read_note(options.export or "")
