"""Imports a batch that another controller wrote, as equivalent events.

Invariant: after the events, the machine's state, projected to records, equals the state before with the batch's records
applied. So a controller that followed can lead on from where the other one stopped.

Method. The part of the state that the batch touches is projected to records, into an image to which the batch's records
are applied. Steps (brokers, partition changes, producer ids, deletions) become events one by one. Where several records
belong together (a topic with its configs and partitions, the configs of a resource, the quotas of an entity, ACLs,
features), the image is compared with the state at the end of the batch.

Unsupported records do not stop the import: everything else is imported, and `unsupported` names the first of them. A
node that has met one may follow and vote, and must not lead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, zip_longest
from typing import Final

from controller.brokers.kraft.importing.cluster_changes import ClusterChanges
from controller.brokers.kraft.importing.collector import EventCollector, Imported, is_ignored, record_summary, source_of
from controller.brokers.kraft.importing.topic_changes import NameOf, TopicChanges
from controller.brokers.kraft.log import metadata_records as kinds
from controller.brokers.kraft.log.batches import RecordBatch
from controller.brokers.kraft.log.image import RecordMismatch
from controller.brokers.kraft.log.metadata_codec import MalformedRecord, decode_record, encode_record
from controller.brokers.kraft.log.metadata_records import MetadataRecord
from controller.brokers.kraft.log.projector import ProtocolIds
from controller.machine.state import State, Topic
from events.names import RequestId

_CHARACTERS_MAX: Final = 200


def first_difference(projected: Iterable[MetadataRecord], batch: Iterable[MetadataRecord]) -> str | None:
    """Describe the first record in which a batch differs from the projection of its events; None if there is none.
    NoOpRecords, which embed the events, are not compared."""
    ours = (each for each in projected if not isinstance(each, kinds.NoOpRecord))
    theirs = (each for each in batch if not isinstance(each, kinds.NoOpRecord))
    for number, (our, their) in enumerate(zip_longest(ours, theirs)):
        if our != their and (our is None or their is None or encode_record(our) != encode_record(their)):
            return f"record {number} of the batch is {_text(their)}; its events project to {_text(our)}"
    return None


def _text(record: MetadataRecord | None) -> str:
    text = "nothing" if record is None else repr(record)
    return text if len(text) <= _CHARACTERS_MAX else text[: _CHARACTERS_MAX - 1] + "…"


def numbered(batch: RecordBatch) -> Iterator[tuple[int, MetadataRecord]]:
    """The records of a batch with their offsets; none of a control batch. A malformed record is returned as an
    `UnknownRecord`, because followers never stop at one."""
    if batch.is_control:
        return
    for offset, (_, value) in enumerate(batch.records, batch.base_offset):
        try:
            yield offset, decode_record(value)
        except MalformedRecord:
            yield offset, kinds.UnknownRecord(value=value)


class Transactions:
    """Holds back the records of a transaction until it ends (KIP-868). A transaction may span batches."""

    def __init__(self) -> None:
        self.begun_at: int | None = None
        """The offset of the open transaction; None if none is open. A restart must read from there."""
        self._held: list[tuple[int, MetadataRecord]] = []

    def complete(self, records: Iterable[tuple[int, MetadataRecord]]) -> list[tuple[int, MetadataRecord]]:
        """The records that now apply: those outside of transactions, and those of transactions that ended."""
        counting: list[tuple[int, MetadataRecord]] = []
        for offset, record in records:
            match record:
                case kinds.BeginTransactionRecord():
                    self.begun_at, self._held = offset, []
                case kinds.EndTransactionRecord():
                    counting += self._held
                    self.begun_at, self._held = None, []
                case kinds.AbortTransactionRecord():
                    self.abort()
                case _ if self.begun_at is not None:
                    self._held.append((offset, record))
                case _:
                    counting.append((offset, record))
        return counting

    def abort(self) -> None:
        self.begun_at, self._held = None, []


Numbered = tuple[int, MetadataRecord]
"""A record with its offset in the metadata log."""


def import_batch(
    state: State,
    name_of: NameOf,
    ids_before: ProtocolIds,
    records: Iterable[Numbered],
    at_ms: int,
    request_id: RequestId,
    every_topic: Callable[[], Iterable[Topic]],
) -> Iterator[Imported]:
    """The decisions in a batch's records as events, in slices of some milliseconds each.

    `request_id` is that of `ExternalDecision` and names the controller. `every_topic` is called only if a record
    concerns all topics. The caller may apply a slice to `state` before it takes the next one, or all of them at the
    end; nothing else may change it meanwhile.
    """
    collector = EventCollector(source_of(request_id))
    of_cluster = ClusterChanges(state.cluster, ids_before, collector)
    of_topics = TopicChanges(state, name_of, every_topic, collector, at_ms)
    steps = chain(_folding(records, of_cluster, of_topics, collector), of_cluster.finish(), of_topics.finish())
    return collector.slices(steps)


def _folding(
    records: Iterable[Numbered], of_cluster: ClusterChanges, of_topics: TopicChanges, collector: EventCollector
) -> Iterator[None]:
    for offset, record in records:
        try:
            if isinstance(record, kinds.ClearElrRecord):
                yield from of_topics.clear_elr(record)
            elif not (of_topics.apply(record) or of_cluster.apply(record) or is_ignored(record)):
                collector.add_unsupported(f"{record_summary(record)} at offset {offset}")
        except RecordMismatch as error:
            collector.add_unsupported(f"{record_summary(record)} at offset {offset}: {error}")
        yield
