"""The files of an export: what they hold, and that nothing counts which a task left that failed, or ran twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from projections.replay.export import export as export_module
from projections.replay.export.export import NOTE, exported_files, write_files
from projections.replay.log.columns import COLUMNS, arrow_schema
from projections.replay.log.log_ref import LogRef, Range
from projections.replay.outcome import ReplayError, message_of
from projections.replay.runner import InProcess, Source
from tests.replay.damage import put_event
from tests.replay.export.test_export import added_to

ALL = arrow_schema(tuple(COLUMNS))


def offsets(file: str | Path) -> list[int]:
    """The offsets in a file."""
    found: list[int] = pq.ParquetFile(file).read(["offset"])["offset"].to_pylist()
    return found


def test_files_are_named_by_their_first_offset(
    history: LogRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_module, "FILE_EVENTS", 30)
    added_to(tmp_path / "out", history, "49")
    added_to(tmp_path / "out", history, "89")
    files = [str(Path(file).relative_to(tmp_path / "out")) for file in exported_files(tmp_path / "out")]
    assert files == [
        f"from_offset={segment}/part-{first:012}.parquet" for segment, first in ((0, 0), (0, 25), (50, 50), (50, 70))
    ]
    read = [offset for file in exported_files(tmp_path / "out") for offset in offsets(file)]
    assert read == list(range(90)), "in order, each once"
    assert {one.name for one in (tmp_path / "out").iterdir()} == {NOTE, "from_offset=0", "from_offset=50"}


def test_groups_of_rows_are_small_and_typed(history: LogRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_module, "GROUP_BYTES", 1)
    monkeypatch.setattr("projections.replay.log.reading._BATCH_ROWS", 16)
    name = "part-000000000005.parquet"
    assert export_module._write(history, Range(5, 55), tmp_path) == {"file": name, "events": 50}
    file = pq.ParquetFile(tmp_path / name)
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [16, 16, 16, 2]
    assert file.schema_arrow.equals(ALL), "the columns as they are said to be"
    assert file.metadata.row_group(0).column(1).compression == "SNAPPY"


def test_a_failed_run_leaves_nothing_that_counts(own_history: LogRef, tmp_path: Path) -> None:
    out = tmp_path / "out"
    added_to(out, own_history, "50")
    note, before = (out / NOTE).read_bytes(), exported_files(out)
    put_event(own_history.path, 90, None)
    with pytest.raises(Exception, match="90") as failed:
        added_to(out, own_history)
    assert "event 90 is missing" in message_of(failed.value)
    assert ((out / NOTE).read_bytes(), exported_files(out)) == (note, before)
    assert {one.name for one in out.iterdir()} == {NOTE, "from_offset=0"}


def test_a_task_that_runs_twice_writes_the_same(history: LogRef, tmp_path: Path) -> None:
    name = str(export_module._write(history, Range(3, 60), tmp_path)["file"])
    first = (tmp_path / name).read_bytes()
    export_module._write(history, Range(3, 60), tmp_path)
    assert (tmp_path / name).read_bytes() == first
    assert [one.name for one in tmp_path.iterdir()] == [name]


def test_a_task_that_fails_leaves_no_half_file(own_history: LogRef, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    put_event(own_history.path, 40, None)
    with pytest.raises(Exception, match="event 40 is missing"):
        export_module._write(own_history, Range(0, 60), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_task_that_outlives_its_run_finds_no_folder(history: LogRef, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        export_module._write(history, Range(0, 9), tmp_path / "_run-gone")
    assert list(tmp_path.iterdir()) == []


def test_what_a_lost_task_left_is_removed(history: LogRef, tmp_path: Path) -> None:
    (tmp_path / ".part-000000000000.parquet.lost").write_bytes(b"half of a file")
    write_files(InProcess(), history, tmp_path, 0, {0: 60})
    (file,) = tmp_path.iterdir()
    assert file.name == "part-000000000000.parquet"
    assert offsets(file) == list(range(60))


class Elsewhere(InProcess):
    """Writes to folders of another machine."""

    def fold(self, source: Source, function: Any, schema: pa.Schema, *_: Any, **__: Any) -> pa.Table:
        rows = [{"file": f"part-{one.start:012}.parquet", "events": one.end - one.start} for one in source.parts]
        return pa.Table.from_pylist(rows, schema=schema)


def test_a_folder_that_workers_do_not_share_is_reported(history: LogRef, tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match="name a folder that they share"):
        write_files(Elsewhere(), history, tmp_path, 0, {0: 20})
