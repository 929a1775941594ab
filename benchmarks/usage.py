"""Memory and processor seconds of the child processes.

Wall time says little on a shared machine. Processor seconds, user and system together, show the cost of the work
itself. On an idle machine the wall time is at least their number divided by the number of cores.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

MIB = 1 << 20
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_LOOK_EVERY_S = 0.5


class Usage:
    """The highest proportional set sizes in MiB of Java and of Python workers; processor seconds of all, and of this
    process."""

    def __init__(self) -> None:
        self.java = 0.0
        self.workers = 0.0
        self._own_s = time.process_time()
        self._first = _seconds_by_process()
        self._last = dict(self._first)

    @property
    def core_s(self) -> float:
        """Processor seconds so far. An ended process counts up to its last measurement."""
        below = sum(seconds - self._first.get(process, 0.0) for process, seconds in self._last.items())
        return below + time.process_time() - self._own_s

    def look(self) -> None:
        """Measure memory and processor seconds once."""
        self._last |= _seconds_by_process()
        java = workers = 0
        for process in _children(os.getpid()):
            size = _pss_bytes(process)
            if _name(process).startswith("java"):
                java += size
            else:
                workers += size
        self.java, self.workers = max(self.java, java / MIB), max(self.workers, workers / MIB)


@contextmanager
def usage() -> Iterator[Usage]:
    """Measure the usage during the block."""
    seen, stopped = Usage(), threading.Event()

    def watch() -> None:
        while not stopped.wait(_LOOK_EVERY_S):
            seen.look()

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield seen
    finally:
        stopped.set()
        watching.join()
        seen.look()


def cpu_seconds(process: int) -> float:
    """The processor seconds of a process, user and system together. Raises OSError."""
    fields = _stat(process)
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def seconds_below() -> float:
    """The processor seconds of the running child processes."""
    return sum(_seconds_by_process().values())


T = TypeVar("T")


def with_core_us(count: int, work: Callable[[], T]) -> tuple[T, float]:
    """Returns the result of the work, and the child processes' processor microseconds for each of `count` items."""
    before = seconds_below()
    found = work()
    return found, (seconds_below() - before) / count * 1e6


def resident_mib(process: int) -> float:
    """The resident memory of a process. Raises OSError."""
    return int(re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text())[0]) / 1024


def process_state(process: int) -> str:
    """Linux's state of a process's first thread: `S` sleeps, `R` is running or runnable. Raises OSError."""
    return _stat(process)[0]


def _stat(process: int) -> list[str]:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def _seconds_by_process() -> dict[int, float]:
    found = {}
    for process in _children(os.getpid()):
        with suppress(OSError):
            found[process] = cpu_seconds(process)
    return found


def _children(root: int) -> Iterator[int]:
    try:
        tasks = list(Path(f"/proc/{root}/task").iterdir())
    except OSError:
        return
    for task in tasks:
        try:
            children = (task / "children").read_text().split()
        except OSError:
            continue
        for child in map(int, children):
            yield child
            yield from _children(child)


def _pss_bytes(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


def _name(process: int) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:
        return ""
