"""A controller's folder: its owner, its directory id, and its quorum state."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from controller.quorum.folder import (
    META_PROPERTIES,
    PARTITION,
    QUORUM_STATE,
    FolderError,
    NodeFolder,
    read_properties,
    read_quorum_state,
    uuid_text,
    write_quorum_state,
)
from controller.quorum.raft.log import QuorumState, SnapshotId
from tests.quorum.logs import kept, opened, snapshot, some

DIRECTORY = b"d" * 16


def _open(path: Path, cluster_id: str = "cluster", node_id: int = 7) -> NodeFolder:
    return NodeFolder(path, cluster_id, node_id, lambda: DIRECTORY)


def test_a_folder_retains_its_directory_id(tmp_path: Path) -> None:
    _open(tmp_path / "a").close()
    again = NodeFolder(tmp_path / "a", "cluster", 7, lambda: b"e" * 16)
    assert again.directory_id == DIRECTORY
    assert read_properties(tmp_path / "a" / "meta.properties") == {
        "version": "1", "cluster.id": "cluster", "node.id": "7", "directory.id": uuid_text(DIRECTORY)
    }  # fmt: skip
    again.close()


def test_a_directory_id_is_valid_for_kafka(tmp_path: Path) -> None:
    like_an_option, reserved = b"\xfb" + b"x" * 15, bytes(15) + b"\x63"
    drawn: Iterator[bytes] = iter([like_an_option, bytes(16), reserved, DIRECTORY])
    folder = NodeFolder(tmp_path, "cluster", 7, lambda: next(drawn))
    assert folder.directory_id == DIRECTORY
    folder.close()


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "why"),
    [("other", 7, "belongs to cluster cluster, not to other"), ("cluster", 8, "belongs to node 7, not to 8")],
)
def test_a_folder_of_another_node_or_cluster_is_rejected(
    tmp_path: Path, cluster_id: str, node_id: int, why: str
) -> None:
    _open(tmp_path).close()
    with pytest.raises(FolderError, match=why):
        _open(tmp_path, cluster_id, node_id)


@pytest.mark.parametrize("content", [b"\xff\xfe\0", "cluster.id=c\nnode.id=²".encode()])
def test_invalid_meta_properties_are_reported(tmp_path: Path, content: bytes) -> None:
    (tmp_path / META_PROPERTIES).write_bytes(content)
    with pytest.raises(FolderError, match=r"meta.properties"):
        read_properties(tmp_path / META_PROPERTIES)


def test_a_locked_folder_is_rejected(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom controller.quorum.folder import NodeFolder\n"
        "held = NodeFolder(Path(sys.argv[1]), 'cluster', 7, lambda: b'd' * 16)\nprint('held', flush=True)\n"
        "sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(FolderError, match="is in use: stop the process"):
            _open(tmp_path)
        other.communicate(b"")
    _open(tmp_path).close()


def test_the_quorum_folder_is_readable_only_by_the_owner(tmp_path: Path) -> None:
    folder = _open(tmp_path / "a" / "b")
    log = opened(tmp_path / "a" / "b")
    log.append(some(0))
    log.persist(QuorumState(1, 2, 3))
    log.flush()
    kept(log, SnapshotId(1, 1), [snapshot(1)])
    files = [each for each in (tmp_path / "a" / "b").rglob("*") if each.is_file()]
    assert len(files) == 7
    assert {each.stat().st_mode & 0o777 for each in files} == {0o600}
    assert (tmp_path / "a" / "b" / PARTITION).stat().st_mode & 0o777 == 0o700
    log.close()
    folder.close()


@pytest.mark.parametrize(
    ("state", "version"),
    [(QuorumState(), 0), (QuorumState(5, 3, -1), 0), (QuorumState(5, -1, 2), 0), (QuorumState(5, -1, 2, DIRECTORY), 1)],
)
def test_the_quorum_state_file_round_trips_in_kafkas_format(tmp_path: Path, state: QuorumState, version: int) -> None:
    log = opened(tmp_path)
    log.persist(QuorumState(1))
    log.persist(state)
    assert log.state == state
    log.close()
    again = opened(tmp_path)
    assert again.state == state
    again.close()
    wanted: dict[str, object] = {"leaderId": state.leader_id, "leaderEpoch": state.epoch, "votedId": state.voted_id}
    if version:
        wanted |= {"votedDirectoryId": uuid_text(DIRECTORY)}
    else:
        wanted |= {"clusterId": "", "appliedOffset": 0, "currentVoters": []}
    assert json.loads((tmp_path / PARTITION / QUORUM_STATE).read_text()) == {**wanted, "data_version": version}


def test_a_failed_quorum_state_write_retains_the_previous_vote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(tmp_path)
    log.persist(QuorumState(1, 2))
    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", Mock(side_effect=OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space"):
            log.persist(QuorumState(2, -1, 5))
    assert log.state == read_quorum_state(tmp_path / PARTITION / QUORUM_STATE) == QuorumState(1, 2)
    assert sorted(each.name for each in (tmp_path / PARTITION).glob("quorum-state*")) == [QUORUM_STATE]
    log.close()


def test_a_malformed_quorum_state_is_reported(tmp_path: Path) -> None:
    path = tmp_path / QUORUM_STATE
    write_quorum_state(path, QuorumState(3))
    whole = path.read_bytes()
    for broken in (whole[:-5], whole.replace(b":3", b":%d" % 10**20), whole.replace(b":3", b":-1")):
        path.write_bytes(broken)
        with pytest.raises(FolderError, match="quorum-state is not a quorum state"):
            read_quorum_state(path)
