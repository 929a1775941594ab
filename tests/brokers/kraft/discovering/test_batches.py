"""What another controller decided, batch by batch: the events that say it, and the law that they keep."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from controller.brokers.kraft.discovering import reading
from tests.brokers.kraft.discovering.following import Follower
from tests.brokers.kraft.discovering.kafka_walks import Batch, walk, walks


@settings(max_examples=200, deadline=None)
@given(walks())
def test_the_state_says_what_the_records_say(batches: tuple[Batch, ...]) -> None:
    follower = Follower()
    for records in batches:
        follower.take(*records)
        assert follower.differences() == [], f"after {records}"
    assert follower.unfoldable is None


@settings(max_examples=50, deadline=None)
@given(walks())
def test_slices_that_are_applied_one_by_one_lead_to_the_same(batches: tuple[Batch, ...]) -> None:
    whole, sliced = Follower(), Follower()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "STEPS_PER_SLICE", 1)
        for records in batches:
            assert sliced.take(*records, in_slices=True) == whole.take(*records)
    assert sliced.differences() == []
    assert sliced.wire == whole.wire


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
