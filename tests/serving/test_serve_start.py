"""Rejected starts exit with code 2 and one line with the reason and the remedy."""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from controller.serving.client_listeners import Address
from controller.serving.serve import _hints
from events.catalog import EVENT_VERSION
from events.logs import rocksdb_recovery
from events.logs.rocksdb_log import RocksDbLog
from tests.events.logs.rocksdb_folders import copied, flip, largest, write_counted
from tests.serving.service import CREATE, Talk, codes, create, serving
from tests.support.processes import Process
from tests.support.topicwright import COMMAND, command

# arguments of `serve`, places in capitals | standard error
REJECTED = f"""
--data FIRST --set cluster.id=second      | holds the log of cluster first, not of second: set cluster.id=first, or
--data NEWER                              | event version {EVENT_VERSION + 1}
--data NEWER                              | newer release
--data DAMAGED                            | is damaged
--data FILE                               | is not a folder
--kafka TAKEN                             | cannot listen on TAKEN (--kafka): the address is in use; give another one
--http TAKEN                              | cannot listen on TAKEN (--http): the address is in use; give another one
--http 0.0.0.0:0                          | HTTP would listen on 0.0.0.0, open to other machines without authentication
--kafka= --set listeners=SSL://127.0.0.1:0 | topicwright: listener SSL speaks SSL, which needs ssl.keystore.location
--set listeners=SSL://127.0.0.1:0 | give either --kafka or the setting listeners
--config missing.properties               | missing.properties
--set num.partitons=3                     | num.partitons (--set): did you mean num.partitions?
--set num.partitions=0                    | num.partitions=0 (--set) is not allowed
--set create.topic.policy.class.name=no.P | no.P
--set topic.rules.file=none.toml          | none.toml: cannot be read: No such file or directory
--set topic.rules.file=rules.toml         | rule 'r': partition = 3: unknown key; allowed: name, mode
--set log.signing.key.location=FILE       | log.signing.key.location=FILE is invalid: FILE holds no key
--set log.signing.key.location=FILE       | Ed25519 private key in PEM
--data OTHER --set log.archive.url=OTHER/archive | OTHER/archive is in the data folder; name a place outside it
--brokers kraft:3                         | 'kraft:3' is neither simulated:N with N from 1 to 1000 nor cluster:HOST:PORT
--metadata-version 16                     | '16' is not a level from 17 (3.7) to 33 (4.4)
--metadata-version new                    | 'new' is not a level from 17 (3.7) to 33 (4.4)
--metadata-version 30                     | --metadata-version needs --brokers kraft
"""


def _log(folder: Path, cluster_id: str = "first") -> RocksDbLog:
    return RocksDbLog(folder, cluster_id=cluster_id)


def _write_damaged_log(folder: Path) -> None:
    """Write a log of a killed process with a damaged write-ahead log."""
    log = _log(folder / "running")
    write_counted(log, range(20))
    written = largest(copied(folder / "running", folder / "damaged"), ".log")
    log.close()
    flip(written, written.stat().st_size // 2)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The values of the names in capitals."""
    folder = tmp_path_factory.mktemp("places")
    _log(folder / "first").close()
    with patch.object(rocksdb_recovery, "EVENT_VERSION", EVENT_VERSION + 1):
        _log(folder / "newer").close()
    _write_damaged_log(folder)
    (folder / "file").write_text("a file")
    names = {name.upper(): str(folder / name) for name in ("first", "newer", "damaged", "file", "data", "other")}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield {**names, "TAKEN": f"127.0.0.1:{taken.getsockname()[1]}"}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("line", REJECTED.strip().splitlines())
def test_invalid_serve_arguments_exit_with_2(
    line: str, places: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.toml").write_text("[[rule]]\nname = 'r'\npartition = 3\n")
    for name, place in places.items():
        line = line.replace(name, place)
    words, message = (cell.strip() for cell in line.split(" | "))
    given = {"--kafka": "127.0.0.1:0", "--http": "127.0.0.1:0", "--data": places["DATA"]}
    flags = [word for flag, value in given.items() if f"{flag}=" not in words for word in (flag, value)]
    done = command("serve", *flags, *words.replace("--kafka= ", "").split())
    assert done.returncode == 2
    assert message in done.stderr
    assert "ready" not in done.stdout
    assert "Traceback" not in done.stderr
    assert not Path(places["DATA"]).exists(), "the data folder is not created"


def test_a_data_folder_in_use_is_rejected(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        done = command("serve", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", server.data)
        assert (done.returncode, done.stdout) == (2, "")
        [line] = [line for line in done.stderr.splitlines() if not line.startswith("{")]
        assert line.startswith("topicwright: ")
        assert f"is open in process {server.process.pid}" in line
        with Talk(server.kafka) as talk:
            assert codes(talk.call(CREATE, 7, create("undisturbed"))) == [0]


def test_join_requires_a_node_id(tmp_path: Path) -> None:
    """The default id 0 may belong to a broker."""
    done = command("join", "--bootstrap-controller", "127.0.0.1:1", "--data", tmp_path / "voter")
    assert done.returncode == 2
    assert "give this node an id that no controller or broker has: --set node.id=N" in done.stderr
    assert not (tmp_path / "voter").exists()


def test_a_kraft_folder_rejects_other_brokers_and_lower_feature_levels(tmp_path: Path) -> None:
    places = ["--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", str(tmp_path / "data")]
    kraft = ("--brokers", "kraft")
    level = ("--set", "kraft.version=1", "--metadata-version")
    with Process([COMMAND, "serve", *places, *kraft, *level, "25"], cwd=tmp_path) as process:
        process.wait_for_line('"event":"QuorumEpochBegun",.*"epoch":1', within_s=240)
        process.wait_for_line("^ready", within_s=240)
        assert process.stop() == 0
    rejected = {
        (): "the data folder has the log of a KRaft controller",
        kraft: "kraft.version=0: the cluster has 1, which cannot be lowered",
        (*kraft, *level, "24"): "--metadata-version 24: the cluster has 25, which cannot be lowered",
    }
    for arguments, why in rejected.items():
        done = command("serve", *places, *arguments)
        assert (done.returncode, why in done.stderr) == (2, True), done
    with Process([COMMAND, "serve", *places, *kraft, "--set", "kraft.version=1"], cwd=tmp_path) as process:
        process.wait_for_line('"event":"QuorumEpochBegun",.*"epoch":2', within_s=240)
        process.wait_for_line("^ready", within_s=240)


def test_ready_screen_has_the_address_of_the_page_and_a_command_to_type() -> None:
    hints = _hints(Address("127.0.0.1", 8081))
    assert "The page: http://127.0.0.1:8081/\n" in hints
    assert f"`{Path(sys.argv[0]).absolute()} demo --http 127.0.0.1:8081`" in hints
