"""Commits through the quorum, for the engine. The metadata log is the write-ahead log of the event log.

A leader appends the batches of a commit (`projector`) and waits until the high watermark passes them. Only then does it
write the events and state to the event log, in one write without a flush: after a power failure the event log is
restored from the batches. A follower writes the same events from committed batches (`applier`). Both store the applied
metadata log offset with the events, so that each batch is applied exactly once across crashes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import structlog

from controller.brokers.kraft.applier import BatchApplier
from controller.brokers.kraft.catch_up import EventPages
from controller.brokers.kraft.projector import MARK, MetadataProjector
from controller.brokers.port import LeadLost
from controller.kafka.messages import records as kinds
from controller.machine.state import QuorumLeader as Known
from controller.quorum.features import RegisteredControllers
from controller.quorum.files import QuorumFiles
from controller.quorum.log.metadata_codec import encode_record
from controller.quorum.node import QuorumNode
from controller.quorum.raft.consensus import Consensus
from controller.quorum.raft.effects import NotLeader, Role, RoleChanged
from controller.quorum.raft.log import NOBODY, SnapshotId
from controller.store.recorder import Recorder
from events.catalog import Recorded, SettingsChanged
from events.logs.log import Commit, EventLog, LogDiskFull, LogError

FLUSHED_EVERY_S: Final = 0.2

logger = structlog.get_logger("topicwright.quorum")


def wants_leadership(known: Known | None, epoch: int, snapshot: SnapshotId | None, priority: int) -> bool:
    """True if a voter of this leader priority should take over from the leader of `epoch`. `known` is the newest epoch
    whose leader priority is known. If `epoch` began below the snapshot, the priority of its leader is unknown. Then the
    voter takes over, and a voter with a higher priority takes leadership back."""
    if known is not None and known.leader_epoch == epoch:
        return known.priority < priority
    return snapshot is not None and snapshot.epoch == epoch


class QuorumReplication(BatchApplier):
    """The replicated log of one process. `first` becomes the first event of an empty event log."""

    _led_epoch: int | None = None
    """The epoch in which this node leads and has applied everything committed before."""

    def __init__(
        self, node: QuorumNode, files: QuorumFiles, log: EventLog, projector: MetadataProjector, first: SettingsChanged
    ) -> None:
        super().__init__(node, files, log, projector, first)
        self.on_lost: Callable[[], None] = lambda: None
        """Called when this process loses leadership."""
        self.pages = EventPages(log, files)
        """Serves events to voters whose event log lacks them."""
        self.registered = RegisteredControllers(files)
        projector.log_end = lambda: files.end
        node.quorum.wants_leadership = False
        self._follow_if_unsupported()

    @property
    def quorum(self) -> Consensus:
        return self._node.quorum

    @property
    def leads(self) -> bool:
        """True if this process may decide: it leads and has applied everything committed before."""
        return self._led_epoch == self.quorum.epoch and self._is_leader

    @property
    def leader(self) -> str:
        """A sentence for clients that names the process that decides instead of this one."""
        quorum = self.quorum
        host, port = quorum.leader_address or ("", 0)
        if quorum.leader_id == NOBODY or not host:
            return "The quorum has no leader now: try again."
        if quorum.leader_id == quorum.me.id:
            return "This controller becomes the leader: try again."
        return f"Another controller is the leader: node {quorum.leader_id} at {host}:{port}."

    @property
    def _is_leader(self) -> bool:
        leader = self.quorum.leading
        return leader is not None and not leader.is_leaving and not self._node.ended.done()

    def on_role_changed(self, role: RoleChanged) -> None:
        self.quorum.wants_leadership = False
        if self._led_epoch is not None and (role.role is not Role.LEADER or role.epoch != self._led_epoch):
            self._led_epoch = None
            self.on_lost()

    def reload(self) -> None:
        self._led_epoch = None
        super().reload()
        if not self.quorum.can_lead and not self._projector.unsupported and not self.tree_heads.is_minority:
            self._node.set_can_lead(True)

    async def flush_periodically(self, flush: Callable[[], Awaitable[object]]) -> None:
        """Flush new events soon, until cancelled: other processes read the data folder."""
        flushed = 0
        while True:
            await asyncio.sleep(FLUSHED_EVERY_S)
            if self._log.next_offset > flushed:
                flushed = self._log.next_offset
                with suppress(LogError):  # the next write fails too, and starts the recovery
                    await flush()

    def record_applied(self) -> int:
        """Record the applied metadata log offset in the event log, even without new events. Returns the offset. Raises
        LogError."""
        end = self.applied
        if end > self._projector.mark.applied and self.transactions.begun_at is None:
            self.write(Commit(own={MARK: self._projector.record_applied(end)}))
        return end

    async def commit(self, commit: Commit) -> None:
        """Replicate a commit, then write it to the event log. Raises LeadLost and LogError. If the disk is full,
        another voter must lead; without another voter, raises LogDiskFull."""
        batches = self._projector.batches(self._log.next_offset, [entry.value for entry in commit.entries])
        for_observers = any(len(records) > 1 for records in batches)  # more than the embedded events
        if not self.leads:
            raise LeadLost
        last = -1
        try:
            for records in batches:
                last = self._node.append(records, for_observers=for_observers)
            await self._node.committed(last)
        except (NotLeader, OSError) as failure:  # after any other disk error the node has ended and logged why
            self._led_epoch = None
            if self.quorum.full is not None and not self.quorum.others:
                raise LogDiskFull(self.quorum.full) from failure
            raise LeadLost from failure
        with self._resign_on_log_error():
            self.write(commit)
        self.applied = last + 1

    @contextmanager
    def _resign_on_log_error(self) -> Iterator[None]:
        """After a LogError, let another voter lead: a node that cannot write the event log cannot decide."""
        try:
            yield
        except LogError:
            if self.quorum.others:
                self._node.set_can_lead(False)
            raise

    async def follow(self, recorder: Recorder, stopping: asyncio.Event) -> list[Recorded] | None:
        """Apply the next committed events. Returns None when this node `leads` or `stopping` is set. Raises LogError,
        BrokenBatch, RecordMismatch."""
        while not stopping.is_set():
            if self.applied < self.quorum.high_watermark:
                with self._resign_on_log_error():
                    records = await self.apply_next(recorder, self.quorum.high_watermark)
                self._follow_if_unsupported()
                await asyncio.sleep(0)
                if records:
                    return records
                continue
            known, core = recorder.state.cluster.quorum, self.quorum
            core.wants_leadership = wants_leadership(known, core.epoch, self._files.snapshot, core.options.priority)
            if self._may_lead():
                self._end_transaction()
                self._led_epoch = self.quorum.epoch
                return None
            await self._wait_for_change(stopping)
        return None

    def _follow_if_unsupported(self) -> None:
        """Stop leading if the metadata log has an unsupported record: this node then only follows and votes."""
        why = self._projector.unsupported
        if why and self.quorum.can_lead:
            logger.error("this node follows and votes, but will not lead: unsupported records", why=why)
            self._node.set_can_lead(False)

    def _may_lead(self) -> bool:
        """True if this node leads and its whole log is committed, so that no part of a failed commit is in flight."""
        leader = self.quorum.leading
        is_all = self.quorum.high_watermark >= self._files.end
        return leader is not None and self._is_leader and leader.watermark >= 0 and is_all

    def _end_transaction(self) -> None:
        """Abort a transaction that the previous leader left open (KIP-868)."""
        if self.transactions.begun_at is not None:
            reason = "another controller leads"
            try:
                self._node.append([(None, encode_record(kinds.AbortTransactionRecord(reason=reason)))])
            except OSError as failure:
                raise LogDiskFull(str(failure)) from failure
            self.transactions.abort()

    async def _wait_for_change(self, stopping: asyncio.Event) -> None:
        changed = self._node.until(lambda quorum: self.applied < quorum.high_watermark or self._may_lead())
        waiting = [asyncio.ensure_future(each) for each in (stopping.wait(), changed)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
