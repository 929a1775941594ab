"""A batch of our own with its events, as a standby checks it."""

from __future__ import annotations

from msgspec.structs import replace

from controller.brokers.kraft.importing.batch import first_difference
from controller.brokers.kraft.log import metadata_records as kinds
from controller.brokers.kraft.log.batches import decode_batches
from controller.brokers.kraft.log.metadata_codec import decode_record
from controller.brokers.kraft.log.metadata_records import MetadataRecord
from tests.brokers.kraft.logs import LogRig, access_history, log_of


def records_of(log: LogRig) -> list[MetadataRecord]:
    batches = (batch for batch in decode_batches(log.data()) if not batch.is_control)
    return [decode_record(value) for batch in batches for _, value in batch.records]


def test_what_the_same_events_lead_to_does_not_differ() -> None:
    history = access_history()
    ours, theirs = (records_of(log_of(history, commits, is_kafkas=True)) for commits in (40, 1000))
    assert len(ours) > 40
    assert first_difference(ours, [kinds.NoOpRecord(), *theirs]) is None


def test_the_first_record_that_differs_is_named() -> None:
    records = records_of(log_of(access_history(), is_kafkas=True))
    place = next(n for n, each in enumerate(records) if isinstance(each, kinds.PartitionRecord))
    one = records[place]
    assert isinstance(one, kinds.PartitionRecord)
    other = replace(one, leader=9)
    found = first_difference(records, [*records[:place], other, *records[place + 1 :]])
    assert found is not None
    assert found.startswith(f"record {place} of the batch is PartitionRecord(partition_id=0")
    assert first_difference(records, records[:-1]) is not None
    assert first_difference(records[:-1], records) is not None
    for shorter in (
        first_difference(records[:place], records[: place + 1]),
        first_difference(records[: place + 1], records[:place]),
    ):
        assert shorter is not None
        assert "nothing" in shorter
        assert len(shorter) < 500
