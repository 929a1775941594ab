"""What of the quorum's log is committed, as commits of the event log: how a node follows, and catches up at a start.

A batch of a Topicwright that led carries its events: they are taken as they are, and what they mean for brokers must
come to the very records of the batch. A batch of Kafka's own controller has none: its records are discovered, as events
(`discovering`). Where the log begins behind what is known, because this node was away for longer than it is kept,
another voter of Topicwright may have the events (`missed`); whatever the snapshot that it begins with says besides is
discovered as one difference.

Nothing that another controller wrote stops a node: records that no event can say, and events that do not fit, are
kept and named by `unfoldable`. A node that has met such a thing follows and votes, but must not lead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain
from typing import Final

import structlog
from msgspec.structs import replace

from controller.brokers.kraft.discovering.agreeing import differs
from controller.brokers.kraft.discovering.batch import discovering
from controller.brokers.kraft.discovering.reading import Discovered
from controller.brokers.kraft.discovering.snapshot import discovered_snapshot, wire_in
from controller.brokers.kraft.discovering.transactions import Transactions, numbered
from controller.brokers.kraft.log import metadata_records as kinds
from controller.brokers.kraft.log.batches import LEADER_CHANGE, RecordBatch, control_type, decode_batches
from controller.brokers.kraft.log.carried import Carried, carried
from controller.brokers.kraft.log.image import MetadataImage
from controller.brokers.kraft.log.metadata_codec import decode_control, decode_record
from controller.brokers.kraft.log.projector import MetadataProjector
from controller.brokers.kraft.missed import Page
from controller.brokers.kraft.quorum.files import QuorumFiles
from controller.brokers.kraft.quorum.segment import FilePart
from controller.kafka.messages import ZERO_UUID
from controller.machine.state import Quorum
from events.catalog import Cause, Event, HistorySkipped, QuorumEpochBegun, Recorded, SettingsChanged
from events.codec import decode_event
from events.external_decision import FOLLOW, ExternalDecision, skipped_snapshot
from events.logs.log import Commit, EventLog
from events.names import RequestId
from projections.store.recorder import Recorder
from projections.store.store import topic_slices

READ_BYTES: Final = 1 << 20
_OF_CONTROLLERS: Final = (kinds.RegisterControllerRecord, kinds.UnregisterControllerRecord)
UNFIT_CHARACTERS_MAX: Final = 300
KAFKAS: Final = -1
"""The priority of Kafka's own controllers."""

logger = structlog.get_logger("topicwright.quorum")


class Following:
    """Takes the batches of one log in order. `first` is the event that a log begins with."""

    def __init__(self, files: QuorumFiles, log: EventLog, projector: MetadataProjector, first: SettingsChanged) -> None:
        self.applied = 0
        """All of the metadata log below this offset is in the event log, or held back (`transactions`)."""
        self._files, self._log, self._projector, self._first = files, log, projector, first
        self.missed: Callable[[int], Awaitable[Page | None]] = _nobody
        """The next events of the metadata log below an offset, of whoever has them."""
        self.on_root: Callable[[int, int, bytes], None] = lambda *_: None
        """Called with who leads, a number of events that both have, and its root over them."""
        self.on_unregistered: Callable[[int], None] = lambda _: None
        """Called with a controller whose registration was removed."""
        self.reload()

    def reload(self) -> None:
        """Go on from where the event log is."""
        self.applied = self._projector.mark.applied
        self.transactions = Transactions()
        self._from = self.applied
        self._read: deque[RecordBatch] = deque()
        self._apart = 0
        """How far the offsets of events at who led are from those here; 0 where nothing was missed."""

    @property
    def unfoldable(self) -> str:
        """What of the metadata log no event says; empty where all is said."""
        return self._projector.unfoldable

    async def take(self, recorder: Recorder, committed: int) -> list[Recorded]:
        """Write the next of what is committed, below that offset: a batch, or some of a snapshot. The events are empty
        where nothing was decided with it. Raises LogError, BrokenBatch, CannotFold."""
        if self.applied < self._files.start:
            return await self._take_snapshot(recorder)
        batch = self._next(committed)
        ours = None if batch.is_control else carried(batch.records[0][1])
        records = self._take_ours(recorder, batch, ours) if ours is not None else None
        if records is None:
            records = await self._take_anothers(recorder, batch)
        self.applied = batch.last_offset + 1
        return records

    def _next(self, committed: int) -> RecordBatch:
        if not self._read:
            data = self._files.read(self.applied, READ_BYTES)
            self._read.extend(
                each
                for each in decode_batches(data)
                if self.applied <= each.last_offset and each.base_offset < committed
            )
        return self._read.popleft()

    def write(self, commit: Commit) -> None:
        """Write what is committed in the quorum. Raises LogError."""
        self._log.write(commit)
        self._log.mark_durable()
        self._projector.became_durable()

    # --- of a Topicwright

    def _take_ours(self, recorder: Recorder, batch: RecordBatch, ours: Carried) -> list[Recorded] | None:
        """None where the events are none, or do not fit the state: then nothing is taken."""
        if not ours.values:
            return []
        here = self._log.next_offset
        if ours.first - here != self._apart:
            self._apart = ours.first - here
            logger.warning("events have other offsets here", metadata=batch.base_offset, there=ours.first, here=here)
        if ours.root and ours.first == here:
            self.on_root(self._leader_of(None, batch.leader_epoch), here, ours.root)
        self._projector.begin_at(batch.base_offset)
        try:
            records = [decode_event(offset, value) for offset, value in enumerate(ours.values, here)]
            recorder.take_all(records, ours.values)
        except Exception as error:  # whatever a leader wrote, this node must start again
            why = f"the events of the batch at offset {batch.base_offset} do not fit: {error}"[:UNFIT_CHARACTERS_MAX]
            logger.error("events of another voter do not fit: its records are taken", why=why)
            self._projector.note_unfoldable(why)
            self._projector.end_discovered()
            return None
        if self._projector.values != [value for _, value in batch.records[1:]]:
            theirs = [record for _, record in numbered(batch)]
            different = differs(map(decode_record, self._projector.values), theirs) or "written otherwise"
            logger.error(
                "a batch is not what its events mean to this release", metadata=batch.base_offset, why=different
            )
            self._projector.note_unfoldable(different)
        commit = recorder.take_commit()
        self._projector.batches(ours.first, ours.values)
        self.write(commit)
        return records

    # --- of another controller

    async def _take_anothers(self, recorder: Recorder, batch: RecordBatch) -> list[Recorded]:
        if batch.is_control:
            return []
        records = [(offset, record) for offset, record in numbered(batch) if offset >= self._from]
        complete, epoch, state = self.transactions.complete(records), batch.leader_epoch, recorder.state
        quorum, store = state.cluster.quorum, recorder.store
        for _, record in complete:
            if isinstance(record, kinds.UnregisterControllerRecord):
                self.on_unregistered(record.controller_id)
        if all(isinstance(record, _OF_CONTROLLERS) for _, record in complete):
            return []  # whoever leads writes these down, a Topicwright too
        begins = quorum is None or quorum.leader_epoch < epoch
        if not begins and all(isinstance(record, kinds.NoOpRecord) for _, record in complete):
            return []
        leader_id = self._leader_of(quorum, epoch)
        begun = [self._epoch_begun(quorum, epoch, leader_id)] if begins else []
        at_ms = max(batch.timestamp_ms, recorder.last_ms)
        request_id = ExternalDecision(leader_id, epoch, complete[0][0]).request_id
        slices = discovering(
            state,
            store.durable_name_of,
            self._projector.wire,
            complete,
            at_ms,
            request_id,
            lambda: chain.from_iterable(topic_slices(lambda: store)),
        )
        end = batch.last_offset + 1 if self.transactions.begun_at is None else self.transactions.begun_at
        taken = self._record(recorder, at_ms, request_id, begun, end)
        for each in slices:
            taken += self._record(recorder, at_ms, request_id, each.events, end, each)
            await asyncio.sleep(0)
        self._commit_discovered(recorder, taken)
        return taken

    def _record(
        self,
        recorder: Recorder,
        at_ms: int,
        request_id: RequestId,
        events: Sequence[Event],
        end: int,
        found: Discovered | None = None,
    ) -> list[Recorded]:
        """Bring the state past events that were discovered; with them all below `end` is known."""
        if found is not None:
            self._projector.take_wire(found.wire)
            if found.unfoldable is not None:
                logger.error("this release cannot say what was decided: it will not lead", what=found.unfoldable)
        self._projector.begin_discovered(end, None if found is None else found.unfoldable)
        begin = [self._first] if events and self._log.next_offset == 0 and not recorder.state.cluster.release else []
        return recorder.record(at_ms, Cause(FOLLOW, request_id), [*begin, *events], indexed=False)

    def _commit_discovered(self, recorder: Recorder, taken: Sequence[Recorded]) -> None:
        if taken:
            self.write(recorder.take_commit())
        self._projector.end_discovered()

    def _epoch_begun(self, quorum: Quorum | None, epoch: int, leader_id: int) -> QuorumEpochBegun:
        kraft_version = 0 if quorum is None else quorum.kraft_version
        return QuorumEpochBegun(epoch, leader_id, kraft_version, "", 0, ZERO_UUID, KAFKAS)

    def _leader_of(self, quorum: Quorum | None, epoch: int) -> int:
        """Who leads in an epoch: as the events say, which all voters share, else by its beginning in the log; node 0
        where that is not there any more."""
        if quorum is not None and quorum.leader_epoch == epoch:
            return quorum.node_id
        begun = self._files.beginning(epoch)
        for key, value in begun.records if begun is not None else ():
            if control_type(key) == LEADER_CHANGE:
                return decode_control(kinds.LeaderChangeMessage, value).leader_id
        return 0

    # --- a snapshot

    async def _take_snapshot(self, recorder: Recorder) -> list[Recorded]:
        """The events that were missed, a page at a time; then all in which the snapshot that the log begins with
        differs from what is known. What is written before a crash is not different any more."""
        snapshot = self._files.snapshot
        assert snapshot is not None, "a log that begins later begins with a snapshot"
        page = await self.missed(snapshot.end_offset)
        if page is not None and page.values:
            return self._take_page(recorder, page)
        image = await asyncio.get_running_loop().run_in_executor(None, _image_of, self._files.newest_snapshot())
        if page is not None:
            wire = self._projector.wire
            self._projector.take_wire(wire.changes_to(wire_in(image, recorder.state.cluster, wire)))
        at_ms = max(image.timestamp_ms, recorder.last_ms)
        skipped = HistorySkipped(
            self.applied, snapshot.end_offset, snapshot.epoch, "away for longer than the log is kept"
        )
        request_id, store, slices = skipped_snapshot(skipped).request_id, recorder.store, []
        for each in discovered_snapshot(
            recorder.state,
            chain.from_iterable(topic_slices(lambda: store)),
            self._projector.wire,
            image,
            at_ms,
            skipped,
        ):
            slices.append(each)
            await asyncio.sleep(0)
        if page is not None and slices[-1].unfoldable is None and sum(len(each.events) for each in slices) == 1:
            slices[0] = replace(slices[0], events=())  # nothing is skipped
        taken: list[Recorded] = []
        for number, each in enumerate(slices, 1):
            is_last = number == len(slices)
            end = snapshot.end_offset if is_last else self.applied
            records = self._record(recorder, at_ms, request_id, each.events, end, each)
            taken += records
            self._commit_discovered(recorder, records)
            store.became_durable(recorder.state)
            await asyncio.sleep(0)
        if not taken:
            self._projector.begin_discovered(snapshot.end_offset, None)
            self._log.note(self._projector.changes())
            self._projector.became_durable()
            self._projector.end_discovered()
        self.applied = self._from = snapshot.end_offset
        self._read.clear()
        return taken

    def _take_page(self, recorder: Recorder, page: Page) -> list[Recorded]:
        """Events that another voter has: what they mean for brokers is in the snapshot."""
        records = [decode_event(offset, value) for offset, value in enumerate(page.values, page.first)]
        self._projector.begin_discovered(self.applied, None)
        for record, value in zip(records, page.values, strict=True):
            recorder.take(record, value, indexed=record.cause.command != FOLLOW)
        self._commit_discovered(recorder, records)
        if page.first + len(records) == page.end:
            logger.info("events that were missed are copied from another voter", end=page.end)
        return records


def _image_of(parts: Sequence[FilePart]) -> MetadataImage:
    """In a thread."""
    image = MetadataImage()
    for part in parts:
        for batch in part.batches():
            image.fold((batch,), keep_misfits=True)
    return image


async def _nobody(_: int) -> None:
    return None
