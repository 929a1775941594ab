"""Access control entries, logins and quotas in the metadata log: what brokers are sent is what holds, ever after."""

from __future__ import annotations

from typing import Any

import pytest

from controller.brokers.kraft.log.batches import decode_batches, embedded_events
from controller.brokers.kraft.log.image import MetadataImage, snapshot_bytes
from controller.brokers.kraft.log.metadata_codec import decode_record
from controller.brokers.kraft.log.metadata_records import (
    AccessControlEntryRecord,
    FeatureLevelRecord,
    RemoveAccessControlEntryRecord,
)
from events.catalog import Recorded
from events.names import Offset
from tests.brokers.kraft.logs import LogRig, access_history, differences, log_of, real_history
from tests.events.golden import history

HISTORY = access_history()
BEGIN = len(real_history())


def _records(log: LogRig) -> list[Any]:
    """Without those that carry events."""
    batches = [batch for batch in log.decoded() if not batch.is_control]
    return [decode_record(value) for batch in batches for _, value in batch.records if embedded_events(value) is None]


def test_after_each_event_brokers_are_sent_what_holds() -> None:
    log = log_of(HISTORY[:BEGIN])
    image = log.image()
    for record in HISTORY[BEGIN:]:
        known = len(log.written)
        log.commit([record])
        (batch,) = decode_batches(b"".join(log.written[known:]))
        assert len(batch.records) > 1, f"nothing written of {record}"
        image.fold([batch])
        assert differences(image, log.state) == [], f"after {record}"
    assert log.state.cluster.acls.count == 3
    assert log.state.cluster.scram
    assert log.state.cluster.quotas


def test_a_restart_or_a_lost_lead_anywhere_changes_no_byte() -> None:
    whole = log_of(HISTORY, 1)
    for cut in range(BEGIN, len(HISTORY)):
        second = LogRig(log_of(HISTORY[:cut], 1))
        for record in HISTORY[cut:]:
            second.commit([record])
        assert second.data() == whole.data(), f"restarted before {HISTORY[cut]}"
    losing = log_of(HISTORY[:BEGIN], 1)
    losing.take(HISTORY[BEGIN:])
    losing.projector.reload()
    losing.state = log_of(HISTORY[:BEGIN], 1).state
    for record in HISTORY[BEGIN:]:
        losing.commit([record])
    assert losing.data() == whole.data()


def test_no_id_is_given_twice_also_to_an_entry_that_is_created_again() -> None:
    """A broker that sees the removal and the creation in one step would add an id that it has."""
    records = _records(log_of(HISTORY))
    created = [record for record in records if isinstance(record, AccessControlEntryRecord)]
    removed = {record.id for record in records if isinstance(record, RemoveAccessControlEntryRecord)}
    ids = [record.id for record in created]
    assert len(set(ids)) == len(ids)
    entries = {record.id: (record.resource_type, record.resource_name, record.principal) for record in created}
    again = {entries[one] for one in removed} & {entry for one, entry in entries.items() if one not in removed}
    assert removed
    assert again == {entries[one] for one in removed}


@pytest.mark.parametrize("at", [BEGIN + 1, BEGIN + 4, len(HISTORY) - 1])
def test_a_snapshot_has_them(at: int) -> None:
    log = log_of(HISTORY[:at], 1)
    image = MetadataImage()
    image.fold(decode_batches(snapshot_bytes(log.image(), 1)))
    assert differences(image, log.state) == []
    known = len(log.written)
    for record in HISTORY[at:]:
        log.commit([record])
    image.fold(decode_batches(b"".join(log.written[known:])))
    assert differences(image, log.state) == []
    assert snapshot_bytes(image, 1) == snapshot_bytes(log_of(HISTORY, 1).image(), 1)


def test_what_there_was_before_the_metadata_log_is_written_after_the_first_features() -> None:
    earlier = history("access")
    later = real_history()
    shifted = [Recorded(Offset(record.offset + len(earlier)), *_rest(record)) for record in later]
    log = log_of([*earlier, *shifted], 1)
    assert differences(log.image(), log.state) == []
    records = _records(log)
    assert isinstance(records[0], FeatureLevelRecord)
    assert records[0].name == "metadata.version"
    assert any(isinstance(record, AccessControlEntryRecord) for record in records)


def _rest(record: Recorded) -> tuple[Any, ...]:
    return record.at_ms, record.cause, record.event
