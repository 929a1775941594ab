"""Frozen files: a consistent view of a folder, whatever happens to its names. Nothing is written, and no file
remains."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from events.logs.log import LogCorrupted, LogError
from projections.replay.log import secondary
from projections.replay.log.log_ref import LogRef
from projections.replay.log.secondary import frozen, frozen_log

Move = Callable[[Path], None]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like a log's. Temporary files go to `temp` next to it."""
    place = tmp_path / "data"
    place.mkdir()
    (tmp_path / "temp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    for name, text in (("CURRENT", "MANIFEST-1\n"), ("MANIFEST-1", "one"), ("1.sst", "table"), ("2.log", "written")):
        (place / name).write_text(text)
    (place / "LOCK").touch()
    return place


def test_frozen_files_stay_readable_after_they_are_deleted(folder: Path) -> None:
    names = sorted(os.listdir(folder))
    with frozen(folder) as place:
        (folder / "1.sst").unlink()
        (folder / "2.log").unlink()
        (folder / "MANIFEST-1").write_text("one, two")
        held = {file.name: file.read_text() for file in place.iterdir()}
    assert held == {"CURRENT": "MANIFEST-1\n", "MANIFEST-1": "one", "1.sst": "table", "2.log": "written"}
    assert sorted({*os.listdir(folder), "1.sst", "2.log"}) == names, "the folder has no new file"
    assert list((folder.parent / "temp").iterdir()) == []


def _manifest(folder: Path) -> None:
    (folder / "MANIFEST-1").write_text((folder / "MANIFEST-1").read_text() + "+")


def _new_manifest(folder: Path) -> None:
    (folder / "MANIFEST-7").write_text("seven")
    (folder / "CURRENT").write_text("MANIFEST-7\n")


def _new_log(folder: Path) -> None:
    (folder / "3.log").write_text("newer")


@pytest.mark.parametrize("move", [_manifest, _new_manifest, _new_log], ids=lambda one: one.__name__)
def test_freezing_restarts_if_rocksdb_files_change(folder: Path, monkeypatch: pytest.MonkeyPatch, move: Move) -> None:
    link, moved = secondary._link, set[str]()

    def moving(*given: Any) -> None:
        if not moved:
            moved.add("once")
            move(folder)
        link(*given)

    monkeypatch.setattr(secondary, "_link", moving)
    with frozen(folder) as place:
        current = (folder / "CURRENT").read_text()
        assert (place / "CURRENT").read_text() == current
        assert (place / current.strip()).read_text() == (folder / current.strip()).read_text()
        held = {file.name for file in place.iterdir() if file.suffix == ".log"}
        assert held == {file.name for file in folder.iterdir() if file.suffix == ".log"}


def test_constantly_changing_files_are_not_reported_as_damage(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = secondary._link

    def moving(*given: Any) -> None:
        _manifest(folder)
        link(*given)

    monkeypatch.setattr(secondary, "_link", moving)
    monkeypatch.setattr(secondary, "_TRIES", 5)
    with pytest.raises(LogError, match="its files changed during each of 5 tries; try again") as raised, frozen(folder):
        pass
    assert not isinstance(raised.value, LogCorrupted)
    assert list((folder.parent / "temp").iterdir()) == []


@pytest.mark.parametrize("current", ["", "nonsense\n", "MANIFEST-1/../x\n", "MANIFEST-9\n"])
def test_a_missing_rocksdb_manifest_is_damage(folder: Path, current: str) -> None:
    (folder / "CURRENT").write_text(current)
    with pytest.raises(LogCorrupted, match="is damaged"), frozen(folder):
        pass


def test_errors_name_the_log_folder_and_not_the_frozen_copy(own_history: LogRef) -> None:
    max(own_history.path.glob("*.sst"), key=lambda file: file.stat().st_size).unlink()
    with pytest.raises(LogCorrupted) as raised, frozen_log(own_history.path):
        pass
    assert str(own_history.path) in str(raised.value)
    assert "topicwright-look" not in str(raised.value)
