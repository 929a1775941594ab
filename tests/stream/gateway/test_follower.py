"""What a gateway's transport hands to the event loop at once."""

from __future__ import annotations

from controller.stream.log.transport import BATCH_BYTES, Record, in_batches


def test_large_records_are_followed_one_by_one() -> None:
    sizes = [100] * 300 + [BATCH_BYTES * 2, BATCH_BYTES // 2, BATCH_BYTES // 2, 1]
    batches = list(in_batches(Record("events", 0, offset, bytes(size)) for offset, size in enumerate(sizes)))
    assert [record.offset for batch in batches for record in batch] == list(range(len(sizes)))
    assert [sum(len(record.value) for record in batch) for batch in batches] == [
        30_000,
        BATCH_BYTES * 2,
        BATCH_BYTES,
        1,
    ]


def test_no_records_are_one_empty_batch() -> None:
    assert list(in_batches(())) == [()]
