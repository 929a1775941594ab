"""A voter's own snapshots of what is committed (KIP-630), as Kafka's controllers take them: they bound its log.

One is made of the snapshot before and the batches since, in a thread beside the loop, once so many bytes were committed
since, or after so long, if anything was. Nothing is kept of it in memory in between. Only what is understood to the
last record is folded: otherwise all batches stay, and the voter goes on. What fails is tried again, ever later.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from controller.brokers.kraft.log.batches import BrokenBatch
from controller.brokers.kraft.log.image import MetadataImage, RecordMismatch, snapshot_batches
from controller.brokers.kraft.log.metadata_codec import MalformedRecord
from controller.brokers.kraft.quorum.files import QuorumFiles
from controller.brokers.kraft.quorum.raft.core import Quorum
from controller.brokers.kraft.quorum.raft.log import SnapshotId
from controller.brokers.kraft.quorum.segment import FilePart
from events.logs.log import LogError

logger = structlog.get_logger("topicwright.quorum")

LOOK_S: Final = 1.0
AGAIN_S: Final = 60.0
AGAIN_S_MAX: Final = 3600.0


class Unfinished(Exception):
    """A metadata transaction is open (KIP-868), or the process is to end: no snapshot now, and nothing is wrong."""


class Snapshotting:
    """Takes the snapshots of one voter; `every_bytes` of the log, about, lie between two, and no more than `every_s`
    where something was committed, 0 for any time. `clock` gives seconds and only goes forward.

    `applied` gives the offset below which the log is not needed any more, since all of that is durable elsewhere.
    """

    def __init__(
        self,
        quorum: Quorum,
        files: QuorumFiles,
        every_bytes: int,
        every_s: float,
        clock: Callable[[], float],
        applied: Callable[[], Awaitable[int]],
    ) -> None:
        self._quorum, self._files, self._applied = quorum, files, applied
        self._every_bytes, self._every_s, self._clock = every_bytes, every_s, clock
        self._taken_at = clock()
        self._ends = threading.Event()
        self._again_s = AGAIN_S
        self._why: str | None = None
        self.unfolded = False
        """Whether there is something in the log that this release cannot fold."""

    async def run(self) -> None:
        """Look once a second whether one is due, until cancelled; then a thread that was at it has ended."""
        while True:
            await asyncio.sleep(LOOK_S)
            if not self.is_due:
                continue
            if await self.take():
                self._again_s = AGAIN_S
                continue
            await asyncio.sleep(self._again_s)
            self._again_s = min(2 * self._again_s, AGAIN_S_MAX)

    @property
    def is_due(self) -> bool:
        """Whether enough was committed since the newest one, or anything and that one is old enough."""
        parts = self._files.since_snapshot(self._quorum.high_watermark)
        size = sum(each.stop - each.start for each in parts)
        is_late = 0 < self._every_s <= self._clock() - self._taken_at
        return size >= self._every_bytes or (is_late and size > 0)

    async def take(self) -> bool:
        """Take one of all that is committed. False where it could not be; a warning says once why."""
        files, end = self._files, self._quorum.high_watermark
        before = files.snapshot
        try:
            end = min(end, await self._applied())
            made = await self._beside((*files.newest_snapshot(), *files.since_snapshot(end)), end)
            if files.keep_snapshot(made):
                logger.info("metadata snapshot", end=made.end_offset, log_start=files.start)
        except Unfinished:
            return False
        except (RecordMismatch, MalformedRecord, BrokenBatch, LogError, OSError) as failure:
            if files.snapshot != before:
                return True  # the leader's came meanwhile, and the log began anew behind it
            self.unfolded = isinstance(failure, RecordMismatch | MalformedRecord)
            why = f"{type(failure).__name__}: {failure}"
            if why != self._why:
                logger.warning("no metadata snapshot: the log is kept whole, and votes go on", end=end, why=why)
            self._why = why
            return False
        self.unfolded, self._why = False, None
        self._taken_at = self._clock()
        return True

    async def _beside(self, parts: Sequence[FilePart], end: int) -> SnapshotId:
        work = asyncio.get_running_loop().run_in_executor(None, self._make, parts, end)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            self._ends.set()
            await asyncio.gather(work, return_exceptions=True)
            raise

    def _make(self, parts: Sequence[FilePart], end: int) -> SnapshotId:
        """In a thread."""
        image, epoch, at = MetadataImage(), 0, 0
        for part in parts:
            for batch in part.batches():
                if self._ends.is_set():
                    raise Unfinished
                image.fold((batch,))
                epoch, at = batch.leader_epoch, batch.last_offset + 1
        if at != end:
            raise BrokenBatch(f"the batches end at offset {at}, not at {end}")
        if image.unknown:
            shown = image.unknown[0].value[:8].hex(" ")
            raise RecordMismatch(f"{len(image.unknown)} records of a newer release, the first begins with {shown}")
        if image.in_transaction:
            raise Unfinished
        snapshot = SnapshotId(end, epoch)
        self._files.write_snapshot(snapshot, snapshot_batches(image, epoch))
        return snapshot
