"""An in-memory event log whose disk can be slow or full, fail a write or a sync, and lose unsynced commits."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

from events.logs.log import Commit, LogClosed, LogDiskFull, LogWriteError
from tests.support.memory_log import InMemoryLog


class Disk:
    """The stored log, which outlives processes, and the faults of its disk.

    A `full` disk fails writes and recovery. `failing_*` are the probabilities that a write or a sync fails. `sync_s` is
    the range of a sync's duration. If `dark`, the log also rejects reads while it cannot recover.
    """

    def __init__(self, rng: random.Random, cluster_id: str = "simulated") -> None:
        self.rng = rng
        self.kept = InMemoryLog(cluster_id)
        self.full = False
        self.dark = False
        self.failing_writes = 0.0
        self.failing_syncs = 0.0
        self.sync_s = (0.0, 0.002)
        self.failures = 0

    def crash(self, *, power: bool) -> None:
        """The process that has the log open dies. After a `power` failure, an unsynced commit may be lost."""
        self.kept.drop_unflushed(self.rng.choice((0, 1)) if power else 1 << 30)


def _reader(name: str) -> Callable[..., Any]:
    """Returns a method that reads from the log and raises LogClosed while the log is dark."""

    def read(log: FaultyLog, *args: Any, **fields: Any) -> Any:
        if log._dark:
            raise LogClosed("closed until it has recovered")
        return getattr(log._log, name)(*args, **fields)

    return read


class FaultyLog:
    """One process's handle on the disk; `EventLog` documents each method."""

    path = Path("/nonexistent")
    cluster_id: Any = property(attrgetter("_log.cluster_id"))
    start_offset: Any = property(attrgetter("_log.start_offset"))
    next_offset: Any = property(attrgetter("_log.next_offset"))
    durable_offset: Any = property(attrgetter("_log.durable_offset"))
    read, read_many, runs = _reader("read"), _reader("read_many"), _reader("runs")
    shard_keys, get, scan = _reader("shard_keys"), _reader("get"), _reader("scan")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._log = disk.kept
        self._log.flush()  # everything found when the log is opened is durable
        self._failed = False
        self._dark = False

    def write(self, commit: Commit) -> int:
        self._check_writable()
        if self._disk.full:
            raise self._fail(LogDiskFull("no room left"))
        if self._disk.rng.random() < self._disk.failing_writes:
            raise self._fail(LogWriteError("the write failed"))
        return self._log.write(commit)

    def flush(self) -> int:
        self._check_writable()
        if self._disk.rng.random() < self._disk.failing_syncs:
            raise self._fail(LogWriteError("the sync failed"))
        return self._log.flush()

    def mark_durable(self) -> None:
        self._log.mark_durable()

    async def flushed(self) -> int:
        """Flush as if in a thread: the event loop runs meanwhile."""
        await asyncio.sleep(self._disk.rng.uniform(*self._disk.sync_s))
        end = self.flush()
        # The log has the new durable offset slightly before the event loop gets the thread's result.
        await asyncio.sleep(self._disk.rng.choice((0, 0.0002)))
        return end

    def recover(self) -> int:
        if self._disk.full:
            self._dark = self._disk.dark
            raise LogDiskFull("still no room left")
        self._log.drop_unflushed(self._disk.rng.choice((0, 1)))
        self._failed = self._dark = False
        return self._log.next_offset

    def close(self) -> None:
        if not self._failed:
            self._log.flush()

    def _fail(self, error: LogWriteError) -> LogWriteError:
        self._failed = True
        self._disk.failures += 1
        return error

    def _check_writable(self) -> None:
        if self._failed:
            raise LogWriteError("rejects writes until it has recovered")
