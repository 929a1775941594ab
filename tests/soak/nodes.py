"""One process of the soak: how it is started, whether it is well, and what can happen to it."""

from __future__ import annotations

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
"""A broker is fenced after 9 s of silence, a worker replaced after 6 s, a leader of the quorum after 2 s."""
JAVA_TERMINATED: Final = 143
_HTTP = re.compile(r"^ready .*\bhttp=(\S+)", re.MULTILINE)


@dataclass(slots=True, eq=False)
class Node:
    """A process that comes and goes. `kind` is voter, broker, worker or gateway; `folder` is where it keeps its data;
    `ours` says whether it is Topicwright's."""

    name: str
    kind: str
    process: Callable[[], Process | None]
    begin: Callable[[], object]
    """Starts it in the place of the one that ended."""
    works: Callable[[], bool]
    folder: Path
    ours: bool = True
    disturbed: threading.Event = field(default_factory=threading.Event)
    """Set from a fault until its end: who ends then is not missed."""
    _seen: tuple[int, str] = (0, "")

    @property
    def running(self) -> Process:
        """Its process, which may have ended."""
        found = self.process()
        assert found is not None, f"{self.name} was started"
        return found

    @property
    def http(self) -> str:
        """Where the process of now answers HTTP; empty until it says so."""
        process = self.running
        if self._seen[0] != process.pid or not self._seen[1]:
            found = _HTTP.search(process.output)
            self._seen = process.pid, found[1] if found else ""
        return self._seen[1]

    def get(self, path: str) -> bytes:
        """What HTTP answers. Raises OSError where it does not, or not with 200."""
        if not self.http:
            raise ConnectionRefusedError(f"{self.name} does not say yet where it answers")
        with urllib.request.urlopen(f"http://{self.http}{path}", timeout=10) as answer:
            body: bytes = answer.read()
        return body

    def is_ready(self) -> bool:
        """Whether it says of itself that it is."""
        with suppress(OSError):
            self.get("/health/ready")
            return True
        return False

    def ended(self) -> str | None:
        """What it left behind, where it ended and nobody had it ended."""
        process = self.running
        if self.disturbed.is_set() or process.popen.poll() is None or self.disturbed.is_set():
            return None
        return f"{self.name} ended by itself with {process.popen.returncode}: {process.output[-3000:]}"


def kill(node: Node, chance: random.Random) -> None:
    """SIGKILL, and some time later it is started again."""
    node.running.kill()
    time.sleep(chance.uniform(0.2, 3))
    node.begin()


def terminate(node: Node, chance: random.Random) -> None:
    """SIGTERM: it ends in order, and is started again."""
    code = node.running.stop(within_s=120)
    assert code in ((0,) if node.ours else (0, JAVA_TERMINATED)), (
        f"{node.name}: SIGTERM ended with {code}\n{node.running.output[-3000:]}"
    )
    time.sleep(chance.uniform(0.0, 1))
    node.begin()


def stop(node: Node, chance: random.Random) -> None:
    """SIGSTOP: for a while it does not run, and then goes on as if nothing had been."""
    process = node.running
    process.popen.send_signal(signal.SIGSTOP)
    try:
        time.sleep(chance.uniform(*STOPPED_S))
    finally:
        process.popen.send_signal(signal.SIGCONT)


FAULTS: Final[Mapping[str, Callable[[Node, random.Random], None]]] = {"kill": kill, "term": terminate, "stop": stop}
