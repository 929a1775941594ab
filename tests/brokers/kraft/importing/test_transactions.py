"""Records of transactions, which count merged or not at all (KIP-868)."""

from __future__ import annotations

from controller.brokers.kraft.importing.batch import Transactions, numbered
from controller.brokers.kraft.log import metadata_records as kinds
from controller.brokers.kraft.log.batches import decode_batches, encode_batch, snapshot_footer
from controller.brokers.kraft.log.metadata_codec import encode_record
from controller.brokers.kraft.log.metadata_records import MetadataRecord

BEGIN, END, ABORT = kinds.BeginTransactionRecord(), kinds.EndTransactionRecord(), kinds.AbortTransactionRecord()
A, B, C = (kinds.TopicRecord(name=name, topic_id=name.encode() * 16) for name in "abc")


def test_what_counts_and_where_what_is_open_begins() -> None:
    # a batch, the records that count after it, and where a transaction is open
    table: list[tuple[list[MetadataRecord], list[tuple[int, MetadataRecord]], int | None]] = [
        ([A], [(0, A)], None),
        ([BEGIN, A], [], 1),
        ([B], [], 1),
        ([END, C], [(2, A), (3, B), (5, C)], None),
        ([BEGIN, A, ABORT, B], [(9, B)], None),
        ([BEGIN, A, END, BEGIN, B], [(11, A)], 13),
        ([BEGIN, C], [], 15),
        ([END], [(16, C)], None),
    ]
    transactions = Transactions()
    offset = 0
    for records, counting, begun_at in table:
        batch = list(enumerate(records, offset))
        assert transactions.complete(batch) == counting, records
        assert transactions.begun_at == begun_at, records
        offset += len(batch)


def test_records_have_the_offsets_of_their_batch_and_malformed_ones_are_unknown() -> None:
    broken = encode_record(A)[:-3]
    values = [(None, encode_record(A)), (None, broken), (None, b""), (None, b"\x01\xff\xff\x03\x00")]
    data = encode_batch(7, 1, 5, values) + encode_batch(11, 1, 5, [snapshot_footer()], is_control=True)
    first, control = decode_batches(data)
    found = list(numbered(first))
    assert found[0] == (7, A)
    assert [offset for offset, _ in found] == [7, 8, 9, 10]
    assert all(isinstance(record, kinds.UnknownRecord) for _, record in found[1:])
    assert list(numbered(control)) == []
