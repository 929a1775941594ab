"""The groups of tests that run side by side have every test once."""

from __future__ import annotations

from pathlib import Path

from tests.support.side_by_side import GROUPS, command
from tests.support.tools import ROOT


def test_each_test_is_in_one_group() -> None:
    files = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(files) > 100, files
    assert {str(file): _groups(file) for file in files if len(_groups(file)) != 1} == {}


def _groups(file: Path) -> list[str]:
    return [group for group in GROUPS if _runs(command(group), file)]


def _runs(argv: list[str], file: Path) -> bool:
    folders = {Path(each) for each in argv[3:] if not each.startswith("--")}
    ignored = {Path(each.removeprefix("--ignore=")) for each in argv[3:] if each.startswith("--")}
    return not folders.isdisjoint(file.parents) and ignored.isdisjoint(file.parents)
