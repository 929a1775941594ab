"""Snapshots of a partition, beside its log, as `projections.store.snapshotting` takes them: questions about the past
begin at one, and not at the first event.

Those that are missing are not made anew: the log may have its older events in the archive alone. The first is taken at
once where there is none yet.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import structlog

from controller.serving.log_lines import SnapshotLines
from controller.stream.log.partition import PartitionState
from projections.queries.query import Query
from projections.store.snapshotting import Snapshotting


class PartitionSnapshots:
    """Takes the snapshots of one partition; all is called on the thread that writes it."""

    def __init__(self, partition: PartitionState, interval_events: int) -> None:
        """`interval_events` 0 takes none."""
        self._partition = partition
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="snapshot")
        self._taking = Snapshotting(
            partition.log,
            interval_events,
            self._run,
            Query(partition.log, lambda: partition.store).snapshot_pairs,
            SnapshotLines(structlog.get_logger("topicwright")),
        )
        self._taking.begin(anew=False)

    def reached(self) -> None:
        """The partition was committed further."""
        self._taking.reached(self._partition.store.durable_counts.topics)

    def close(self) -> None:
        """Let what is at work end, with nothing half done; the log may be closed then."""
        self._taking.close()
        self._thread.shutdown(wait=False)

    def _run(self, work: Callable[[], None]) -> None:
        self._thread.submit(work)
