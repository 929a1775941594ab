"""Takes snapshots of a voter's committed metadata log (KIP-630), which bound the size of the log, as in Kafka.

A thread builds a snapshot from the previous one and the batches after it, when enough bytes were committed or the
newest snapshot is old enough. Nothing stays in memory between snapshots. If a record is unsupported, no snapshot is
taken: all batches are retained, and the voter continues. A failed attempt is repeated with a growing back-off.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from controller.quorum.files import QuorumFiles
from controller.quorum.log.batches import BrokenBatch
from controller.quorum.log.image import MetadataImage, RecordMismatch, snapshot_batches
from controller.quorum.log.metadata_codec import MalformedRecord
from controller.quorum.log_files import FilePart, batches_of
from controller.quorum.raft.consensus import Consensus
from controller.quorum.raft.log import SnapshotId
from events.logs.log import LogError

logger = structlog.get_logger("topicwright.quorum")

POLL_S: Final = 1.0
RETRY_S: Final = 60.0
RETRY_S_MAX: Final = 3600.0


class NotNow(Exception):
    """No snapshot is possible now: a metadata transaction is open (KIP-868), or the process stops."""


class Snapshotting:
    """Takes the snapshots of one voter: after about `every_bytes` of the log, or `every_s` seconds if anything was
    committed (0: no time limit). `clock` returns monotonic seconds.

    `applied` returns the offset below which all records are durable elsewhere, so that the log is not needed.
    """

    def __init__(
        self,
        quorum: Consensus,
        files: QuorumFiles,
        every_bytes: int,
        every_s: float,
        clock: Callable[[], float],
        applied: Callable[[], Awaitable[int]],
    ) -> None:
        self._quorum, self._files, self._applied = quorum, files, applied
        self._every_bytes, self._every_s, self._clock = every_bytes, every_s, clock
        self._taken_at = clock()
        self._stops = threading.Event()
        self._reason: str | None = None
        self.has_unsupported_records = False
        """True if the log has records that this release does not support."""

    async def run(self) -> None:
        """Check once a second if a snapshot is due, until cancelled; then wait for a thread that still builds one."""
        retry_s = RETRY_S
        while True:
            await asyncio.sleep(POLL_S)
            if not self.is_due:
                continue
            if await self.take():
                retry_s = RETRY_S
            else:
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, RETRY_S_MAX)

    @property
    def is_due(self) -> bool:
        """True if enough was committed since the newest snapshot, or the snapshot is old and anything was."""
        parts = self._files.since_snapshot(self._quorum.high_watermark)
        size = sum(each.stop - each.start for each in parts)
        is_late = 0 < self._every_s <= self._clock() - self._taken_at
        return size >= self._every_bytes or (is_late and size > 0)

    async def take(self) -> bool:
        """Take a snapshot of all committed records. Returns False if that failed; the reason is logged once."""
        files, end = self._files, self._quorum.high_watermark
        before = files.snapshot
        try:
            end = min(end, await self._applied())
            made = await self._in_thread((*files.newest_snapshot(), *files.since_snapshot(end)), end)
            if files.keep_snapshot(made):
                logger.info("metadata snapshot", end=made.end_offset, log_start=files.start)
        except NotNow:
            return False
        except (RecordMismatch, MalformedRecord, BrokenBatch, LogError, OSError) as failure:
            if files.snapshot != before:
                return True  # a snapshot of the leader replaced the log meanwhile
            self.has_unsupported_records = isinstance(failure, RecordMismatch | MalformedRecord)
            reason = f"{type(failure).__name__}: {failure}"
            if reason != self._reason:
                logger.warning("no metadata snapshot: the log is retained in full", end=end, why=reason)
            self._reason = reason
            return False
        self.has_unsupported_records, self._reason = False, None
        self._taken_at = self._clock()
        return True

    async def _in_thread(self, parts: Sequence[FilePart], end: int) -> SnapshotId:
        thread = asyncio.get_running_loop().run_in_executor(None, self._make, parts, end)
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            self._stops.set()
            await asyncio.gather(thread, return_exceptions=True)
            raise

    def _make(self, parts: Sequence[FilePart], end: int) -> SnapshotId:
        image, epoch, at = MetadataImage(), 0, 0
        for batch in batches_of(parts):
            if self._stops.is_set():
                raise NotNow
            image.fold((batch,))
            epoch, at = batch.leader_epoch, batch.last_offset + 1
        if at != end:
            raise BrokenBatch(f"the batches end at offset {at}, not at {end}")
        if image.unknown:
            first = image.unknown[0].value[:8].hex(" ")
            raise RecordMismatch(f"{len(image.unknown)} records of a newer release, the first begins with {first}")
        if image.transactions.begun_at is not None:
            raise NotNow
        snapshot = SnapshotId(end, epoch)
        self._files.write_snapshot(snapshot, snapshot_batches(image, epoch))
        return snapshot
