"""Commands write files that only their owner can read, whatever the umask, and warn about other files. Reading the
folder of a stopped service changes no byte of it, even after a kill."""

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from controller.access.users import set_password
from controller.cli.main import main
from controller.serving.process import lock_folder, warn_of_readers
from controller.settings.load import load_settings
from events.logs.log import Commit
from events.logs.rocksdb_log import RocksDbLog
from tests.replay.history import open_log
from tests.support.processes import Process
from tests.support.tools import ROOT
from tests.support.topicwright import COMMAND


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def readable(path: Path) -> list[str]:
    """The paths in a folder, itself included, on which group or others have a permission."""
    return [str(each) for each in (path, *path.rglob("*")) if stat.S_IMODE(each.stat().st_mode) & 0o077]


def test_service_files_are_readable_only_by_the_owner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    argv: list[str | Path] = [COMMAND, "serve", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", data]
    with Process(argv, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}) as process:
        process.wait_for_line("^ready ", within_s=240)
        assert readable(data) == []
        assert process.stop(within_s=240) == 0
    assert (data / "CURRENT").is_file()
    assert readable(data) == []
    assert "others can read" not in process.output
    data.chmod(0o750)
    warn_of_readers(data, load_settings())
    shown = capsys.readouterr().out
    assert all(each in shown for each in ("others can read", str(data), "0750", f"chmod go= {data}")), shown


def test_a_command_restores_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getpass", lambda prompt: "secret")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert main(["users", "add", "alice", "--data", str(tmp_path / "data")]) == 0
    assert readable(tmp_path / "data") == []
    assert os.umask(0) == 0


def test_data_folders_have_mode_0700(tmp_path: Path) -> None:
    RocksDbLog(tmp_path / "log", cluster_id="c", new_cluster_id=lambda: "c").close()
    lock_folder(tmp_path / "gateway").close()
    for name in ("log", "gateway"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "log" / "DURABLE").stat().st_mode) == 0o600


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, False), (0o644, True), (0o604, True)])
def test_mode_of_users_file(tmp_path: Path, mode: int, warned: bool, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "users"
    set_password(path, "carol", "secret")
    path.chmod(mode)
    warn_of_readers(tmp_path / "none", load_settings(overrides=[f"users.file={path}"]))
    assert ("others can read secrets" in capsys.readouterr().out) is warned


COMMANDS = (
    ("verify", "DIR"),
    ("prove", "5", "--data", "DIR"),
    ("events", "--data", "DIR"),
    ("topics", "--data", "DIR"),
    ("users", "list", "--data", "DIR"),
)


@pytest.fixture
def killed(day: Path, tmp_path: Path) -> Path:
    """A folder after kill -9: the newest events are only in the write-ahead log."""
    shutil.copytree(day, tmp_path / "log")
    with closing(open_log(tmp_path / "log")) as log:
        log.write(Commit(own={b"zz": b"1"}))
        log.flush()
        shutil.copytree(tmp_path / "log", tmp_path / "killed")
    return tmp_path / "killed"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_reads_write_nothing(command: tuple[str, ...], killed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = _content(killed)
    assert any(one.stat().st_size for one in killed.glob("*.log")), "opening it would flush these events"
    assert main([str(killed) if word == "DIR" else word for word in command]) == 0, capsys.readouterr().err
    assert _content(killed) == before


def _content(folder: Path) -> list[tuple[str, int, str]]:
    files = sorted(one for one in folder.rglob("*") if one.is_file())
    return [(str(one), one.stat().st_mtime_ns, hashlib.sha256(one.read_bytes()).hexdigest()) for one in files]
