"""`apply` stops at what does not fit: such an event is a bug or damage, and must not be skipped."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from controller.machine.apply import CannotApply, apply_cluster, apply_topic, concerns_topic
from controller.machine.state import Cluster
from events import catalog
from events.catalog import Recorded
from events.names import BrokerId, Offset, RequestId, TopicName, shard_key
from tests.events.golden import HISTORIES, history
from tests.machine.audit.planted import clean
from tests.machine.rig import fold, topics_of
from tests.machine.tables import command, given


def _first(kind: type) -> Recorded:
    return next(record for record in clean() if isinstance(record.event, kind))


def _recorded(event: Any) -> Recorded:
    return Recorded(Offset(99), 1, catalog.Cause("CreateTopic", RequestId("q")), event)


ON_TOPICS = (
    catalog.TopicCreated,
    catalog.TopicDeleted,
    catalog.TopicReady,
    catalog.PartitionsAdded,
    catalog.LeaderElected,
    catalog.PlaceholderFilled,
    catalog.MetadataPropagated,
    catalog.TopicConfigsChanged,
)


@pytest.mark.parametrize("kind", [kind for kind in ON_TOPICS if kind is not catalog.TopicCreated])
def test_a_topic_that_is_not_there(kind: type) -> None:
    with pytest.raises(CannotApply, match=rf"event {kind.__name__} at offset \d+ cannot be applied: topic .* does not"):
        apply_topic(None, _first(kind))


@pytest.mark.parametrize("kind", [kind for kind in ON_TOPICS if kind is not catalog.TopicCreated])
def test_another_topic_under_the_same_key(kind: type) -> None:
    other = apply_topic(None, _recorded(replace(_first(catalog.TopicCreated).event, topic=TopicName("x.y"))))
    event = replace(_first(kind).event, topic=TopicName("x_y"))
    with pytest.raises(CannotApply, match="topic 'x_y' does not exist"):
        apply_topic(other, _recorded(event))


def test_a_topic_that_exists() -> None:
    created = _first(catalog.TopicCreated)
    topic = apply_topic(None, created)
    with pytest.raises(CannotApply, match="topic 'a' exists"):
        apply_topic(topic, created)


def test_a_topic_that_is_ready() -> None:
    created, ready = _first(catalog.TopicCreated), _first(catalog.TopicReady)
    with pytest.raises(CannotApply, match="topic 'a' is ready since"):
        apply_topic(apply_topic(apply_topic(None, created), ready), ready)


@pytest.mark.parametrize("index", [-1, 2])
@pytest.mark.parametrize("kind", [catalog.LeaderElected, catalog.PlaceholderFilled])
def test_a_partition_that_is_not_there(kind: type, index: int) -> None:
    topic = apply_topic(None, _first(catalog.TopicCreated))
    event = replace(_first(kind).event, topic=TopicName("a"), partition=index)
    with pytest.raises(CannotApply, match=f"topic 'a' has no partition {index}"):
        apply_topic(topic, _recorded(event))


def test_a_placeholder_that_is_not_there() -> None:
    topic = apply_topic(None, _first(catalog.TopicCreated))
    fill = catalog.PlaceholderFilled(TopicName("a"), 0, BrokerId(-7), BrokerId(3), 1)
    with pytest.raises(CannotApply, match="partition 0 has no placeholder -7"):
        apply_topic(topic, _recorded(fill))


def test_partitions_that_do_not_follow() -> None:
    topic = apply_topic(None, _first(catalog.TopicCreated))
    with pytest.raises(CannotApply, match="topic 'a' has 2 partitions"):
        apply_topic(topic, _recorded(replace(_first(catalog.PartitionsAdded).event, first=3)))


@pytest.mark.parametrize("kind", [catalog.BrokerFenced, catalog.BrokerUnfenced, catalog.BrokerUnregistered])
def test_a_broker_that_is_not_registered(kind: type) -> None:
    with pytest.raises(CannotApply, match="broker 7 is not registered"):
        apply_cluster(Cluster(), _recorded(kind(BrokerId(7), 1, "why")))


def test_a_topic_event_is_no_cluster_event() -> None:
    with pytest.raises(CannotApply, match="not an event of the cluster"):
        apply_cluster(Cluster(), _first(catalog.TopicCreated))


def test_settings_that_cannot_be_read() -> None:
    event = catalog.SettingsChanged((("num.partitions", "many"),), "1.0")
    with pytest.raises(ValueError, match="Expected `int`"):
        apply_cluster(Cluster(), _recorded(event))


def test_events_of_topics_and_of_the_cluster() -> None:
    records = [record for name in HISTORIES for record in history(name)]
    of_cluster = {type(record.event).__name__ for record in records if not concerns_topic(record.event)}
    of_access = {kind.__name__ for kind in catalog.EVENT_TYPES if kind.__module__ == "events.access"}
    assert of_cluster == of_access | {
        "BrokerRegistered", "BrokerFenced", "BrokerUnfenced", "BrokerUnregistered", "SettingsChanged",
        "BrokerLeaving", "LogDirsChanged", "QuorumEpochBegun", "FeaturesChanged", "ResourceConfigsChanged",
        "ProducerIdsAllocated", "HeadSigned",
    }  # fmt: skip


def test_a_waiting_topic_is_listed_until_it_is_ready_or_gone() -> None:
    log = clean()
    for end in range(len(log) + 1):
        state = fold(log[:end])
        offsets = sorted(topic.created_offset for topic in topics_of(state) if topic.ready_at_ms is None)
        assert list(state.waiting.values()) == offsets


def test_who_knows_a_topic_is_forgotten_when_all_do() -> None:
    created, known, ready = (
        _first(kind) for kind in (catalog.TopicCreated, catalog.MetadataPropagated, catalog.TopicReady)
    )
    halfway = fold([created, known]).topics.get(shard_key("a"))
    done = apply_topic(halfway, ready)
    assert halfway is not None
    assert done is not None
    assert (halfway.propagated, done.propagated) == ((1, 2), ())


@pytest.mark.parametrize(("timeout_ms", "deadline_ms"), [(1000, 1000), (0, 0), (-1, 0), (-(2**31), 0)])
@pytest.mark.parametrize("shape", ["1x1", "0x1"])
def test_a_deadline_is_never_before_the_request(timeout_ms: int, deadline_ms: int, shape: str) -> None:
    rig = given("1")
    request = command(rig, f"create t {shape} timeout={timeout_ms}")
    events: Any = rig.put(request).events
    assert events[0].deadline_ms - request.at_ms == deadline_ms
    assert getattr(events[1], "deadline_ms", events[0].deadline_ms) == events[0].deadline_ms
