"""The difference of a snapshot to the state, as events, keeps the law too: whatever was between the two."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.brokers.kraft.discovering import reading
from controller.brokers.kraft.discovering.snapshot import discovered_snapshot
from controller.brokers.kraft.log import metadata_records as kinds
from controller.brokers.kraft.log.batches import decode_batches, encode_batch
from controller.brokers.kraft.log.image import MetadataImage
from controller.brokers.kraft.log.metadata_codec import encode_record
from controller.brokers.kraft.log.snapshots import snapshot_bytes
from events.catalog import Event, HistorySkipped, TopicDiscovered
from events.external_decision import skipped_snapshot
from tests.brokers.kraft.discovering.following import Follower
from tests.brokers.kraft.discovering.kafka_walks import Batch, walks
from tests.brokers.kraft.discovering.story import ORDERS, batches, change, config, followed, partition


def take_snapshot(follower: Follower, image: MetadataImage, end: int) -> list[Event]:
    """Take a snapshot of all below `end`, which has been through its bytes."""
    read = MetadataImage()
    read.fold(decode_batches(snapshot_bytes(image, 8)))
    skipped = HistorySkipped(follower.offset, end, 8, "it was away")
    slices = list(discovered_snapshot(follower.state, follower.topics(), follower.wire, read, 1000 + end, skipped))
    follower.image, follower.offset = read, end
    return [event for one in slices for event in follower.apply(one, skipped_snapshot(skipped), 1000 + end)]


@settings(max_examples=100, deadline=None)
@given(walks(), st.integers(1, 40), st.integers(0, 40))
def test_a_voter_that_was_away_is_where_one_is_that_was_not(walked: tuple[Batch, ...], left: int, away: int) -> None:
    there, late = Follower(), Follower()
    for records in walked[:left]:
        there.take(*records)
        late.take(*records)
    for records in walked[left : left + away]:
        there.take(*records)
    events = take_snapshot(late, there.image, there.offset)
    assert isinstance(events[0], HistorySkipped)
    assert late.differences() == []
    assert late.wire == there.wire
    for records in walked[left + away :]:  # and it follows on
        late.take(*records)
        assert late.differences() == [], f"after {records}"
    assert late.unfoldable is None


def test_nothing_that_changed_is_nothing_but_that_it_is_not_known() -> None:
    follower = followed()
    assert take_snapshot(follower, follower.image, follower.offset + 5) == [
        HistorySkipped(follower.offset - 5, follower.offset, 8, "it was away")
    ]


def test_what_a_single_step_explains_is_said_as_one() -> None:
    follower = Follower()
    for batch in batches():
        follower.take(*batch)
    for record in (change(ORDERS, 1, isr=(2,)), partition(ORDERS, 4, 2), config(2, "orders", "retention.ms", "9")):
        follower.image.apply(record)
    names = [type(event).__name__ for event in take_snapshot(follower, follower.image, 99)]
    assert names == ["HistorySkipped", "PartitionChanged", "PartitionsAdded", "TopicConfigsChanged"]


@pytest.mark.parametrize("misfit", [b"\x01\x02\x00", encode_record(change(b"\x66" * 16, 0, isr=(2,)))])
def test_a_record_that_does_not_fit_is_named_and_all_else_is_taken(misfit: bytes) -> None:
    values = (encode_record(each) for each in (config(4, "1", "log.retention.ms", "5"), *next(batches())))
    read = MetadataImage()
    read.fold(decode_batches(encode_batch(0, 8, 5, [(None, each) for each in (misfit, *values)])), keep_misfits=True)
    one = Follower()
    skipped = HistorySkipped(0, 9, 8, "it was away")
    slices = list(discovered_snapshot(one.state, (), one.wire, read, 1000, skipped))
    assert any(each.unfoldable for each in slices)
    assert len([event for each in slices for event in each.events]) > 1


def test_a_slice_is_taken_after_so_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    follower = followed()
    skipped = HistorySkipped(137, 140, 8, "it was away")

    def slices() -> int:
        found = discovered_snapshot(Follower().state, (), Follower().wire, follower.image, 1000, skipped)
        return len(list(found))

    whole = slices()
    monkeypatch.setattr(reading, "STEPS_PER_SLICE", 1)
    assert (whole, slices() > 5) == (1, True)


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (kinds.UnknownRecord(value=b"\1\x78\2\0"), "a record of type 120, version 2 in a snapshot"),
        (kinds.ZkMigrationStateRecord(zk_migration_state=1), "ZkMigrationStateRecord in a snapshot"),
        (kinds.TopicRecord(name="a.udit", topic_id=b"\6" * 16), "topic 'a.udit' has no partitions"),
        (kinds.TopicRecord(name="orders", topic_id=b"\6" * 16), "topics 'orders' and 'orders', whose names collide"),
        (partition(ORDERS, 9, 2), "the partitions of topic 'orders' have gaps"),
    ],
)
def test_what_cannot_be_said_is_named(record: kinds.MetadataRecord, why: str) -> None:
    follower = followed()
    follower.image.apply(record)
    take_snapshot(follower, follower.image, 200)
    assert follower.unfoldable == why
    assert any(topic.name == "orders" for topic in follower.topics())


def test_configs_that_kafka_keeps_of_a_deleted_topic_are_passed_over() -> None:
    follower = followed()
    follower.image.apply(config(2, "nothing", "retention.ms", "1"))
    events = take_snapshot(follower, follower.image, 200)
    assert ([type(event) for event in events], follower.unfoldable) == (
        [HistorySkipped],
        followed().unfoldable,
    )


def test_partitions_that_are_gone_are_said_with_the_whole_topic() -> None:
    follower = followed()
    del follower.image.partitions[ORDERS][3]
    events = take_snapshot(follower, follower.image, 200)
    assert [type(event) for event in events] == [HistorySkipped, TopicDiscovered]
    assert follower.differences() == []
