"""Snapshots of a partition, as `projections.store.snapshotting` takes them, for queries about the past.

Missing snapshots are not recomputed, because older events may be in the archive only. They are copied from the archive,
where the archiving worker stores them. If there is no snapshot at all, the first one is taken at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import structlog

from controller.serving.log_lines import SnapshotLines
from controller.stream.log.partition import PartitionState
from events.logs.archive.base import download_snapshots
from events.logs.archive.store import ArchiveStore
from events.logs.log import LogClosed, LogError
from projections.queries.query import Query
from projections.store.snapshotting import Snapshotting

REST_S = 0.01


class PartitionSnapshots:
    """Takes the snapshots of one partition; called on its writing thread."""

    def __init__(self, partition: PartitionState, interval_events: int, archive: ArchiveStore | None = None) -> None:
        """With `interval_events` 0 it takes none, and copies none from `archive`."""
        self._partition = partition
        self._lines = structlog.get_logger("topicwright")
        self._closed = threading.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="snapshot")
        self._taking = Snapshotting(
            partition.log,
            interval_events,
            self._run,
            Query(partition.log, lambda: partition.store).snapshot_pairs,
            SnapshotLines(self._lines),
        )
        self._taking.begin(rebuild=False)
        if archive is not None and interval_events:
            self._run(lambda: self._copy(archive))

    def reached(self) -> None:
        """The partition was committed further."""
        self._taking.reached(self._partition.store.durable_counts.topics)

    def close(self) -> None:
        """Wait for the current work; the log may be closed then."""
        self._closed.set()
        self._taking.close()
        self._thread.shutdown(wait=False)

    def _copy(self, archive: ArchiveStore) -> None:
        """Runs in the other thread: nothing depends on it."""
        try:
            copied = download_snapshots(archive, self._partition.log, self._go_on)
        except (LogError, OSError) as error:
            if not self._closed.is_set():
                self._lines.warning("snapshots not copied", why=str(error))
        else:
            self._lines.info("snapshots copied", partition=self._partition.partition, count=copied)

    def _go_on(self) -> None:
        if self._closed.wait(REST_S):
            raise LogClosed("the partition is closed")

    def _run(self, work: Callable[[], None]) -> None:
        self._thread.submit(work)
