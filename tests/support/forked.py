"""`topicwright` as a separate process without a start of Python, which takes long because of imports.

`Forked` lets a process fork that has imported everything. The child has its own session, pipes, folder, environment and
arguments, and runs `main` as the console script does. Tests of the command line start the real script.
"""

import atexit
import gc
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from controller.cli.main import main

COMMANDS = ("serve", "gateway", "worker", "join")
MODULES = (
    "controller.cli.flags",
    "controller.cli.serve",
    "controller.serving.serve",
    "controller.serving.quorum_member",
    "controller.stream.worker.driver",
    "controller.stream.worker.service",
    "controller.stream.gateway.service",
    "litestar.plugins.attrs",
    "litestar.plugins.pydantic",
)
"""The modules that these commands import at any time."""
_NUMBER = struct.Struct("i")


class Forked:
    """The part of `subprocess.Popen` that tests use."""

    def __init__(self, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> None:
        given, stdin = os.pipe()
        stdout, printed = os.pipe()
        self._status, status = os.pipe()
        request = json.dumps({"argv": argv, "cwd": str(cwd), "env": dict(env)})
        socket.send_fds(_forker(), [request.encode()], [given, printed, status])
        for each in (given, printed, status):
            os.close(each)
        self.args, self.returncode = argv, None
        self.pid: int = _NUMBER.unpack(os.read(self._status, _NUMBER.size))[0]
        self.stdin, self.stdout = os.fdopen(stdin, "w"), os.fdopen(stdout, errors="replace")

    returncode: int | None

    def __del__(self) -> None:
        os.close(self._status)

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. Raises TimeoutExpired."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended, but the exit code is not reported yet
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            ended = os.read(self._status, _NUMBER.size)
            self.returncode = _NUMBER.unpack(ended)[0] if ended else -signal.SIGKILL
        return self.returncode


@cache
def _forker() -> socket.socket:
    """A socket to the forking process, which ends with this one."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.forked", str(there.fileno())],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[there.fileno()],
        start_new_session=True,
    )
    there.close()

    def end() -> None:
        here.close()
        process.wait()

    atexit.register(end)
    return here


def _fork_on_request(requests: socket.socket) -> int:
    """Fork for each request, and report the exit code of each child; in a child, return its exit code."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, int] = {}
    sources: list[Any] = [requests, woken]
    while True:
        ready = select.select(sources, [], [])[0]
        if woken in ready:
            os.read(woken, 4096)
            _report(running)
        if requests in ready:
            request, files, _, _ = socket.recv_fds(requests, 1 << 20, 3)
            if not request:
                return 0
            pid = os.fork()
            if pid == 0:
                return _run(request, files)
            running[pid] = files[2]
            for each in files[:2]:
                os.close(each)


def _report(running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        file = running.pop(pid)
        with suppress(BrokenPipeError):  # the waiting process has ended
            os.write(file, _NUMBER.pack(os.waitstatus_to_exitcode(status)))
        os.close(file)


def _run(request: bytes, files: Sequence[int]) -> int:
    """Run the requested command in this child; returns its exit code."""
    wanted = json.loads(request)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.write(files[2], _NUMBER.pack(os.getpid()))  # after setsid, so that its process group can be signalled
    for number, file in enumerate((files[0], files[1], files[1])):
        os.dup2(file, number)
    os.closerange(3, 1 + max(int(each) for each in os.listdir("/proc/self/fd")))
    os.chdir(wanted["cwd"])
    os.environ.clear()
    os.environ.update(wanted["env"])
    sys.argv = wanted["argv"]
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return main()


if __name__ == "__main__":
    for module in MODULES:
        import_module(module)
    gc.collect()
    gc.freeze()
    sys.exit(_fork_on_request(socket.socket(fileno=int(sys.argv[1]))))
