"""The export: every event, once; a second run adds what is new; never two logs in one."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from events.logs.log import Commit, Entry, read_one
from projections.replay.export.export import NOTE, Note, export, exported, noted, run_export
from projections.replay.log.columns import COLUMNS
from projections.replay.log.log_ref import LogRef, ends_of
from projections.replay.outcome import Options, ReplayError
from projections.replay.runner import InProcess, Source, events_of
from tests.replay.history import open_log


def grow(path: Path, count: int) -> None:
    """Some more events."""
    log = open_log(path)
    value = read_one(log, 1)
    log.write(Commit([Entry(value)] * count))
    log.flush()
    log.close()


def added_to(folder: Path, ref: LogRef, at: str | None = None) -> tuple[int, Note]:
    """Export a log up to a point in time: how many events were added, and the new note."""
    return export(InProcess(), ref, folder, ends_of(ref, at))[folder]


def table(source: Source) -> pa.Table:
    """The rows of a source."""
    return pa.Table.from_batches(source.batches(), source.schema).combine_chunks()


def offsets(folder: Path, end: int) -> list[int]:
    """The offsets in an export."""
    found: list[int] = table(exported(folder, {0: end}, ("offset",)))["offset"].to_pylist()
    return found


def test_an_export_has_what_the_log_has(history: LogRef, tmp_path: Path) -> None:
    added, note = added_to(tmp_path / "out", history)
    ends, names = ends_of(history), tuple(COLUMNS)
    assert {0: added} == {0: note.next_offset} == ends
    mine, theirs = exported(tmp_path / "out", ends, names), events_of(history, ends, names)
    assert table(mine) == table(theirs)
    assert table(exported(tmp_path / "out", {0: 50}, ("offset",)))["offset"].to_pylist() == list(range(50))


def test_others_can_read_it_as_plain_parquet(spark: SparkSession, history: LogRef, tmp_path: Path) -> None:
    added_to(tmp_path / "out", history, "39")
    added_to(tmp_path / "out", history)
    frame = spark.read.parquet(str(tmp_path / "out"))
    assert frame.where("from_offset = 40").agg({"offset": "min"}).collect()[0][0] == 40
    assert {0: frame.count()} == ends_of(history)


def test_a_second_run_adds_only_what_is_new(own_history: LogRef, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first, _ = added_to(out, own_history, "50")
    files = {file: file.stat().st_mtime_ns for file in out.rglob("*.parquet")}
    grow(own_history.path, 5)
    second, note = added_to(out, own_history)
    assert first == 51
    assert {0: first + second} == ends_of(own_history)
    assert note.segments == (0, 51)
    assert {file: file.stat().st_mtime_ns for file in files} == files, "what is there stays as it is"
    assert added_to(out, own_history) == (0, note)
    assert offsets(out, note.next_offset) == list(range(note.next_offset))


def test_what_a_dead_run_left_is_removed(own_history: LogRef, tmp_path: Path) -> None:
    out = tmp_path / "out"
    added_to(out, own_history, "50")
    left = out / "from_offset=51"
    left.mkdir()
    (left / "part-dead.parquet").write_bytes(b"half of a file")
    run = out / "_run-dead" / "from_offset=51"
    run.mkdir(parents=True)
    (run / "part-dead.parquet").write_bytes(b"half of a file")
    end = added_to(out, own_history)[1].next_offset
    assert offsets(out, end) == list(range(end))
    assert not (left / "part-dead.parquet").exists()
    assert not run.parent.exists()


def test_an_export_of_another_log_is_left_alone(own_history: LogRef, tmp_path: Path) -> None:
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
            added_to(out, own_history)


def test_a_folder_with_something_else_is_left_alone(history: LogRef, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("of years")
    with pytest.raises(ReplayError, match="holds files that are not an export"):
        run_export(InProcess(), history, Options(output=str(tmp_path)))
    with pytest.raises(ReplayError, match="holds no export"):
        exported(tmp_path / "nowhere", {0: 1}, ("offset",))
    assert noted(tmp_path / "nowhere") is None


def test_the_sub_command_says_what_it_added(history: LogRef, tmp_path: Path) -> None:
    options = Options(output=str(tmp_path / "out"), at="9")
    outcome = run_export(InProcess(), history, options)
    assert outcome.lines == [
        f"10 events added: {tmp_path / 'out'} holds 10 events of cluster replayed-cluster, up to offset 9"
    ]
    assert run_export(InProcess(), history, options).rows[0]["added"] == 0
