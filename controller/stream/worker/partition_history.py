"""What the owner of a partition does for its history: snapshots, its archive, and bases for empty folders.

The worker that owns a partition archives it, in a place of its own under `log.archive.url`; who takes over goes on
where the archive is, as a service that is started anew does, and who was replaced is found out by its next look
(`events.logs.archive.writing`). What is archived and behind a snapshot leaves the worker's folder at once, but for the
newest events, from which copies of commands are known: to decide takes no older ones. Whenever something has left, the
next base is put beside the archive; so it holds the state, and some hundred thousand events at most. Snapshots are
copied there with it, for gateways.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import structlog

from controller.engine.background import Background
from controller.serving.archiving import Archiving, Keeping
from controller.settings.load import ServeSettings
from controller.stream.log.partition import PartitionState
from controller.stream.log.partition_snapshots import PartitionSnapshots
from controller.stream.log.recent_requests import RECENT_EVENTS
from events.logs.archive.base import Base, Pair, base_of, bases, put_base
from events.logs.archive.place import Place
from events.logs.archive.snapshots import put_snapshots
from projections.store.snapshotting import resting, too_many


class PartitionHistory:
    """Keeps the history of one partition for as long as it is owned."""

    def __init__(
        self,
        partition: PartitionState,
        place: Place,
        settings: ServeSettings,
        boot: str,
        where: str,
        clock_ms: Callable[[], int],
        fail: Callable[[BaseException], None],
        kept_events: int = RECENT_EVENTS,
    ) -> None:
        """`boot` is the process's own, `where` says to people which it is."""
        self._partition, self._place = partition, place
        self._lines = structlog.get_logger("topicwright")
        self._base_start: int | None = None
        """The first event in the newest base; None until it is known."""
        log = partition.log
        self._interval = settings.log_snapshot_interval_events
        self._snapshots = PartitionSnapshots(partition, self._interval)
        keeping = Keeping(ms=0, events=kept_events)
        self._archiving = Archiving(log, settings, boot, where, clock_ms, place, keeping, self._next_base)
        self._beside = Background(fail)

    def begin(self) -> None:
        """Go on where the archive is."""
        self._snapshots.reached()
        self._beside.begin(self._archiving.run())

    def learn(self) -> None:
        """The partition was decided further."""
        self._snapshots.reached()

    async def end(self) -> None:
        """The partition is not ours any more."""
        self._snapshots.close()
        await self._beside.stop()

    @property
    def trouble(self) -> str | None:
        """Why nothing is archived now; None when all is well."""
        return self._archiving.trouble

    def _next_base(self, rest: Callable[[], None]) -> Callable[[], None] | None:
        log = self._partition.log
        if not log.start_offset or log.start_offset == self._base_start:
            return None
        base = base_of(log, self._partition.topic_id, self._partition.kept.kafka_offset)
        pairs = log.frozen_pairs()
        return lambda: self._put(base, pairs, rest)

    def _put(self, base: Base, pairs: Iterator[Pair], rest: Callable[[], None]) -> None:
        """Put a base, unless there is one that holds as few events: who owned the partition before has put it."""
        with closing(pairs):  # type: ignore[type-var]
            newest = next(bases(self._place, base.cluster_id, base.topic_id), None)
            if newest is None or newest.start < base.start:
                size = put_base(self._place, base, resting(pairs, rest)).size
                put_snapshots(self._place, self._partition.log, lambda offsets: too_many(offsets, self._interval))
                self._lines.info("base put", partition=self._partition.partition, events=base.offset, bytes=size)
        self._base_start = base.start
