"""The metadata log as a projection of events, also of ACLs, SCRAM credentials and quotas."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from controller.brokers.kraft import projector
from controller.kafka.messages.records import (
    AccessControlEntryRecord,
    FeatureLevelRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
)
from controller.machine.apply import CannotApply
from controller.quorum.log.batches import Pair, RecordBatch, decode_batches, embedded_events
from controller.quorum.log.image import MetadataImage
from controller.quorum.log.metadata_codec import decode_record
from events.catalog import ApprovalDecided, ApprovalRequested, BrokerUnfenced, Recorded
from events.codec import decode_event, encode_event
from events.names import BrokerId, Offset
from tests.brokers.kraft.logs import LogRig, access_history, differences, log_of, real_history, snapshot_bytes
from tests.events.golden import history

HISTORY = access_history()
REAL = len(real_history())
DOES_NOT_FIT = replace(HISTORY[-1], event=BrokerUnfenced(BrokerId(999), 1, "never registered"))
EACH_COMMIT = pytest.mark.parametrize("commits", [1, 2, 7, 1000])


def test_the_metadata_image_equals_the_state_after_each_event() -> None:
    log, image = LogRig(), MetadataImage()
    for record in HISTORY:
        known = len(log.decoded())
        log.commit([record])
        image.fold(log.decoded()[known:])
        assert differences(image, log.state) == [], f"after {record}"
        is_ours = isinstance(record.event, ApprovalRequested | ApprovalDecided)
        assert record.offset < REAL or (len(log.decoded()[-1].records) == 1) is is_ours, f"no record of {record}"
    cluster = log.state.cluster
    assert (log.end > 40, cluster.acls.count, bool(cluster.scram), bool(cluster.quotas)) == (True, 3, True, True)


def _events(batches: Sequence[RecordBatch]) -> list[Recorded]:
    """The embedded events of batches, with their offsets."""
    found: list[Recorded] = []
    for batch in batches:
        ours = embedded_events(batch.records[0][1])
        assert ours is not None, f"the batch at {batch.base_offset} embeds no events"
        assert [embedded_events(value) for _, value in batch.records[1:]] == [None] * (len(batch.records) - 1)
        found += [decode_event(offset, value) for offset, value in enumerate(ours.values, ours.first)]
    return found


@EACH_COMMIT
def test_each_batch_embeds_the_events_of_its_commit(commits: int) -> None:
    log = log_of(HISTORY, commits)
    batches = [batch for batch in log.decoded() if not batch.is_control]
    assert len(batches) == -(-len(HISTORY) // commits)
    assert _events(batches) == HISTORY
    assert [decode_event(offset, value) for offset, value in log.log.read()] == HISTORY


def _plainly(log: LogRig) -> list[Any]:
    """The records without NoOpRecords and without anything derived from offsets: broker epochs and ACL ids."""
    found: list[Any] = []
    epochs: dict[int, int] = {}
    ids: dict[bytes, bytes] = {}
    for batch in log.decoded():
        for offset, (_, value) in enumerate(() if batch.is_control else batch.records, batch.base_offset):
            record: Any = decode_record(value)
            if embedded_events(value) is not None:
                continue
            if isinstance(record, RegisterBrokerRecord):
                epochs[record.broker_id] = offset
            if hasattr(record, "broker_epoch"):
                assert record.broker_epoch == epochs[record.broker_id], f"{record} at {offset}"
                record = replace(record, broker_epoch=0)
            if isinstance(record, AccessControlEntryRecord | RemoveAccessControlEntryRecord):
                number = ids.setdefault(record.id, len(ids).to_bytes(16, "big"))
                record = replace(record, id=number)
            found.append(record)
    return found


@EACH_COMMIT
def test_metadata_records_are_independent_of_commit_sizes(commits: int) -> None:
    one, other = log_of(HISTORY, 1), log_of(HISTORY, commits)
    assert _plainly(one) == _plainly(other)
    assert one.image().quorum == other.image().quorum
    assert (other.projector.mark.applied, other.projector.mark.adopted) == (other.end, False)
    if commits > 1:
        assert other.end < one.end, "each commit must have a record that embeds events"


def test_metadata_log_bytes_are_independent_of_restarts() -> None:
    whole = log_of(HISTORY, 1)
    for cut in (*range(1, REAL, 3), *range(REAL, len(HISTORY))):
        second = LogRig(log_of(HISTORY[:cut], 1))
        for record in HISTORY[cut:]:
            second.commit([record])
        assert second.data() == whole.data(), f"restarted before {HISTORY[cut]}"
        assert second.projector.mark == whole.projector.mark


@pytest.mark.parametrize("at", [8, 14, 20, REAL + 1, REAL + 4, len(HISTORY) - 1])
def test_a_metadata_snapshot_equals_its_batches(at: int) -> None:
    log = log_of(HISTORY[:at], 1)
    image = MetadataImage()
    image.fold(decode_batches(snapshot_bytes(log.image(), 1)))
    assert differences(image, log.state) == []
    known = len(log.decoded())
    for record in HISTORY[at:]:
        log.commit([record])
    image.fold(log.decoded()[known:])
    assert differences(image, log.state) == []
    assert snapshot_bytes(image, 1) == snapshot_bytes(log.image(), 1)


def test_a_failed_command_changes_nothing() -> None:
    """Each command first has one more event, which does not fit. Then the command is decided again."""
    log, whole = LogRig(), log_of(HISTORY, 2)
    for at in range(0, len(HISTORY), 2):
        command = HISTORY[at : at + 2]
        with pytest.raises(CannotApply):
            log.projector.apply(log.state, [*command, DOES_NOT_FIT])
        log.commit(command)
    assert log.data() == whole.data()
    assert (log.state.cluster, log.state.waiting) == (whole.state.cluster, whole.state.waiting)
    assert differences(log.image(), log.state) == []


# --- large commits


def _batch_per_command(log: LogRig, records: Sequence[Recorded]) -> list[list[Pair]]:
    """The batches of one commit in which each event is a command of its own."""
    commit, made = log.take(records, parted=True)
    for pairs in made:
        log.append(pairs)
    log.log.write(commit)
    log.projector.became_durable()
    return made


@pytest.mark.parametrize("bound", ["records", "bytes"])
def test_a_large_commit_is_split_between_commands(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 5 if bound == "records" else 300
    monkeypatch.setattr(projector, "RECORDS_PER_BATCH" if bound == "records" else "BATCH_BYTES", most)
    log = LogRig()
    made = _batch_per_command(log, HISTORY)
    assert len(made) > 5
    assert _events([batch for batch in log.decoded() if not batch.is_control]) == HISTORY
    assert differences(log.image(), log.state) == []
    assert _plainly(log) == _plainly(log_of(HISTORY, 1)), "broker epochs must be offsets, also in later batches"
    assert log.projector.mark.applied == log.end
    for pairs in made[:-1]:
        sizes = [1 if bound == "records" else len(value) for _, value in pairs[1:]]
        assert sum(sizes) >= most, "a batch is smaller than the limit requires"
        *_, last = embedded_events(pairs[0][1]).values  # type: ignore[union-attr]
        assert sum(sizes[: -_records_of(last)] or [0]) < most, "too large without its last command"


def _records_of(value: bytes) -> int:
    """The number of records of a history's event."""
    at = next(record.offset for record in HISTORY if entry(record) == value)
    before = len(log_of(HISTORY[:at], 1000).decoded()[-1].records) if at > 1 else 1
    return len(log_of(HISTORY[: at + 1], 1000).decoded()[-1].records) - before or len(HISTORY)


def test_records_of_one_command_are_never_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projector, "RECORDS_PER_BATCH", 5)
    commit, made = LogRig().take(HISTORY)
    assert len(made) == 1
    assert len(made[0]) > 20
    assert len(commit.entries) == len(HISTORY)


def entry(record: Recorded) -> bytes:
    return encode_event(record.at_ms, record.cause, record.event)


def test_a_failed_final_command_gets_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projector, "RECORDS_PER_BATCH", 1)
    log = log_of(HISTORY[:REAL], 1)
    log.projector.apply(log.state, [HISTORY[REAL]])
    with pytest.raises(CannotApply):
        log.projector.apply(log.state, [DOES_NOT_FIT])
    changes = log.projector.changes()
    made = log.projector.batches(REAL, [entry(HISTORY[REAL])])
    assert len(made) == 1
    for pairs in made:
        log.append(pairs)
    log.projector.became_durable()
    assert projector.MARK in changes
    assert log.projector.mark.applied == log.end


def test_a_recreated_acl_gets_a_new_id() -> None:
    """A broker that applies removal and creation together would otherwise add an id that it already has."""
    records = log_of(HISTORY).records()
    created = [record for record in records if isinstance(record, AccessControlEntryRecord)]
    removed = {record.id for record in records if isinstance(record, RemoveAccessControlEntryRecord)}
    ids = [record.id for record in created]
    assert len(set(ids)) == len(ids)
    entries = {record.id: (record.resource_type, record.resource_name, record.principal) for record in created}
    again = {entries[one] for one in removed} & {entry for one, entry in entries.items() if one not in removed}
    assert removed
    assert again == {entries[one] for one in removed}


def test_existing_state_is_written_after_the_first_features() -> None:
    earlier = history("access")
    later = real_history()
    shifted = [replace(record, offset=Offset(record.offset + len(earlier))) for record in later]
    log = log_of([*earlier, *shifted], 1)
    assert differences(log.image(), log.state) == []
    records = log.records()
    assert isinstance(records[0], FeatureLevelRecord)
    assert records[0].name == "metadata.version"
    assert any(isinstance(record, AccessControlEntryRecord) for record in records)
