"""Batches of other controllers as events: random walks, transactions (KIP-868), a log of Kafka 4.3, and the check of
embedded events."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from controller.brokers.kraft import importing_cluster
from controller.brokers.kraft.following import Transactions, first_difference, numbered
from controller.brokers.kraft.log import metadata_records as kinds
from controller.brokers.kraft.log.batches import decode_batches, encode_batch, snapshot_footer
from controller.brokers.kraft.log.metadata_codec import decode_record, encode_record
from controller.brokers.kraft.log.metadata_records import MetadataRecord
from controller.brokers.kraft.log.projection import topic_records
from events.catalog import CreateAnswered, TopicVanished
from tests.brokers.kraft.importing.following import LEVEL, Follower
from tests.brokers.kraft.importing.kafka_walks import Batch, walk, walks
from tests.brokers.kraft.logs import LogRig, access_history, log_of
from tests.machine.audit.auditor import audit
from tests.machine.audit.lifecycle import Lives
from tests.machine.audit.real_auditor import RealAuditor
from tests.projections.logs import story


@settings(max_examples=200, deadline=None)
@given(walks())
def test_imported_events_project_to_the_same_records(batches: tuple[Batch, ...]) -> None:
    follower = Follower()
    for records in batches:
        follower.take(*records)
        assert follower.differences() == [], f"after {records}"
    assert follower.unsupported is None


@settings(max_examples=50, deadline=None)
@given(walks())
def test_slices_applied_one_by_one_give_the_same_state(batches: tuple[Batch, ...]) -> None:
    whole, sliced = Follower(), Follower()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importing_cluster, "STEPS_PER_SLICE", 1)
        for records in batches:
            assert sliced.take(*records, in_slices=True) == whole.take(*records)
    assert sliced.differences() == []
    assert sliced.ids == whole.ids


def test_the_walks_reach_every_importable_event() -> None:
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
    """A voter that created a topic and lost leadership before the brokers knew it."""
    follower = Follower()
    for record in story("fewer\nquorum\njoin 1\njoin 2\nunfence 1\nunfence 2\ncreate t 1x2 id=ask").log:
        follower.record(record)
    for topic in follower.topics():
        for one in topic_records(None, topic, LEVEL):
            follower.image.apply(one)
    return follower


def test_a_create_that_waits_for_a_topic_that_another_controller_deletes_is_answered() -> None:
    follower = with_a_topic_that_waits()
    (topic,) = follower.topics()
    events = follower.take(kinds.RemoveTopicRecord(topic_id=topic.topic_id))
    assert [type(event) for event in events] == [TopicVanished, CreateAnswered]
    assert isinstance(events[1], CreateAnswered)
    assert (events[1].request_id, events[1].error_code) == ("ask", 3)
    assert follower.topics() == []
    assert follower.state.waiting == {}
    assert audit(follower.log, of=RealAuditor) == []


def test_a_topic_that_waits_here_goes_on_waiting_when_others_change_it() -> None:
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


def records_of(log: LogRig) -> list[MetadataRecord]:
    batches = (batch for batch in decode_batches(log.data()) if not batch.is_control)
    return [decode_record(value) for batch in batches for _, value in batch.records]


def test_equal_projections_do_not_differ() -> None:
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


BEGIN, END, ABORT = kinds.BeginTransactionRecord(), kinds.EndTransactionRecord(), kinds.AbortTransactionRecord()
A, B, C = (kinds.TopicRecord(name=name, topic_id=name.encode() * 16) for name in "abc")


def test_records_of_transactions_apply_when_they_end() -> None:
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


GOLDEN = Path(__file__).parents[3] / "golden" / "kafka-4.3-metadata.log"


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
    assert {each.check for each in audit(follower.log, of=RealAuditor)} == {"settings-first"}, "our own come first"
    Lives().see_all(follower.log)
