"""In-memory folders of workers and gateways: caches, which are never synced and need not survive power failures.

Opening and closing RocksDB would take a quarter of a simulation's time, so only some seeds use it (`StreamWorld`).
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from controller.stream.log import partition
from events.logs.log import LogLocked
from events.logs.rocksdb_log import RocksDbLog
from tests.support.memory_log import InMemoryLog

Kept = dict[Path, InMemoryLog]
"""Folder → its log."""


def copy_of(log: InMemoryLog) -> InMemoryLog:
    """Open a closed log again; other references to the closed log stay closed."""
    again = copy.copy(log)
    again._open = True
    return again


@contextmanager
def in_memory(kept: Kept) -> Iterator[None]:
    """In the block, partitions are opened in `kept`."""

    def opened(folder: Path, *, cluster_id: str, **_: object) -> InMemoryLog:
        before = kept.get(folder)
        if before is not None and before._open:
            raise LogLocked(str(folder), None)
        log = kept[folder] = InMemoryLog(cluster_id) if before is None else copy_of(before)
        return log

    with mock.patch.object(partition, "RocksDbLog", opened):
        yield


def kept_on_disk(folder: Path) -> list[bytes]:
    """The events in a RocksDB folder."""
    there = "cluster-1"
    log = RocksDbLog(folder, cluster_id=there, new_cluster_id=lambda: there)
    try:
        return [value for _, value in log.read()]
    finally:
        log.close()
