"""The metadata log: what brokers are sent is what is; durable, the same bytes ever after, and bounded."""

from __future__ import annotations

import pytest

from controller.brokers.kraft.log.batches import decode_batches
from controller.brokers.kraft.log.image import MetadataImage
from controller.brokers.kraft.log.metadata_codec import decode_record
from controller.brokers.kraft.log.metadata_log import EpochStart, MetadataLog
from controller.brokers.kraft.log.metadata_records import RegisterBrokerRecord
from controller.brokers.kraft.log.snapshots import image_of, make_snapshot, snapshot_bytes
from tests.brokers.kraft.logs import LogRig, differences, log_of, real_history

HISTORY = real_history()
EACH_COMMIT = pytest.mark.parametrize("commits", [1, 2, 7, 1000])


def test_after_each_event_brokers_are_sent_what_is() -> None:
    log = LogRig()
    image = MetadataImage()
    at = 0
    for record in HISTORY:
        log.commit([record])
        for data in log.metadata.batches(at):
            image.fold(decode_batches(data))
        at = log.metadata.mark.end
        assert differences(image, log.state) == [], f"after {record}"
    assert at > 20


@EACH_COMMIT
def test_commits_of_any_size_write_the_same_records(commits: int) -> None:
    one, other = log_of(HISTORY, 1), log_of(HISTORY, commits)
    pairs = [[pair for batch in decode_batches(log.data()) for pair in batch.records] for log in (one, other)]
    assert pairs[0] == pairs[1]
    assert one.metadata.mark.end == other.metadata.mark.end
    assert one.metadata.mark.broker_epochs == other.metadata.mark.broker_epochs


@EACH_COMMIT
def test_the_bytes_are_the_same_after_a_restart(commits: int) -> None:
    log = log_of(HISTORY, commits)
    again = MetadataLog(log.log)
    assert b"".join(again.batches(0)) == log.data()
    assert again.mark == log.metadata.mark


def test_a_restart_in_the_middle_changes_no_byte() -> None:
    whole = log_of(HISTORY, 1)
    for cut in range(1, len(HISTORY), 3):
        first = log_of(HISTORY[:cut], 1)
        second = LogRig(first.log, first.state)
        for record in HISTORY[cut:]:
            second.commit([record])
        assert second.data() == whole.data(), f"restarted before {HISTORY[cut]}"


def test_what_is_not_durable_is_not_shown_and_may_go() -> None:
    log = log_of(HISTORY[:12], 1)
    mark, data = log.metadata.mark, log.data()
    log.write(HISTORY[12:16])
    assert (log.metadata.mark, log.data()) == (mark, data)
    log.log.drop_unflushed()
    log.metadata.reload()
    assert (log.metadata.mark, log.data()) == (mark, data)


def test_offsets_have_no_gaps_and_a_broker_has_the_offset_of_its_registration_for_an_epoch() -> None:
    log = log_of(HISTORY, 3)
    at = 0
    offsets: dict[int, int] = {}
    for batch in decode_batches(log.data()):
        assert batch.base_offset == at
        for offset, (_, value) in enumerate(batch.records, at):
            record = None if batch.is_control else decode_record(value)
            if isinstance(record, RegisterBrokerRecord):
                offsets[record.broker_id] = offset
                assert record.broker_epoch == offset
        at = batch.last_offset + 1
    assert offsets == dict(log.metadata.mark.broker_epochs)
    assert [log.metadata.broker_epoch(broker) for broker in (1, 2, 3, 9)] == [*(offsets[n] for n in (1, 2, 3)), -1]


@pytest.mark.parametrize("at", [8, 14, 20])
def test_a_snapshot_says_what_the_batches_say(at: int) -> None:
    log = log_of(HISTORY[:at], 1)
    mark = log.metadata.mark
    log.metadata.offer_snapshot(make_snapshot(log.metadata, mark.end, mark.epoch))
    for record in HISTORY[at:]:
        log.commit([record])
    assert log.metadata.mark.snapshots[-1].end_offset == mark.end
    again = image_of(MetadataLog(log.log))
    assert differences(again, log.state) == []
    whole = image_of(log_of(HISTORY, 1).metadata)
    assert snapshot_bytes(again, 1) == snapshot_bytes(whole, 1)


def test_batches_below_the_older_of_two_snapshots_go() -> None:
    log = log_of(HISTORY[:10], 1)
    sizes = []
    for record in HISTORY[10:16]:
        mark = log.metadata.mark
        log.metadata.offer_snapshot(make_snapshot(log.metadata, mark.end, mark.epoch))
        log.commit([record])
        sizes.append(len(list(log.log.scan(b"k"))))
    mark = log.metadata.mark
    assert len(mark.snapshots) == 2
    assert mark.start == mark.snapshots[0].end_offset
    assert next(decode_batches(log.data())).base_offset == mark.start
    assert max(sizes[2:]) <= 8
    assert mark.epochs[0] == EpochStart(1, 0)
    newest = mark.snapshots[-1]
    assert log.metadata.snapshot(newest.end_offset, newest.epoch) == newest
    assert log.metadata.snapshot(newest.end_offset, 99) is None
    assert len(log.metadata.snapshot_bytes(newest)) == newest.size


def test_read_gives_whole_batches_up_to_a_size_and_at_least_one() -> None:
    log = log_of(HISTORY, 1)
    batches = list(log.metadata.batches(0))
    assert log.metadata.read(0, 1) == batches[0]
    assert log.metadata.read(0, len(batches[0]) + len(batches[1])) == batches[0] + batches[1]
    assert log.metadata.read(log.metadata.mark.end, 1 << 20) == b""
