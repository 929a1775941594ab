"""Records as batches have them, and those of a transaction together, which may span batches (KIP-868)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from controller.brokers.kraft.log import metadata_records as kinds
from controller.brokers.kraft.log.batches import RecordBatch
from controller.brokers.kraft.log.metadata_codec import MalformedRecord, decode_record
from controller.brokers.kraft.log.metadata_records import MetadataRecord


def numbered(batch: RecordBatch) -> Iterator[tuple[int, MetadataRecord]]:
    """The records of a batch with their offsets; none of a control batch. What is no record that this release knows is
    an `UnknownRecord`, malformed ones too: whoever follows never stops at one."""
    if batch.is_control:
        return
    for offset, (_, value) in enumerate(batch.records, batch.base_offset):
        try:
            yield offset, decode_record(value)
        except MalformedRecord:
            yield offset, kinds.UnknownRecord(value=value)


class Transactions:
    """Holds back the records of a transaction until it ends. It keeps as many as the transaction has."""

    def __init__(self) -> None:
        self.begun_at: int | None = None
        """Where the open transaction begins, None where none is open: whoever starts anew has to read on from there."""
        self._held: list[tuple[int, MetadataRecord]] = []

    def complete(self, records: Iterable[tuple[int, MetadataRecord]]) -> list[tuple[int, MetadataRecord]]:
        """The records that count once these have come, in order: those outside of transactions, and those of ones that
        end here."""
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
        """The open one does not count."""
        self.begun_at, self._held = None, []
