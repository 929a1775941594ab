"""Starts that cannot be: exit code 2, and one line that says why and what to do."""

from __future__ import annotations

import re
import socket
import subprocess
from pathlib import Path

import pytest

from controller.serving.client_listeners import Address
from controller.serving.serve import _hints
from events.catalog import EVENT_VERSION
from events.logs.rocksdb_log import RocksDbLog
from tests.serving.service import CREATE, Talk, codes, create, serving
from tests.support.topicwright import COMMAND


def refused(tmp_path: Path, *arguments: str) -> str:
    """The one line that a start which cannot be says."""
    argv: list[str | Path] = [
        COMMAND,
        "serve",
        "--kafka",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--data",
        tmp_path / "data",
        *arguments,
    ]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.stdout == "", "it was never ready"
    lines = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("topicwright: "), lines
    return lines[0].removeprefix("topicwright: ")


def made(folder: Path, cluster_id: str = "first", event_version: int = EVENT_VERSION) -> Path:
    """A folder with an empty log."""
    log = RocksDbLog.open(
        folder / "data", cluster_id=cluster_id, event_version=event_version, new_cluster_id=lambda: cluster_id
    )
    log.close()
    return folder / "data"


def test_hints_have_the_address_of_the_page_and_of_the_api() -> None:
    hints = _hints(Address("127.0.0.1", 9092), Address("127.0.0.1", 8081))
    assert "Its page: http://127.0.0.1:8081/\n" in hints
    assert "programs on http://127.0.0.1:8081/v1." in hints
    assert "curl -s -X POST http://127.0.0.1:8081/v1/topics" in hints


def test_the_folder_of_another_cluster(tmp_path: Path) -> None:
    made(tmp_path)
    line = refused(tmp_path, "--set", "cluster.id=second")
    assert "holds the log of cluster first, not of second: set cluster.id=first, or choose another folder" in line


def test_the_folder_of_a_newer_release(tmp_path: Path) -> None:
    made(tmp_path, event_version=EVENT_VERSION + 1)
    line = refused(tmp_path)
    assert f"event version {EVENT_VERSION + 1}" in line
    assert "newer release" in line


def test_a_folder_that_another_process_serves(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        line = refused(tmp_path)
        assert f"is open in process {server.process.pid}" in line
        with Talk(server.kafka) as talk:
            assert codes(talk.call(CREATE, 7, create("undisturbed"))) == [0]


def test_a_damaged_log(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        with Talk(server.kafka) as talk:
            for number in range(20):
                assert codes(talk.call(CREATE, 7, create(f"t{number}"))) == [0]
        server.process.kill()
    [newest] = [max((tmp_path / "data").glob("*.log"), key=lambda path: path.stat().st_mtime)]
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 0xFF
    newest.write_bytes(content)
    line = refused(tmp_path)
    assert "is damaged" in line
    assert "estore" in line, "it says what to do"


def test_a_path_that_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    assert "is not a folder" in refused(tmp_path)


@pytest.mark.parametrize("door", ["kafka", "http"])
def test_a_port_in_use(tmp_path: Path, door: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = refused(tmp_path, f"--{door}", f"127.0.0.1:{port}")
        assert str(port) in line
        assert re.search("the address is in use", line)
    with serving(tmp_path) as server:
        assert server.process.stop() == 0, "and the folder is as good as before"


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("num.partitons=3", "num.partitons (--set): did you mean num.partitions?"),
        ("num.partitions=0", "num.partitions=0 (--set) is not allowed"),
        ("create.topic.policy.class.name=no.such.Policy", "no.such"),
    ],
)
def test_settings_that_are_wrong(tmp_path: Path, setting: str, says: str) -> None:
    assert says in refused(tmp_path, "--set", setting)
    assert not (tmp_path / "data").exists(), "nothing was begun"


def test_a_settings_file_that_is_not_there(tmp_path: Path) -> None:
    assert "missing.properties" in refused(tmp_path, "--config", "missing.properties")
