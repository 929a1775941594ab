"""Child processes of tests: started in a group of their own, read line by line, and never left behind."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.forked import COMMANDS, Forked


class ProcessFailure(AssertionError):
    """A child process ended, or did not print an expected line; the message has its last lines."""


class Node:
    """A node that runs as a separate process once it is started."""

    __slots__ = ()
    process: Process | None

    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    def kill(self) -> None:
        assert self.process is not None, "the node was never started"
        self.process.kill()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal such as SIGSTOP or SIGCONT."""
        assert self.process is not None, "the node was never started"
        os.kill(self.process.pid, number)


class Process:
    """A child process with its own process group; as a context manager it ends with the block.

    Standard output and error are read together by a thread, so that the child never blocks on a full pipe.
    """

    def __init__(self, argv: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str] | None = None) -> None:
        self.argv = tuple(str(each) for each in argv)
        self._lines: list[str] = []
        self._unseen: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.popen = _started(self.argv, cwd, env or {})
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def output(self) -> str:
        return "\n".join(self._lines)

    def wait_for_line(self, pattern: str, *, within_s: float) -> re.Match[str]:
        """Returns the first unread line that matches. Raises ProcessFailure if none comes in time."""
        deadline = time.monotonic() + within_s
        while True:
            try:
                line = self._unseen.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise ProcessFailure(self._failure(f"printed no line like {pattern!r} within {within_s} s")) from None
            if line is None:
                raise ProcessFailure(self._failure(f"ended with {self.popen.wait()} before a line like {pattern!r}"))
            if found := re.search(pattern, line):
                return found

    def wait(self, within_s: float) -> int:
        """Wait until the process ends by itself, with complete `output`. Returns the code. Raises TimeoutExpired."""
        code = self.popen.wait(within_s)
        self._reader.join(within_s)
        return code

    def write_line(self, line: str) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(line + "\n")
        self.popen.stdin.flush()

    def kill(self) -> None:
        """SIGKILL to the process group; returns when the process has ended."""
        self._signal(signal.SIGKILL)
        self._reap(within_s=60)

    def stop(self, *, within_s: float = 240) -> int:
        """SIGTERM, then SIGKILL to the group after `within_s`; returns the exit code. Safe to call twice."""
        if self.popen.poll() is None:
            self.popen.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.popen.wait(within_s)
        self._signal(signal.SIGKILL)
        return self._reap(within_s=60)

    def _reap(self, *, within_s: float) -> int:
        code = self.wait(within_s)
        for stream in (self.popen.stdin, self.popen.stdout):
            if stream is not None and not stream.closed:
                with suppress(BrokenPipeError):
                    stream.close()
        return code

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, number)

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self._lines.append(line.rstrip("\n"))
            self._unseen.put(line)
        self._unseen.put(None)

    def _failure(self, what: str) -> str:
        tail = "\n".join(self._lines[-40:])
        return f"{what}: {' '.join(self.argv)[:300]}\n--- its last lines\n{tail}"


def _started(argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> subprocess.Popen[str] | Forked:
    whole = {**os.environ, **env}
    ours = str(Path(sys.executable).with_name("topicwright"))
    is_measured = "PYTEST_VERSION" not in os.environ  # benchmarks and soaks start the real script
    is_own = argv[0] == ours and argv[1] in COMMANDS and env.keys() <= {"PYTHONPATH"}
    if is_own and not is_measured and not (cwd / "sitecustomize.py").exists():
        return Forked(argv, cwd, whole)
    return subprocess.Popen(
        argv,
        cwd=cwd,
        env=whole,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
