"""The cost of an append to the log: synced appends, single and in batches, compared with the disk's fsync.

An append is an event of 200 bytes, its index entries and one state value. The floor is a plain file that grows by as
many bytes and is synced. It is measured right before each line, because the speed of disks varies.
"""

import os
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path

from benchmarks.figures import Figure, command_line, percentile
from events.logs.log import Commit, Entry
from events.logs.rocksdb_log import RocksDbLog

BATCHES = (1, 10, 100, 1000)
EVENT_BYTES = 200
CREATES = 300
EVENTS_OF_A_CREATE = 5
TEMPORARY = Path(tempfile.gettempdir())


Appends = Callable[[Path, int], Generator[Callable[[], object]]]


def measured(make: Appends, batch: int, seconds: float, parent: Path) -> list[float]:
    """Repeat a synced append of `batch` events in a new folder; returns the seconds of each."""
    took: list[float] = []
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        making = make(Path(folder), batch)
        append = next(making)
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            append()
            took.append(time.perf_counter() - began)
        making.close()
    return took


def plain_file(folder: Path, batch: int) -> Generator[Callable[[], object]]:
    """Grow a file and sync it, to measure the disk alone."""
    file = os.open(folder / "plain", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    data = os.urandom(EVENT_BYTES * batch)

    def append() -> None:
        os.write(file, data)
        os.fdatasync(file)

    try:
        yield append
    finally:
        os.close(file)


def opened(folder: Path) -> RocksDbLog:
    """Opens a new log."""
    return RocksDbLog(folder / "log", cluster_id="benchmark", new_cluster_id=str)


def appends(folder: Path, batch: int) -> Generator[Callable[[], object]]:
    """Append and sync `batch` events, each with its own topic and request."""
    log = opened(folder)
    value = os.urandom(EVENT_BYTES // 2) + bytes(EVENT_BYTES // 2)

    def append() -> None:
        names = [f"topic-{log.next_offset + each}" for each in range(batch)]
        log.write(Commit([Entry(value, name, name) for name in names], {name.encode(): value for name in names}))
        log.flush()

    try:
        yield append
    finally:
        log.close()


def creates(folder: Path, batch: int) -> Generator[Callable[[], object]]:
    """Append and sync the events and state of one request for 300 topics: five events and two state values a topic."""
    log = opened(folder)
    value = os.urandom(EVENT_BYTES // 2) + bytes(EVENT_BYTES // 2)

    def append() -> None:
        first = log.next_offset
        names = [f"topic-{first + each}" for each in range(batch // EVENTS_OF_A_CREATE)]
        entries = [Entry(value, name, f"request-{first}") for name in names for _ in range(EVENTS_OF_A_CREATE)]
        log.write(Commit(entries, {kind + name.encode(): value for name in names for kind in (b"t", b"q")}))
        log.flush()

    try:
        yield append
    finally:
        log.close()


def figure(work: str, make: Appends, batch: int, seconds: float, parent: Path) -> Figure:
    """Measures one kind of append; the note has the rate of the disk alone."""
    floor = measured(plain_file, batch, seconds, parent)
    before = time.process_time()
    took = measured(make, batch, seconds, parent)
    core_us = (time.process_time() - before) / (batch * len(took)) * 1e6
    disk = f"a plain file: median {1e3 * percentile(floor, 0.5):.2f} ms, {batch * len(floor) / sum(floor):,.0f}/s"
    note = f"median {1e3 * percentile(took, 0.5):.2f} ms, p99 {1e3 * percentile(took, 0.99):.2f} ms; {disk}"
    reach = "6,000 (eventsourcing on SQLite: 3,000)" if batch == 1 else ""
    return Figure(work, "events/s", batch * len(took) / sum(took), None, reach, note, core_us)


def run(seconds: float = 2.0, folder: Path = TEMPORARY) -> list[Figure]:
    """Measure every line for `seconds`, in temporary folders below `folder`, which selects the disk."""
    lines: list[tuple[str, Appends, int]] = [
        *((f"append, fsynced, {batch:,} at a time", appends, batch) for batch in BATCHES),
        (f"append, fsynced, {CREATES} creates in one commit", creates, CREATES * EVENTS_OF_A_CREATE),
    ]
    return [figure(*line, seconds, folder) for line in lines]


if __name__ == "__main__":
    command_line(run, __doc__)
