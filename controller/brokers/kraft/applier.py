"""Writes committed batches of the metadata log to the event log, when a node follows, or catches up after a start.

A batch of a Topicwright leader embeds its events. These events are applied, and their projection (`projection`) must be
exactly the records of the batch. A batch of Kafka's own controller has no events: its records are imported as events
(`importing`). If this node was away for so long that the log now begins after the last applied offset, another
Topicwright voter may have the missing events (`catch_up`). Then the remaining differences to the snapshot at the start
of the log are imported.

Nothing that another controller wrote stops a node. Unsupported records, and events that do not apply, are recorded in
`unsupported`. Replication continues, but this node must not lead. `replication` is the caller.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, zip_longest
from typing import Final

import structlog
from msgspec.structs import replace

from controller.brokers.kraft.catch_up import Page, TreeHeads, fetch_missing_events
from controller.brokers.kraft.importing import import_batch, import_snapshot
from controller.brokers.kraft.importing_cluster import Imported
from controller.brokers.kraft.projector import MetadataProjector, ProtocolIds
from controller.kafka.messages import ZERO_UUID
from controller.kafka.messages import records as kinds
from controller.kafka.messages.records import MetadataRecord
from controller.machine.state import Cluster, QuorumLeader
from controller.quorum.files import QuorumFiles
from controller.quorum.log.batches import (
    LEADER_CHANGE,
    EmbeddedEvents,
    RecordBatch,
    control_type,
    decode_batches,
    embedded_events,
)
from controller.quorum.log.image import MetadataImage, Transactions
from controller.quorum.log.metadata_codec import MalformedRecord, decode_control, decode_record
from controller.quorum.log.record_kinds import acl_of
from controller.quorum.log_files import batches_of
from controller.quorum.node import QuorumNode
from controller.store.recorder import Recorder
from controller.store.store import every_topic
from events.catalog import HistorySkipped, QuorumEpochBegun, Recorded, SettingsChanged
from events.codec import decode_event
from events.errors import shortened
from events.external_decision import ExternalDecision, skipped_snapshot
from events.logs.log import Commit, EventLog
from events.names import BrokerId

READ_BYTES: Final = 1 << 20
_OF_CONTROLLERS: Final = (kinds.RegisterControllerRecord, kinds.UnregisterControllerRecord)
REASON_CHARACTERS_MAX: Final = 300
RECORD_CHARACTERS_MAX: Final = 200
KAFKAS: Final = -1
"""The leader priority recorded for Kafka's own controllers."""

logger = structlog.get_logger("topicwright.quorum")


class BatchApplier:
    """Applies the batches of the metadata log in order. `first` is the event with which an empty event log begins."""

    def __init__(
        self, node: QuorumNode, files: QuorumFiles, log: EventLog, projector: MetadataProjector, first: SettingsChanged
    ) -> None:
        self.applied = 0
        """The metadata log below this offset is in the event log, or held in an open transaction."""
        self._node, self._files, self._log, self._projector, self._first = node, files, log, projector, first
        self.tree_heads = TreeHeads(node, log)
        self.on_unregistered: Callable[[int], None] = lambda _: None
        """Called with the id of an unregistered controller."""
        self.reload()

    def reload(self) -> None:
        """Continue from the end of the event log."""
        self.applied = self._projector.mark.applied
        self.transactions = Transactions()
        self._from = self.applied
        self._read: deque[RecordBatch] = deque()
        self._offset_gap = 0
        """The leader's event offset minus ours; 0 unless events were missed."""

    async def apply_next(self, recorder: Recorder, committed: int) -> list[Recorded]:
        """Write the next batch, or a part of a snapshot, below the `committed` offset. Returns the new events, perhaps
        none. Raises LogError, BrokenBatch, RecordMismatch."""
        if self.applied < self._files.start:
            return await self._import_snapshot(recorder)
        batch = self._next(committed)
        embedded = None if batch.is_control else embedded_events(batch.records[0][1])
        records = self._apply_embedded(recorder, batch, embedded) if embedded is not None else None
        if records is None:
            records = await self._import_batch(recorder, batch)
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
        """Write a commit that the quorum has committed. Raises LogError."""
        self._log.write(commit)
        self._log.mark_durable()
        self._projector.became_durable()

    # --- batches of Topicwright leaders

    def _apply_embedded(
        self, recorder: Recorder, batch: RecordBatch, embedded: EmbeddedEvents
    ) -> list[Recorded] | None:
        """Apply the embedded events. Returns None, with nothing applied, if they are invalid in this state."""
        if not embedded.values:
            return []
        here = self._log.next_offset
        if embedded.first - here != self._offset_gap:
            self._offset_gap = embedded.first - here
            logger.warning(
                "event offsets differ from the leader's", metadata=batch.base_offset, there=embedded.first, here=here
            )
        if embedded.root and embedded.first == here:
            self.tree_heads.compare(self._leader_of(None, batch.leader_epoch), here, embedded.root)
        self._projector.begin(batch.base_offset)
        try:
            records = [decode_event(offset, value) for offset, value in enumerate(embedded.values, here)]
            recorder.record_encoded(records, embedded.values)
        except Exception as error:  # no batch may keep this node from starting
            why = f"the events in the batch at offset {batch.base_offset} do not apply: {error}"[:REASON_CHARACTERS_MAX]
            logger.error("events of another voter do not apply: importing its records instead", why=why)
            self._projector.mark_unsupported(why)
            self._projector.begin()
            return None
        projected, written = self._projector.values, [value for _, value in batch.records[1:]]
        if projected != written:
            different = first_difference(projected, written)
            logger.error(
                "the records of a batch differ from the projection of its events",
                metadata=batch.base_offset,
                why=different,
            )
            self._projector.mark_unsupported(different)
        commit = recorder.take_commit()
        self._projector.batches(embedded.first, embedded.values)
        self.write(commit)
        return records

    # --- batches of other controllers

    async def _import_batch(self, recorder: Recorder, batch: RecordBatch) -> list[Recorded]:
        if batch.is_control:
            return []
        records = [(offset, record) for offset, record in numbered(batch) if offset >= self._from]
        complete, epoch, state = self.transactions.complete(records), batch.leader_epoch, recorder.state
        quorum, store = state.cluster.quorum, recorder.store
        for _, record in complete:
            if isinstance(record, kinds.UnregisterControllerRecord):
                self.on_unregistered(record.controller_id)
        if all(isinstance(record, _OF_CONTROLLERS) for _, record in complete):
            return []  # every leader writes these, also Topicwright
        begins = quorum is None or quorum.leader_epoch < epoch
        if not begins and all(isinstance(record, kinds.NoOpRecord) for _, record in complete):
            return []
        leader_id = self._leader_of(quorum, epoch)
        kraft_version = 0 if quorum is None else quorum.kraft_version
        begun = [QuorumEpochBegun(epoch, leader_id, kraft_version, "", 0, ZERO_UUID, KAFKAS)] if begins else []
        at_ms = max(batch.timestamp_ms, recorder.last_ms)
        decided = ExternalDecision(leader_id, epoch, complete[0][0])
        name_of, ids = store.durable_name_of, self._projector.ids
        slices = import_batch(state, name_of, ids, complete, at_ms, decided, lambda: every_topic(store))
        end = batch.last_offset + 1 if self.transactions.begun_at is None else self.transactions.begun_at
        recorded: list[Recorded] = []
        for each in chain((Imported(tuple(begun)),), slices):
            recorded += self._record_imported(recorder, at_ms, decided, each, end)
            await asyncio.sleep(0)
        self._commit_import(recorder, recorded)
        return recorded

    def _record_imported(
        self, recorder: Recorder, at_ms: int, decided: ExternalDecision, found: Imported, end: int
    ) -> list[Recorded]:
        """Apply imported events. With them the event log covers everything below `end`."""
        self._projector.ids = self._projector.ids.after(found.ids)
        self._projector.begin_import(end)
        if found.unsupported is not None:
            logger.error("unsupported record: this node will not lead", what=found.unsupported)
            self._projector.mark_unsupported(found.unsupported)
        is_empty = self._log.next_offset == 0 and not recorder.state.cluster.release
        begin = [self._first] if found.events and is_empty else []
        return recorder.record(at_ms, decided.cause, [*begin, *found.events])

    def _commit_import(self, recorder: Recorder, recorded: Sequence[Recorded]) -> None:
        self.write(recorder.take_commit() if recorded else Commit(own=self._projector.changes()))
        self._projector.begin()

    def _leader_of(self, quorum: QuorumLeader | None, epoch: int) -> int:
        """The leader of an epoch: from the events, which all voters share, or from the LeaderChange record; 0 if that
        is no longer in the log."""
        if quorum is not None and quorum.leader_epoch == epoch:
            return quorum.node_id
        begun = self._files.beginning(epoch)
        for key, value in begun.records if begun is not None else ():
            if control_type(key) == LEADER_CHANGE:
                return decode_control(kinds.LeaderChangeMessage, value).leader_id
        return 0

    # --- snapshots

    async def _import_snapshot(self, recorder: Recorder) -> list[Recorded]:
        """Apply the next page of missed events. If there is none, import the differences of the snapshot in slices,
        each with its own commit; after a crash the slices already written no longer differ."""
        snapshot = self._files.snapshot
        assert snapshot is not None, "a log that begins later begins with a snapshot"
        page = await fetch_missing_events(self._node, self._log, snapshot.end_offset)
        if page is not None and page.values:
            return self._apply_page(recorder, page)
        image, batches = MetadataImage(), batches_of(self._files.newest_snapshot())
        await asyncio.to_thread(image.fold, batches, keep_mismatched=True)
        if page is not None:
            self._projector.ids = ids_in(image, recorder.state.cluster, self._projector.ids)
        at_ms = max(image.timestamp_ms, recorder.last_ms)
        skipped = HistorySkipped(
            self.applied, snapshot.end_offset, snapshot.epoch, "away for longer than the log is retained"
        )
        decided, store, slices = skipped_snapshot(skipped), recorder.store, []
        for each in import_snapshot(recorder.state, every_topic(store), self._projector.ids, image, at_ms, skipped):
            slices.append(each)
            await asyncio.sleep(0)
        if page is not None and slices[-1].unsupported is None and sum(len(each.events) for each in slices) == 1:
            slices[0] = replace(slices[0], events=())  # nothing is skipped
        recorded: list[Recorded] = []
        for each in slices:
            end = snapshot.end_offset if each is slices[-1] else self.applied
            records = self._record_imported(recorder, at_ms, decided, each, end)
            recorded += records
            self._commit_import(recorder, records)
            store.became_durable(recorder.state)
            await asyncio.sleep(0)
        self.applied = self._from = snapshot.end_offset
        self._read.clear()
        return recorded

    def _apply_page(self, recorder: Recorder, page: Page) -> list[Recorded]:
        """Apply another voter's events. They are not projected to metadata records: the snapshot has those."""
        records = [decode_event(offset, value) for offset, value in enumerate(page.values, page.first)]
        self._projector.begin_import(self.applied)
        recorder.record_encoded(records, page.values)
        self._commit_import(recorder, records)
        if page.first + len(records) == page.end:
            logger.info("missed events were copied from another voter", end=page.end)
        return records


def first_difference(projected: Sequence[bytes], batch: Sequence[bytes]) -> str:
    """Describe the first record in which a batch differs from the projection of its events."""
    pairs = enumerate(zip_longest(projected, batch))
    number, ours, theirs = next((number, ours, theirs) for number, (ours, theirs) in pairs if ours != theirs)
    return f"record {number} of the batch is {_text(theirs)}; its events project to {_text(ours)}"


def _text(value: bytes | None) -> str:
    return "nothing" if value is None else shortened(repr(_decoded(value)), RECORD_CHARACTERS_MAX)


def numbered(batch: RecordBatch) -> Iterator[tuple[int, MetadataRecord]]:
    """The records of a batch with their offsets; none of a control batch."""
    values = () if batch.is_control else batch.records
    return ((offset, _decoded(value)) for offset, (_, value) in enumerate(values, batch.base_offset))


def _decoded(value: bytes) -> MetadataRecord:
    """The record; an `UnknownRecord` if it is malformed, because followers never stop at one."""
    try:
        return decode_record(value)
    except MalformedRecord:
        return kinds.UnknownRecord(value=value)


def ids_in(image: MetadataImage, cluster: Cluster, before: ProtocolIds) -> ProtocolIds:
    """The broker epochs and ACL ids of an image, for a state with all events up to it but with the ids as of `before`.
    Only ACLs that the state has are included; the others are imported as differences."""
    brokers = image.all(kinds.RegisterBrokerRecord)
    entries = {each.id: acl_of(each) for each in image.all(kinds.AccessControlEntryRecord)}
    current = set(entries.values())
    older = {acl_id: acl for acl_id, acl in before.acls.items() if acl not in current}
    return ProtocolIds(
        {BrokerId(each.broker_id): each.broker_epoch for each in brokers},
        {acl_id: acl for acl_id, acl in {**older, **entries}.items() if acl in cluster.acls},
    )
