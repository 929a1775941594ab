"""The folders of workers and gateways, in memory: a cache is never synced, and says nothing of power cuts.

Opening and closing RocksDB would take a quarter of a simulated life. Some lives have it all the same: `StreamWorld`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from unittest import mock

from controller.stream.log import partition
from events.catalog import EVENT_VERSION
from events.logs.log import LogLocked
from events.logs.memory_log import InMemoryLog

Kept = dict[Path, InMemoryLog]
"""What each folder holds, by its path."""

_open_on_disk: Final = partition._CachedLog


def copy_of(log: InMemoryLog) -> InMemoryLog:
    """A log that was closed, opened again; that one stays closed, whoever still has it."""
    again = copy.copy(log)
    again._open = True
    return again


@contextmanager
def in_memory(kept: Kept) -> Iterator[None]:
    """Partitions are opened there."""

    def opened(folder: Path, *, cluster_id: str, **_: object) -> InMemoryLog:
        before = kept.get(folder)
        if before is not None and before._open:
            raise LogLocked(str(folder), None)
        log = kept[folder] = InMemoryLog(cluster_id) if before is None else copy_of(before)
        return log

    with mock.patch.object(partition, "_CachedLog", opened):
        yield


def kept_on_disk(folder: Path) -> list[bytes]:
    """The events in a folder of RocksDB."""
    there = "cluster-1"
    log = _open_on_disk(folder, cluster_id=there, event_version=EVENT_VERSION, new_cluster_id=lambda: there)
    try:
        return [value for _, value in log.read()]
    finally:
        log.close()
