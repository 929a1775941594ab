"""Snapshots of a partition, beside its log, as `projections.store.snapshotting` takes them: questions about the past
begin at one, and not at the first event.

Those that are missing are not made anew: the log may have its older events in the archive alone. They are copied from
there, beside all else, where who archives has put them. The first is taken at once where there is none yet.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import structlog

from controller.serving.log_lines import SnapshotLines
from controller.stream.log.partition import PartitionState
from events.logs.archive.place import Place
from events.logs.archive.snapshots import fetch_snapshots
from events.logs.log import LogClosed, LogError
from projections.queries.query import Query
from projections.store.snapshotting import Snapshotting

REST_S = 0.01


class PartitionSnapshots:
    """Takes the snapshots of one partition; all is called on the thread that writes it."""

    def __init__(self, partition: PartitionState, interval_events: int, archive: Place | None = None) -> None:
        """`interval_events` 0 takes none, and copies none from `archive`."""
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
        """Let what is at work end, with nothing half done; the log may be closed then."""
        self._closed.set()
        self._taking.close()
        self._thread.shutdown(wait=False)

    def _copy(self, archive: Place) -> None:
        """In the other thread: nothing depends on it."""
        try:
            copied = fetch_snapshots(archive, self._partition.log, self._go_on)
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
