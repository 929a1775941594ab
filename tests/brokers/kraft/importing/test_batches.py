"""What another controller decided, batch by batch: the events that say it, and the law that they keep."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from controller.brokers.kraft.importing import collector
from controller.brokers.kraft.log import metadata_records as kinds
from controller.brokers.kraft.log.projection import topic_records
from events.catalog import CreateAnswered, TopicVanished
from tests.brokers.kraft.importing.following import LEVEL, Follower
from tests.brokers.kraft.importing.kafka_walks import Batch, walk, walks
from tests.machine.audit.auditor import audit
from tests.machine.audit.real_auditor import RealAuditor
from tests.projections.logs import story


@settings(max_examples=200, deadline=None)
@given(walks())
def test_the_state_says_what_the_records_say(batches: tuple[Batch, ...]) -> None:
    follower = Follower()
    for records in batches:
        follower.take(*records)
        assert follower.differences() == [], f"after {records}"
    assert follower.unsupported is None


@settings(max_examples=50, deadline=None)
@given(walks())
def test_slices_that_are_applied_one_by_one_lead_to_the_same(batches: tuple[Batch, ...]) -> None:
    whole, sliced = Follower(), Follower()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collector, "STEPS_PER_SLICE", 1)
        for records in batches:
            assert sliced.take(*records, in_slices=True) == whole.take(*records)
    assert sliced.differences() == []
    assert sliced.ids == whole.ids


def test_the_walks_meet_every_event_that_can_be_discovered() -> None:
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
    """A voter that led, created a topic, and lost the lead before the brokers knew it."""
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
    assert (changed.waiter, changed.ready_at_ms, changed.partitions[0].isr) == (topic.waiter, None, (1,))
    assert follower.state.waiting.keys() == {"t"}
