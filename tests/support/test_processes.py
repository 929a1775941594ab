"""Tests of test support: an ended process leaves no child, a missing tool is reported, and in a cut network only the
cut direction waits and no byte is lost."""

import os
import socket
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support.forked import Forked
from tests.support.network import Network
from tests.support.processes import Process, ProcessFailure
from tests.support.tools import cached
from tests.support.topicwright import COMMAND

STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("child", child.pid, flush=True)
time.sleep(600)
"""


def alive(pid: int) -> bool:
    """True if a process is running; a zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_process_that_ignores_sigterm_is_killed_with_its_children(tmp_path: Path) -> None:
    with Process([sys.executable, "-c", STUBBORN], cwd=tmp_path) as process:
        child = int(process.wait_for_line(r"^child (\d+)$", within_s=30)[1])
        assert process.stop(within_s=0.2) == -9
    for _ in range(500):
        if not alive(child):
            break
        time.sleep(0.01)
    assert not alive(process.pid)
    assert not alive(child)


def test_a_missing_line_fails_with_the_process_output(tmp_path: Path) -> None:
    printer = Process([sys.executable, "-c", "print('only this')"], cwd=tmp_path)
    with printer, pytest.raises(ProcessFailure, match="only this"):
        printer.wait_for_line("something else", within_s=120)


def test_a_forked_topicwright_behaves_like_a_process(tmp_path: Path) -> None:
    with Process([COMMAND, "serve", "--nonsense"], cwd=tmp_path) as process:
        assert process.wait(120) == 2
        assert "unknown flag --nonsense" in process.output
    argv: list[str | Path] = [COMMAND, "serve", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", "here"]
    with Process(argv, cwd=tmp_path) as process:
        assert isinstance(process.popen, Forked)
        process.wait_for_line("^ready ", within_s=240)
        assert (tmp_path / "here").is_dir()
        assert os.getsid(process.pid) == process.pid
        assert process.popen.poll() is None
        process.kill()
        assert process.popen.poll() == -9
        assert not alive(process.pid)
    with Process(argv, cwd=tmp_path) as process:
        process.wait_for_line("^ready ", within_s=240)
        assert process.stop() == 0


def test_an_absent_tool_skips_a_test_here_fails_it_in_ci_and_ends_a_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "")
    with pytest.raises(pytest.skip.Exception, match="no-such-tool is not here: run `make tools`"):
        cached("no-such-tool")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no-such-tool"):
        cached("no-such-tool")
    monkeypatch.delenv("PYTEST_VERSION")
    with pytest.raises(SystemExit, match="no-such-tool is not here: run `make tools`"):
        cached("no-such-tool")


OTHER, SELF = 1, 2
"""Node ids: a server, and this process."""


def _echo(server: socket.socket) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            while data := connection.recv(100):
                connection.sendall(data + b"!")


@pytest.mark.parametrize("node", [OTHER, SELF])
@pytest.mark.parametrize(("into", "out_of"), [(True, False), (False, True), (True, True)])
def test_bytes_over_a_cut_network_wait(node: int, into: bool, out_of: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, Network() as network:
        threading.Thread(target=_echo, args=(server,), daemon=True).start()
        port = network.way_to(OTHER, server.getsockname()[1], lambda: None)
        network.way_to(SELF, 1, os.getpid)
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"a")
            assert client.recv(10) == b"a!"
            network.cut(node, into=into, out_of=out_of)
            client.sendall(b"b")
            client.settimeout(0.2)
            with pytest.raises(TimeoutError):
                client.recv(10)
            network.mend(node)
            client.settimeout(60)
            assert client.recv(10) == b"b!"
        server.close()


def test_a_network_connection_to_a_missing_node_is_closed() -> None:
    with Network() as network:
        port = network.way_to(OTHER, 1, lambda: None)
        with socket.create_connection(("127.0.0.1", port)) as client:
            assert client.recv(10) == b""
