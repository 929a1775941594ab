"""Commands that read the folder of a stopped service change no byte of it, after a kill too."""

from __future__ import annotations

import hashlib
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from controller.cli.main import main
from events.logs.log import Commit
from tests.projections.archive.archives import write_a_day
from tests.replay.history import open_log

COMMANDS = (
    ("verify", "DIR"),
    ("prove", "5", "--data", "DIR"),
    ("events", "--data", "DIR"),
    ("topics", "--data", "DIR"),
    ("users", "list", "--data", "DIR"),
)


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("day") / "log"
    write_a_day(folder, 320)
    return folder


@pytest.fixture
def killed(day: Path, tmp_path: Path) -> Path:
    """A folder as kill -9 leaves it: what is newest is in the write-ahead log alone."""
    shutil.copytree(day, tmp_path / "log")
    with closing(open_log(tmp_path / "log")) as log:
        log.write(Commit(own={b"zz": b"1"}))
        log.flush()
        shutil.copytree(tmp_path / "log", tmp_path / "killed")
    return tmp_path / "killed"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_command_that_reads_writes_nothing(
    command: tuple[str, ...], killed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _content(killed)
    assert any(one.stat().st_size for one in killed.glob("*.log")), "it would be written to table files"
    assert main([str(killed) if word == "DIR" else word for word in command]) == 0, capsys.readouterr().err
    assert _content(killed) == before


def _content(folder: Path) -> list[tuple[str, int, str]]:
    files = sorted(one for one in folder.rglob("*") if one.is_file())
    return [(str(one), one.stat().st_mtime_ns, hashlib.sha256(one.read_bytes()).hexdigest()) for one in files]
