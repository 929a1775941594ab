"""The export: every event, once; a second run adds what is new; never two logs in one."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from events.logs.log import Commit, Entry, read_one
from projections.replay.export.export import NOTE, export, exported, noted, run_export, segment_starts
from projections.replay.log.columns import COLUMNS
from projections.replay.log.log_ref import LogRef, open_frozen
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


def end_of_log(ref: LogRef) -> int:
    """How many events there are."""
    with open_frozen(ref) as log:
        return log.next_offset


def table(source: Source) -> pa.Table:
    """The rows of a source."""
    return pa.Table.from_batches(source.batches(), source.schema).combine_chunks()


def offsets(folder: Path, end: int) -> list[int]:
    """The offsets in an export."""
    found: list[int] = table(exported(folder, {0: end}, ("offset",)))["offset"].to_pylist()
    return found


def test_an_export_has_what_the_log_has(history: LogRef, tmp_path: Path) -> None:
    added, note = export(InProcess(), history, tmp_path / "out", segment_events=40)
    assert added == note.next_offset == end_of_log(history)
    assert {one.name for one in (tmp_path / "out").glob("from_offset=*")} == {
        f"from_offset={segment}" for segment in range(0, added, 40)
    }
    ends, names = {0: added}, tuple(COLUMNS)
    mine, theirs = exported(tmp_path / "out", ends, names), events_of(history, ends, names)
    assert table(mine) == table(theirs)
    assert table(exported(tmp_path / "out", {0: 50}, ("offset",)))["offset"].to_pylist() == list(range(50))


def test_others_can_read_it_as_plain_parquet(spark: SparkSession, history: LogRef, tmp_path: Path) -> None:
    export(InProcess(), history, tmp_path / "out", segment_events=40)
    frame = spark.read.parquet(str(tmp_path / "out"))
    assert frame.where("from_offset = 40").agg({"offset": "min"}).collect()[0][0] == 40
    assert frame.count() == end_of_log(history)


def test_a_second_run_adds_only_what_is_new(own_history: LogRef, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first, _ = export(InProcess(), own_history, out, at="50", segment_events=40)
    files = {file: file.stat().st_mtime_ns for file in out.rglob("*.parquet")}
    grow(own_history.path, 5)
    second, note = export(InProcess(), own_history, out, segment_events=40)
    assert (first, first + second) == (51, end_of_log(own_history))
    assert note.segments[:3] == (0, 40, 51)
    assert {file: file.stat().st_mtime_ns for file in files} == files, "what is there stays as it is"
    assert export(InProcess(), own_history, out) == (0, note)
    assert offsets(out, note.next_offset) == list(range(note.next_offset))


def test_what_a_dead_run_left_is_removed(own_history: LogRef, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(InProcess(), own_history, out, at="50")
    left = out / "from_offset=51"
    left.mkdir()
    (left / "part-dead.parquet").write_bytes(b"half of a file")
    run = out / "_run-dead" / "from_offset=51"
    run.mkdir(parents=True)
    (run / "part-dead.parquet").write_bytes(b"half of a file")
    export(InProcess(), own_history, out)
    end = end_of_log(own_history)
    assert offsets(out, end) == list(range(end))
    assert not (left / "part-dead.parquet").exists()
    assert not run.parent.exists()


def test_an_export_of_another_log_is_left_alone(own_history: LogRef, tmp_path: Path) -> None:
    out = tmp_path / "out"
    _, exported_all = export(InProcess(), own_history, out)
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
            export(InProcess(), own_history, out)


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


def test_segments_begin_at_multiples_but_for_the_first() -> None:
    assert segment_starts(0, 10, 10) == [0]
    assert segment_starts(0, 11, 10) == [0, 10]
    assert segment_starts(7, 31, 10) == [7, 10, 20, 30]
    assert segment_starts(10, 12, 10) == [10]
