"""Resource use of processes, sampled every few seconds: memory, open file descriptors, threads and disk."""

import os
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.soak.nodes import Node

EVERY_S: Final = 2.0
DISK_EVERY: Final = 5
MINUTE_S: Final = 60.0
_STATUS = re.compile(r"^(VmRSS|Threads):\s+(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample of a process: seconds since the start of the soak, MiB, and counts."""

    at_s: float
    pid: int
    rss_mib: float
    descriptors: int
    threads: int


@dataclass(frozen=True, slots=True)
class Disk:
    """A sample of a folder's size in MiB: the total, and the size of each direct entry."""

    at_s: float
    mib: float
    parts: Mapping[str, float]


class Figures(threading.Thread):
    """Samples all nodes until the end of the block; `samples` and `disks` are by the node's name."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        super().__init__(name="figures", daemon=True)
        self.samples: defaultdict[str, list[Sample]] = defaultdict(list)
        self.disks: defaultdict[str, list[Disk]] = defaultdict(list)
        self.ended: list[str] = []
        """Processes that ended without a fault."""
        self.began_s = 0.0
        """Start, on the monotonic clock."""
        self._nodes = nodes
        self._over = threading.Event()
        self._announce: Callable[[], object] | None = None
        self._said_s = 0.0

    def __enter__(self) -> Self:
        self.began_s = time.monotonic()
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self.join(60)

    def now_s(self) -> float:
        """Seconds since the first sample."""
        return time.monotonic() - self.began_s

    def each_minute(self, say: Callable[[], object]) -> None:
        """Call `say` once a minute from now on."""
        self._announce = say

    def run(self) -> None:
        number = 0
        while not self._over.is_set():
            at_s = self.now_s()
            for node in self._nodes:
                self._look(node, at_s)
                if node.ours and number % DISK_EVERY == 0:
                    self.disks[node.name].append(disk_of(node.folder, at_s))
            number += 1
            if self._announce is not None and at_s - self._said_s >= MINUTE_S:
                self._said_s = at_s
                self._announce()
            self._over.wait(EVERY_S)

    def _look(self, node: Node, at_s: float) -> None:
        if (ended := node.ended()) is not None and ended not in self.ended:
            self.ended.append(ended)
        pid = node.running.pid
        with suppress(OSError, KeyError):  # the process has just ended
            self.samples[node.name].append(sample(pid, at_s))


def sample(pid: int, at_s: float) -> Sample:
    """Sample a process. Raises OSError or KeyError if it has ended."""
    status = dict(_STATUS.findall(Path(f"/proc/{pid}/status").read_text(encoding="ascii")))
    descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    return Sample(at_s, pid, int(status["VmRSS"]) / 1024, descriptors, int(status["Threads"]))


def disk_of(folder: Path, at_s: float) -> Disk:
    """The current size of a folder; files may appear and disappear during the scan."""
    parts: defaultdict[str, float] = defaultdict(float)
    for place, _, names in os.walk(folder):
        part = Path(place).relative_to(folder).parts
        for name in names:
            with suppress(OSError):
                parts[part[0] if part else "."] += os.lstat(os.path.join(place, name)).st_blocks / 2048
    return Disk(at_s, sum(parts.values()), dict(parts))


def between(samples: Iterable[Sample], begin_s: float, end_s: float) -> list[Sample]:
    """The samples from `begin_s` to `end_s`."""
    return [each for each in samples if begin_s <= each.at_s <= end_s]


def median(values: Iterable[float]) -> float:
    """The median; 0 for no values."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else 0.0


def hundredths(values: Iterable[float], share: int) -> float:
    """The percentile `share` of the values; 0 for no values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * share // 100)] if ordered else 0.0
