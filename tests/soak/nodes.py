"""One process of the soak: its start, its readiness, and the faults that can be injected into it."""

import random
import re
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support.processes import Process

WELL_WITHIN_S: Final = 240.0
STOPPED_S: Final = (0.5, 12.0)
"""A silent broker is fenced after 9 s, a worker replaced after 6 s, a leader of the quorum after 2 s."""
JAVA_TERMINATED: Final = 143
_HTTP = re.compile(r"^ready .*\bhttp=(\S+)", re.MULTILINE)


@dataclass(slots=True, eq=False)
class Node:
    """A process that is stopped and restarted. `kind` is voter, broker, worker or gateway; `folder` is its data folder;
    `ours` is true for a process of Topicwright."""

    name: str
    kind: str
    process: Callable[[], Process | None]
    begin: Callable[[], object]
    """Starts the process again after it has ended."""
    works: Callable[[], bool]
    folder: Path
    ours: bool = True
    disturbed: threading.Event = field(default_factory=threading.Event)
    """Set during a fault: the process may end meanwhile."""
    _seen: tuple[int, str] = (0, "")

    @property
    def running(self) -> Process:
        """The last started process, which may have ended."""
        found = self.process()
        assert found is not None, f"{self.name} was never started"
        return found

    @property
    def http(self) -> str:
        """HOST:PORT of the current process's HTTP listener; empty until the process prints it."""
        process = self.running
        if self._seen[0] != process.pid or not self._seen[1]:
            found = _HTTP.search(process.output)
            self._seen = process.pid, found[1] if found else ""
        return self._seen[1]

    def get(self, path: str) -> bytes:
        """The body of an HTTP response. Raises OSError without a response, or for a status that is an error."""
        if not self.http:
            raise ConnectionRefusedError(f"{self.name} does not say yet where it answers")
        with urllib.request.urlopen(f"http://{self.http}{path}", timeout=10) as answer:
            body: bytes = answer.read()
        return body

    def is_ready(self) -> bool:
        """True if `/health/ready` returns 200."""
        with suppress(OSError):
            self.get("/health/ready")
            return True
        return False

    def ended(self) -> str | None:
        """Exit code and last output if the process ended without a fault; else None."""
        process = self.running
        if self.disturbed.is_set() or process.popen.poll() is None or self.disturbed.is_set():
            return None
        return f"{self.name} ended by itself with {process.popen.returncode}: {process.output[-3000:]}"


def kill(node: Node, chance: random.Random) -> None:
    """SIGKILL; restart after a pause."""
    node.running.kill()
    time.sleep(chance.uniform(0.2, 3))
    node.begin()


def terminate(node: Node, chance: random.Random) -> None:
    """SIGTERM; check the exit code and restart."""
    code = node.running.stop(within_s=120)
    assert code in ((0,) if node.ours else (0, JAVA_TERMINATED)), (
        f"{node.name}: SIGTERM ended with {code}\n{node.running.output[-3000:]}"
    )
    time.sleep(chance.uniform(0.0, 1))
    node.begin()


def stop(node: Node, chance: random.Random) -> None:
    """SIGSTOP; after a pause, SIGCONT."""
    process = node.running
    process.popen.send_signal(signal.SIGSTOP)
    try:
        time.sleep(chance.uniform(*STOPPED_S))
    finally:
        process.popen.send_signal(signal.SIGCONT)


FAULTS: Final[Mapping[str, Callable[[Node, random.Random], None]]] = {"kill": kill, "term": terminate, "stop": stop}
