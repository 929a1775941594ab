"""Batches and snapshots of other controllers as events: random walks, transactions (KIP-868), a log of Kafka 4.3,
unsupported records, and the check of embedded events."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from controller.brokers.kraft import importing_cluster
from controller.brokers.kraft.applier import first_difference, numbered
from controller.brokers.kraft.importing import import_snapshot
from controller.brokers.kraft.projection import topic_records
from controller.kafka.messages import records as kinds
from controller.kafka.messages.records import MetadataRecord
from controller.quorum.log.batches import decode_batches, encode_batch, snapshot_footer
from controller.quorum.log.image import MetadataImage, Transactions
from controller.quorum.log.metadata_codec import encode_record
from controller.quorum.log.record_kinds import CORDONED_SINCE
from events.catalog import CreateAnswered, Event, HistorySkipped, TopicConfigsChanged, TopicDiscovered, TopicVanished
from events.external_decision import skipped_snapshot
from tests.brokers.kraft.follower import (
    ENTRY,
    ORDERS,
    PAY,
    Follower,
    batches,
    change,
    config,
    followed,
    level,
    partition,
)
from tests.brokers.kraft.kafka_walks import Batch, walk, walks
from tests.brokers.kraft.logs import access_history, log_of, snapshot_bytes
from tests.machine.audit.auditor import audit
from tests.machine.audit.lifecycle import Lives
from tests.projections.logs import story


@settings(max_examples=60, deadline=None)
@given(walks())
def test_imported_events_project_to_the_same_records(batches: tuple[Batch, ...]) -> None:
    follower = Follower()
    for records in batches:
        follower.take(*records)
        assert follower.differences() == [], f"after {records}"
    assert follower.unsupported is None


@settings(max_examples=20, deadline=None)
@given(walks())
def test_an_import_in_slices_gives_the_same_state(batches: tuple[Batch, ...]) -> None:
    whole, sliced = Follower(), Follower()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importing_cluster, "STEPS_PER_SLICE", 1)
        for records in batches:
            assert sliced.take(*records, in_slices=True) == whole.take(*records)
    assert sliced.differences() == []
    assert sliced.ids == whole.ids


def test_import_walks_reach_every_importable_event() -> None:
    met = set()
    for seed in range(40):
        follower = Follower()
        for records in walk(seed, 40):
            met |= {type(event).__name__ for event in follower.take(*records)}
    assert met == {
        "AclsCreated", "AclsDeleted", "BrokerFenced", "BrokerLeaving", "BrokerRegistered", "BrokerUnfenced",
        "BrokerUnregistered", "FeaturesChanged", "LogDirsChanged", "PartitionChanged", "PartitionsAdded",
        "ProducerIdsAllocated", "QuotasChanged", "ResourceConfigsChanged", "ScramCredentialRemoved",
        "ScramCredentialSet", "TopicConfigsChanged", "TopicDiscovered", "TopicVanished",
    }  # fmt: skip


def with_a_topic_that_waits() -> Follower:
    """A voter that created a topic and lost leadership before brokers had applied it."""
    follower = Follower()
    for record in story("fewer\nquorum\njoin 1\njoin 2\nunfence 1\nunfence 2\ncreate t 1x2 id=ask").log:
        follower.record(record)
    for topic in follower.topics():
        for one in topic_records(None, topic, CORDONED_SINCE):
            follower.image.apply(one)
    return follower


def test_an_external_deletion_answers_the_pending_create() -> None:
    follower = with_a_topic_that_waits()
    (topic,) = follower.topics()
    events = follower.take(kinds.RemoveTopicRecord(topic_id=topic.topic_id))
    assert [type(event) for event in events] == [TopicVanished, CreateAnswered]
    assert isinstance(events[1], CreateAnswered)
    assert (events[1].request_id, events[1].error_code) == ("ask", 3)
    assert follower.topics() == []
    assert follower.state.waiting == {}
    assert audit(follower.log) == []


def test_an_external_change_does_not_answer_the_pending_create() -> None:
    follower = with_a_topic_that_waits()
    (topic,) = follower.topics()
    follower.take(kinds.PartitionChangeRecord(topic_id=topic.topic_id, partition_id=0, isr=(1,), leader=1))
    (changed,) = follower.topics()
    assert (changed.pending_create, changed.ready_at_ms, changed.partitions[0].isr) == (
        topic.pending_create,
        None,
        (1,),
    )
    assert follower.state.waiting.keys() == {"t"}


def test_first_difference_names_the_differing_record() -> None:
    records = log_of(access_history(), is_kafkas=True).records()
    place = next(n for n, each in enumerate(records) if isinstance(each, kinds.PartitionRecord))
    one = records[place]
    assert isinstance(one, kinds.PartitionRecord)
    values = [encode_record(each) for each in records]
    found = first_difference(values, [*values[:place], encode_record(replace(one, leader=9)), *values[place + 1 :]])
    assert found.startswith(f"record {place} of the batch is PartitionRecord(version=2, partition_id=0")
    fewer, more = values[:place], values[: place + 1]
    for shorter in (first_difference(fewer, more), first_difference(more, fewer)):
        assert "nothing" in shorter
        assert len(shorter) < 500


BEGIN, END, ABORT = kinds.BeginTransactionRecord(), kinds.EndTransactionRecord(), kinds.AbortTransactionRecord()
A, B, C = (kinds.TopicRecord(name=name, topic_id=name.encode() * 16) for name in "abc")


def test_records_of_a_metadata_transaction_apply_at_its_end() -> None:
    # a batch, the records applied after it, and the offset of an open transaction
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


def test_batch_records_have_offsets_and_malformed_ones_are_unknown() -> None:
    broken = encode_record(A)[:-3]
    values = [(None, encode_record(A)), (None, broken), (None, b""), (None, b"\x01\xff\xff\x03\x00")]
    data = encode_batch(7, 1, 5, values) + encode_batch(11, 1, 5, [snapshot_footer()], is_control=True)
    first, control = decode_batches(data)
    found = list(numbered(first))
    assert found[0] == (7, A)
    assert [offset for offset, _ in found] == [7, 8, 9, 10]
    assert all(isinstance(record, kinds.UnknownRecord) for _, record in found[1:])
    assert list(numbered(control)) == []


GOLDEN = Path(__file__).parents[2] / "golden" / "kafka-4.3-metadata.log"


def test_a_log_of_kafka_is_imported_completely() -> None:
    follower, transactions = Follower(node_id=1), Transactions()
    for batch in decode_batches(GOLDEN.read_bytes()):
        follower.epoch, follower.offset = batch.leader_epoch, batch.base_offset
        counting = transactions.complete(numbered(batch))
        follower.take(*(record for _, record in counting))
        assert follower.differences() == [], f"after the batch at offset {batch.base_offset}"
    assert (follower.unsupported, transactions.begun_at) == (None, None)
    assert follower.state.cluster.live == (1, 2, 3)
    assert follower.topics()
    assert {each.partition(":")[0] for each in audit(follower.log)} == {"settings-first"}, (
        "Topicwright's own begin with settings"
    )
    Lives().see_all(follower.log)


def take_snapshot(follower: Follower, image: MetadataImage, end: int) -> list[Event]:
    """Import a snapshot of everything below `end`, after a round trip."""
    read = MetadataImage()
    read.fold(decode_batches(snapshot_bytes(image, 8)))
    skipped = HistorySkipped(follower.offset, end, 8, "it was away")
    slices = list(import_snapshot(follower.state, follower.topics(), follower.ids, read, 1000 + end, skipped))
    follower.image, follower.offset = read, end
    return [event for one in slices for event in follower.apply(one, skipped_snapshot(skipped), 1000 + end)]


@settings(max_examples=40, deadline=None)
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
    for records in walked[left + away :]:  # then it continues to follow
        late.take(*records)
        assert late.differences() == [], f"after {records}"
    assert late.unsupported is None


def test_an_equal_snapshot_imports_only_the_skipped_history() -> None:
    follower = followed()
    assert take_snapshot(follower, follower.image, follower.offset + 5) == [
        HistorySkipped(follower.offset - 5, follower.offset, 8, "it was away")
    ]


def test_a_single_partition_change_is_imported_as_one() -> None:
    one = follower()
    for record in (change(ORDERS, 1, isr=(2,)), partition(ORDERS, 4, 2), config(2, "orders", "retention.ms", "9")):
        one.image.apply(record)
    names = [type(event).__name__ for event in take_snapshot(one, one.image, 99)]
    assert names == ["HistorySkipped", "PartitionChanged", "PartitionsAdded", "TopicConfigsChanged"]


@pytest.mark.parametrize("misfit", [b"\x01\x02\x00", encode_record(change(b"\x66" * 16, 0, isr=(2,)))])
def test_a_mismatched_record_is_named_and_others_are_imported(misfit: bytes) -> None:
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
    assert ([type(event) for event in events], follower.unsupported) == ([HistorySkipped], followed().unsupported)


def test_missing_partitions_are_imported_with_the_whole_topic() -> None:
    follower = followed()
    del follower.image.partitions[ORDERS][3]
    events = take_snapshot(follower, follower.image, 200)
    assert [type(event) for event in events] == [HistorySkipped, TopicDiscovered]
    assert follower.differences() == []


UNSUPPORTED: dict[str, tuple[tuple[MetadataRecord, ...], str]] = {
    "a newer record": (
        (kinds.UnknownRecord(value=b"\x01\x78\x02\x00"),),
        "a record of type 120, version 2 at offset 37",
    ),
    "no record": ((kinds.UnknownRecord(value=b""),), "an invalid record at offset 37"),
    "a newer metadata.version": (
        (level("metadata.version", 99),),
        "feature metadata.version has level 99, which is not supported; allowed: 17 to 33",
    ),
    "an older metadata.version": ((level("metadata.version", 16),), "metadata.version is 16; it must be 17 (3.7)"),
    "a new feature": ((level("new.version", 1),), "feature new.version has level 1, which is unknown"),
    "a migration": ((kinds.ZkMigrationStateRecord(zk_migration_state=2),), "ZkMigrationStateRecord at offset 37"),
    "a login of a new kind": (
        (kinds.UserScramCredentialRecord(name="eve", mechanism=9),),
        "a SCRAM credential of user 'eve' with mechanism 9",
    ),
    "an entry twice": ((ENTRY, replace(ENTRY, id=b"\x55" * 16)), "an ACL with two ids"),
    "no such entry": (
        (kinds.RemoveAccessControlEntryRecord(id=b"\x55" * 16),),
        f"removal of the unknown ACL {'55' * 16}",
    ),
    "a name that collides": (
        (kinds.TopicRecord(name="pay.eu", topic_id=PAY), partition(PAY, 0, 2)),
        "topic 'pay.eu' is created although 'pay_eu' exists",
    ),
    "an id that is taken": ((kinds.TopicRecord(name="new", topic_id=ORDERS),), "topic 'new' has the id of 'orders'"),
    "no partitions": ((kinds.TopicRecord(name="new", topic_id=b"\x66" * 16),), "topic 'new' has no partitions"),
    "gaps in new partitions": (
        (kinds.TopicRecord(name="new", topic_id=b"\x66" * 16), partition(b"\x66" * 16, 1, 2)),
        "topic 'new' has gaps in them",
    ),
    "gaps in more partitions": ((partition(ORDERS, 9, 2),), "the partitions of topic 'orders' have gaps"),
    "configs of nothing": ((config(2, "nothing", "retention.ms", "1"),), "configs of the unknown topic 'nothing'"),
    "a change of no topic": (
        (change(b"\x66" * 16, 0, isr=(2,)),),
        "PartitionChangeRecord at offset 37: PartitionChangeRecord",
    ),
    "a change of no partition": ((change(ORDERS, 7, isr=(2,)),), "PartitionChangeRecord at offset 37: "),
    "an end of no topic": ((kinds.RemoveTopicRecord(topic_id=b"\x66" * 16),), "RemoveTopicRecord at offset 37: "),
    "an old epoch": (
        (kinds.UnregisterBrokerRecord(broker_id=1, broker_epoch=3),),
        "UnregisterBrokerRecord at offset 37: ",
    ),
    "a transaction that is not complete": ((kinds.BeginTransactionRecord(),), "BeginTransactionRecord at offset"),
}


def follower() -> Follower:
    one = Follower()
    for batch in batches():
        one.take(*batch)
    assert one.unsupported is None
    assert one.offset == 37
    return one


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_an_unsupported_record_is_named_and_others_are_imported(name: str) -> None:
    records, why = UNSUPPORTED[name]
    one = follower()
    events = one.take(*records, config(2, "orders", "retention.ms", "5"))
    assert one.unsupported is not None
    assert one.unsupported.startswith(why)
    assert any(isinstance(event, TopicConfigsChanged) for event in events), "the rest of the batch is imported"
    assert one.state.cluster.brokers


def test_the_name_of_an_unsupported_record_is_truncated() -> None:
    one = follower()
    one.take(config(2, "x" * 32_000, "retention.ms", "1"))
    assert one.unsupported is not None
    assert len(one.unsupported) <= 300
