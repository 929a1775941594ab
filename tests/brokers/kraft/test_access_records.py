"""Access control entries, logins and quotas in the metadata log: what brokers are sent is what holds, ever after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller.brokers.kraft.log.batches import decode_batches
from controller.brokers.kraft.log.image import MetadataImage
from controller.brokers.kraft.log.metadata_codec import decode_record
from controller.brokers.kraft.log.metadata_log import META, MetadataLog
from controller.brokers.kraft.log.metadata_records import (
    AccessControlEntryRecord,
    FeatureLevelRecord,
    RemoveAccessControlEntryRecord,
    UserScramCredentialRecord,
)
from controller.brokers.kraft.log.snapshots import image_of, make_snapshot, snapshot_bytes
from controller.machine.apply import apply
from controller.release import RELEASE
from controller.serving.offline_users import offline_users
from controller.settings.load import load_settings
from events.access import AclsDeleted
from events.catalog import EVENT_VERSION, QuorumEpochBegun, Recorded
from events.codec import encode_event
from events.logs.log import Commit, Entry
from events.logs.rocksdb_log import RocksDbLog
from events.names import Offset
from projections.store.store import TopicStore
from tests.brokers.kraft.logs import LogRig, access_history, differences, log_of, real_history
from tests.events.golden import history

HISTORY = access_history()
BEGIN = len(real_history())


def _records(log: LogRig) -> list[Any]:
    batches = [batch for batch in decode_batches(log.data()) if not batch.is_control]
    return [decode_record(value) for batch in batches for _, value in batch.records]


def test_after_each_event_brokers_are_sent_what_holds() -> None:
    log = log_of(HISTORY[:BEGIN])
    image = image_of(log.metadata)
    for record in HISTORY[BEGIN:]:
        at = log.metadata.mark.end
        log.commit([record])
        for data in log.metadata.batches(at):
            image.fold(decode_batches(data))
        assert log.metadata.mark.end > at, f"nothing written of {record}"
        assert differences(image, log.state) == [], f"after {record}"
    assert log.state.cluster.acls.count == 3
    assert log.state.cluster.scram
    assert log.state.cluster.quotas


def test_a_restart_or_a_failed_write_anywhere_changes_no_byte() -> None:
    whole = log_of(HISTORY, 1)
    for cut in range(BEGIN, len(HISTORY)):
        first = log_of(HISTORY[:cut], 1)
        second = LogRig(first.log, first.state)
        for record in HISTORY[cut:]:
            second.commit([record])
        assert second.data() == whole.data(), f"restarted before {HISTORY[cut]}"
    failing = log_of(HISTORY[:BEGIN], 1)
    failing.write(HISTORY[BEGIN:])
    failing.log.drop_unflushed()
    again = LogRig(failing.log, log_of(HISTORY[:BEGIN], 1).state)
    for record in HISTORY[BEGIN:]:
        again.commit([record])
    assert again.data() == whole.data()


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
    mark = log.metadata.mark
    log.metadata.offer_snapshot(make_snapshot(log.metadata, mark.end, mark.epoch))
    for record in HISTORY[at:]:
        log.commit([record])
    assert log.metadata.mark.snapshots[-1].end_offset == mark.end
    image = image_of(MetadataLog(log.log))
    assert differences(image, log.state) == []
    assert snapshot_bytes(image, 1) == snapshot_bytes(image_of(log_of(HISTORY, 1).metadata), 1)
    again = MetadataImage()
    again.fold(decode_batches(snapshot_bytes(image, 1)))
    assert differences(again, log.state) == []


def test_what_there_was_before_the_metadata_log_is_written_after_the_first_features() -> None:
    earlier = history("access")
    later = real_history()
    shifted = [Recorded(Offset(record.offset + len(earlier)), *_rest(record)) for record in later]
    log = log_of([*earlier, *shifted], 1)
    assert differences(image_of(log.metadata), log.state) == []
    records = _records(log)
    assert isinstance(records[0], FeatureLevelRecord)
    assert records[0].name == "metadata.version"
    assert any(isinstance(record, AccessControlEntryRecord) for record in records)


def _begun_without_access() -> LogRig:
    """A log as a release wrote it that kept entries, logins and quotas, and sent brokers nothing of them."""
    log = log_of(HISTORY[:BEGIN])
    old = msgspec.structs.astuple(log.metadata.mark)[:-1]
    entries = []
    for record in HISTORY[BEGIN:-1]:
        apply(log.state, record)
        entries.append(Entry(encode_event(record.at_ms, record.cause, record.event)))
    log.log.write(Commit(entries, {META: msgspec.msgpack.encode(old)}))
    log.log.flush()
    return LogRig(log.log, log.state)


def _epoch(number: int) -> Recorded:
    """The controller starts once more."""
    begun = next(record for record in HISTORY if isinstance(record.event, QuorumEpochBegun))
    return msgspec.structs.replace(begun, event=msgspec.structs.replace(begun.event, leader_epoch=number))


def test_what_brokers_were_never_sent_they_are_sent_at_the_next_start_and_once() -> None:
    log = _begun_without_access()
    assert {difference.split(":")[0] for difference in differences(image_of(log.metadata), log.state)} == {
        "acls",
        "logins",
        "quotas",
    }
    log.commit([_epoch(2)])
    assert differences(image_of(log.metadata), log.state) == []
    at = log.metadata.mark.end
    again = LogRig(log.log, log.state)
    again.commit([_epoch(3)])
    assert again.metadata.mark.end == at + 1, "nothing but who leads"
    gone = tuple(again.state.cluster.acls)
    record = next(record for record in HISTORY if isinstance(record.event, AclsDeleted))
    again.commit([msgspec.structs.replace(record, event=msgspec.structs.replace(record.event, acls=gone))])
    assert differences(image_of(again.metadata), again.state) == []


def _rest(record: Recorded) -> tuple[Any, ...]:
    return record.at_ms, record.cause, record.event


def test_users_of_a_stopped_service_are_sent_to_brokers_too(tmp_path: Path) -> None:
    data = tmp_path / "data"
    log = RocksDbLog.open(data, cluster_id=None, event_version=EVENT_VERSION, new_cluster_id=lambda: "cluster")
    store, metadata = TopicStore(log), MetadataLog(log)
    state = store.state()
    for record in HISTORY:
        metadata.apply(state, record)
    entries = [Entry(encode_event(each.at_ms, each.cause, each.event)) for each in HISTORY]
    log.write(Commit(entries, {**store.changes(state), **metadata.changes()}))
    log.flush()
    log.close()
    with offline_users(data, load_settings(), RELEASE) as users:
        assert users.add("zoe", "SCRAM-SHA-256", "secret", 4096).code == 0
    log = RocksDbLog.open(data, cluster_id=None, event_version=EVENT_VERSION, new_cluster_id=lambda: "cluster")
    try:
        image = image_of(MetadataLog(log))
        assert ("zoe", 1) in [(each.name, each.mechanism) for each in image.all(UserScramCredentialRecord)]
        assert len(image.all(AccessControlEntryRecord)) == 3
    finally:
        log.close()
