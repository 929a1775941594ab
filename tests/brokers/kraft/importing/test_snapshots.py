"""The import of a snapshot's difference keeps the invariant too, whatever happened in between."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.brokers.kraft import importing_cluster
from controller.brokers.kraft.importing import import_snapshot
from controller.brokers.kraft.log import metadata_records as kinds
from controller.brokers.kraft.log.batches import decode_batches, encode_batch
from controller.brokers.kraft.log.image import MetadataImage, snapshot_bytes
from controller.brokers.kraft.log.metadata_codec import encode_record
from events.catalog import Event, HistorySkipped, TopicDiscovered
from events.external_decision import skipped_snapshot
from tests.brokers.kraft.importing.following import Follower
from tests.brokers.kraft.importing.kafka_walks import Batch, walks
from tests.brokers.kraft.importing.story import ORDERS, batches, change, config, followed, partition


def take_snapshot(follower: Follower, image: MetadataImage, end: int) -> list[Event]:
    """Import a snapshot of everything below `end`, after a round trip."""
    read = MetadataImage()
    read.fold(decode_batches(snapshot_bytes(image, 8)))
    skipped = HistorySkipped(follower.offset, end, 8, "it was away")
    slices = list(import_snapshot(follower.state, follower.topics(), follower.ids, read, 1000 + end, skipped))
    follower.image, follower.offset = read, end
    return [event for one in slices for event in follower.apply(one, skipped_snapshot(skipped), 1000 + end)]


@settings(max_examples=100, deadline=None)
@given(walks(), st.integers(1, 40), st.integers(0, 40))
def test_a_snapshot_import_equals_following(walked: tuple[Batch, ...], left: int, away: int) -> None:
    there, late = Follower(), Follower()
    for records in walked[:left]:
        there.take(*records)
        late.take(*records)
    for records in walked[left : left + away]:
        there.take(*records)
    events = take_snapshot(late, there.image, there.offset)
    assert isinstance(events[0], HistorySkipped)
    assert late.differences() == []
    assert late.ids == there.ids
    for records in walked[left + away :]:  # and it follows on
        late.take(*records)
        assert late.differences() == [], f"after {records}"
    assert late.unsupported is None


def test_an_equal_snapshot_imports_only_the_skipped_history() -> None:
    follower = followed()
    assert take_snapshot(follower, follower.image, follower.offset + 5) == [
        HistorySkipped(follower.offset - 5, follower.offset, 8, "it was away")
    ]


def test_a_single_partition_change_is_imported_as_one() -> None:
    follower = Follower()
    for batch in batches():
        follower.take(*batch)
    for record in (change(ORDERS, 1, isr=(2,)), partition(ORDERS, 4, 2), config(2, "orders", "retention.ms", "9")):
        follower.image.apply(record)
    names = [type(event).__name__ for event in take_snapshot(follower, follower.image, 99)]
    assert names == ["HistorySkipped", "PartitionChanged", "PartitionsAdded", "TopicConfigsChanged"]


@pytest.mark.parametrize("misfit", [b"\x01\x02\x00", encode_record(change(b"\x66" * 16, 0, isr=(2,)))])
def test_a_mismatched_record_is_named_and_the_rest_imported(misfit: bytes) -> None:
    values = (encode_record(each) for each in (config(4, "1", "log.retention.ms", "5"), *next(batches())))
    read = MetadataImage()
    read.fold(decode_batches(encode_batch(0, 8, 5, [(None, each) for each in (misfit, *values)])), keep_mismatched=True)
    one = Follower()
    skipped = HistorySkipped(0, 9, 8, "it was away")
    slices = list(import_snapshot(one.state, (), one.ids, read, 1000, skipped))
    assert any(each.unsupported for each in slices)
    assert len([event for each in slices for event in each.events]) > 1


def test_an_import_is_sliced_by_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    follower = followed()
    skipped = HistorySkipped(137, 140, 8, "it was away")

    def slices() -> int:
        found = import_snapshot(Follower().state, (), Follower().ids, follower.image, 1000, skipped)
        return len(list(found))

    whole = slices()
    monkeypatch.setattr(importing_cluster, "STEPS_PER_SLICE", 1)
    assert (whole, slices() > 5) == (1, True)


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (kinds.UnknownRecord(value=b"\1\x78\2\0"), "a record of type 120, version 2 in a snapshot"),
        (kinds.ZkMigrationStateRecord(zk_migration_state=1), "ZkMigrationStateRecord in a snapshot"),
        (kinds.TopicRecord(name="a.udit", topic_id=b"\6" * 16), "topic 'a.udit' has no partitions"),
        (kinds.TopicRecord(name="orders", topic_id=b"\6" * 16), "colliding topic names 'orders' and 'orders'"),
        (partition(ORDERS, 9, 2), "the partitions of topic 'orders' have gaps"),
    ],
)
def test_unsupported_records_of_a_snapshot_are_named(record: kinds.MetadataRecord, why: str) -> None:
    follower = followed()
    follower.image.apply(record)
    take_snapshot(follower, follower.image, 200)
    assert follower.unsupported == why
    assert any(topic.name == "orders" for topic in follower.topics())


def test_configs_of_a_deleted_topic_in_a_snapshot_are_ignored() -> None:
    follower = followed()
    follower.image.apply(config(2, "nothing", "retention.ms", "1"))
    events = take_snapshot(follower, follower.image, 200)
    assert ([type(event) for event in events], follower.unsupported) == (
        [HistorySkipped],
        followed().unsupported,
    )


def test_missing_partitions_are_imported_with_the_whole_topic() -> None:
    follower = followed()
    del follower.image.partitions[ORDERS][3]
    events = take_snapshot(follower, follower.image, 200)
    assert [type(event) for event in events] == [HistorySkipped, TopicDiscovered]
    assert follower.differences() == []
