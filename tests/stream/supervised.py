"""A worker or gateway that is killed and started again by a test, and by itself when it ends unasked."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from tests.support.processes import Process

READY = r"^ready (?:kafka=\S+ )?http=(\S+)$"
READY_S = 300


class Supervised:
    """One process, started again when it ends by itself, as whoever runs it would do."""

    def __init__(self, argv: list[str | Path], cwd: Path) -> None:
        self._argv = argv
        self._cwd = cwd
        self._wanted = False
        self._lock = threading.Lock()
        self.process: Process | None = None
        self.outputs: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def start(self, wait: bool = True) -> None:
        """Start it; with `wait`, until it is ready."""
        with self._lock:
            self.process = process = Process(self._argv, cwd=self._cwd)
            self._wanted = True
        if wait:
            process.wait_for_line(READY, within_s=READY_S)

    def running(self) -> Process:
        """The process, once it runs again if it has just ended by itself."""
        deadline = time.monotonic() + READY_S
        while self.process is None or self.process.popen.poll() is not None:
            assert time.monotonic() < deadline, "it was not started again"
            time.sleep(0.05)
        return self.process

    def kill(self) -> None:
        """kill -9, and leave it dead."""
        with self._lock:
            self._wanted = False
            if self.process is not None:
                self.process.kill()

    def leave(self) -> int:
        """SIGTERM: it leaves in order; its exit code."""
        with self._lock:
            self._wanted = False
            process = self.process
        assert process is not None
        return process.stop(within_s=120)

    def end(self) -> None:
        """Gone, and not started again."""
        self._over.set()
        self._thread.join(10)
        if self.process is not None:
            self.process.stop()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            with self._lock:
                if self._wanted and self.process is not None and self.process.popen.poll() is not None:
                    self.outputs.append(self.process.output[-3000:])
                    self.process.stop()
                    self.process = Process(self._argv, cwd=self._cwd)
