"""Commits through the quorum: its log is the write-ahead log, and the event log is what of it is committed.

Who leads appends the batches of a commit (see `log.projector`) and waits for the high watermark to pass them; only then
are its events and its state written to the event log, in one write that needs no flush of its own: after a power cut it
is made again from the batches. Who follows writes the same events, from the batches, as they are committed. Both keep
with them up to where the metadata log is in the event log, so each batch is taken once, over any crash.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import structlog

from controller.brokers.kraft.log.batches import RecordBatch, decode_batches
from controller.brokers.kraft.log.carried import carried
from controller.brokers.kraft.log.projector import MetadataProjector
from controller.brokers.kraft.quorum.files import QuorumFiles
from controller.brokers.kraft.quorum.node import QuorumNode
from controller.brokers.kraft.quorum.raft.core import Quorum
from controller.brokers.kraft.quorum.raft.effects import NotLeader, Role, RoleChanged
from controller.brokers.port import LeadLost
from events.catalog import Recorded
from events.codec import decode_event
from events.logs.log import Commit, EventLog, LogError
from projections.store.recorder import Recorder

READ_BYTES: Final = 1 << 20
FLUSHED_EVERY_S: Final = 0.2

logger = structlog.get_logger("topicwright.quorum")


class QuorumReplication:
    """The `Replication` of one event log. It takes `on_role` of the node; `on_role` here is for others."""

    def __init__(self, node: QuorumNode, files: QuorumFiles, log: EventLog, projector: MetadataProjector) -> None:
        self.on_lost = _nothing
        self.applied = 0
        """All of the metadata log below this offset is in the event log."""
        self._node, self._files, self._log, self._projector = node, files, log, projector
        self._led_epoch: int | None = None
        """The epoch in which this node leads, once it has all that was committed before."""
        self._read: deque[RecordBatch] = deque()
        projector.log_end = lambda: files.end

    @property
    def quorum(self) -> Quorum:
        """The consensus."""
        return self._node.quorum

    @property
    def leads(self) -> bool:
        """Whether this process may decide."""
        return self._led_epoch == self.quorum.epoch and self._is_leader

    @property
    def _is_leader(self) -> bool:
        leader = self.quorum.leading
        return leader is not None and not leader.is_leaving

    def note_role(self, role: RoleChanged) -> None:
        """Role, epoch or leader changed."""
        if self._led_epoch is not None and (role.role is not Role.LEADER or role.epoch != self._led_epoch):
            self._led_epoch = None
            self.on_lost()

    def reload(self) -> None:
        """Go on from where the event log is."""
        self._led_epoch = None
        self._read.clear()
        self.applied = self._projector.mark.applied

    async def keep_flushed(self, flush: Callable[[], Awaitable[object]]) -> None:
        """Make what is written durable soon, until cancelled: who reads the folder from outside sees what is."""
        flushed = 0
        while True:
            await asyncio.sleep(FLUSHED_EVERY_S)
            if self._log.next_offset > flushed:
                flushed = self._log.next_offset
                with suppress(LogError):  # the next write fails, and is what is recovered from
                    await flush()

    async def commit(self, commit: Commit) -> None:
        """Have a commit replicated, then written. Raises LeadLost, LogError."""
        batches = self._projector.batches(self._log.next_offset, [entry.value for entry in commit.entries])
        if not self.leads:
            raise LeadLost
        last = -1
        try:
            for records in batches:
                last = self._node.append(records)
            await self._node.committed(last)
        except NotLeader:
            self._led_epoch = None
            raise LeadLost from None
        self._write(commit, last + 1)

    def _write(self, commit: Commit, end: int) -> None:
        self._log.write(commit)
        self._log.vouch()
        self._projector.became_durable()
        self.applied = end

    # --- what others commit

    async def follow(self, recorder: Recorder, stopping: asyncio.Event) -> list[Recorded] | None:
        """Take the next of what is committed, as soon as there is any; None when this node `leads`, or `stopping` is
        set. Raises LogError, BrokenBatch."""
        while not stopping.is_set():
            if self.applied < self.quorum.high_watermark:
                records = self._take(recorder, self._next())
                await asyncio.sleep(0)
                if records:
                    return records
            elif self._may_lead(self.quorum):
                self._led_epoch = self.quorum.epoch
                return None
            else:
                await self._something_new(stopping)
        return None

    def _may_lead(self, quorum: Quorum) -> bool:
        leader = quorum.leading
        return leader is not None and self._is_leader and leader.watermark >= 0

    async def _something_new(self, stopping: asyncio.Event) -> None:
        def is_there(quorum: Quorum) -> bool:
            return self.applied < quorum.high_watermark or self._may_lead(quorum)

        waiting = [asyncio.ensure_future(each) for each in (stopping.wait(), self._node.until(is_there))]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()

    def _next(self) -> RecordBatch:
        if not self._read:
            data = self._files.read(self.applied, READ_BYTES)
            end = self.quorum.high_watermark
            self._read.extend(each for each in decode_batches(data) if self.applied <= each.last_offset < end)
        return self._read.popleft()

    def _take(self, recorder: Recorder, batch: RecordBatch) -> list[Recorded]:
        """Write what a committed batch says."""
        ours = None if batch.is_control else carried(batch.records[0][1])
        if ours is None or not ours.values:
            self.applied = batch.last_offset + 1
            return []
        records = [decode_event(offset, value) for offset, value in enumerate(ours.values, ours.first)]
        self._projector.begin_at(batch.base_offset)
        for record, value in zip(records, ours.values, strict=True):
            recorder.take(record, value)
        commit = recorder.take_commit()
        (projected,) = self._projector.batches(ours.first, ours.values)
        if projected != list(batch.records):
            logger.error("a batch is not what its events mean here", offset=batch.base_offset)
        self._write(commit, batch.last_offset + 1)
        return records


def _nothing() -> None:
    return None
