"""`apply` raises on an event that does not fit the state. Such an event is a bug or damage, and must not be skipped."""

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


def _record_of(event: Any) -> Recorded:
    return Recorded(Offset(99), 1, catalog.Cause("CreateTopic", RequestId("q")), event)


ON_TOPICS = (
    catalog.TopicDeleted,
    catalog.TopicReady,
    catalog.PartitionsAdded,
    catalog.PartitionChanged,
    catalog.MetadataPropagated,
    catalog.TopicConfigsChanged,
)


@pytest.mark.parametrize("kind", ON_TOPICS)
def test_events_of_a_missing_topic_or_a_colliding_name_cannot_be_applied(kind: type) -> None:
    with pytest.raises(CannotApply, match=rf"event {kind.__name__} at offset \d+ cannot be applied: topic .* does not"):
        apply_topic(None, _first(kind))
    other = apply_topic(None, _record_of(replace(_first(catalog.TopicCreated).event, topic=TopicName("x.y"))))
    event = replace(_first(kind).event, topic=TopicName("x_y"))
    with pytest.raises(CannotApply, match="topic 'x_y' does not exist"):
        apply_topic(other, _record_of(event))


A = TopicName("a")
NOT_OF_ITS_TOPIC = [
    (_first(catalog.TopicCreated).event, "topic 'a' exists"),
    (replace(_first(catalog.PartitionsAdded).event, topic=A, first=3), "topic 'a' has 2 partitions"),
    *(
        (replace(_first(catalog.PartitionChanged).event, topic=A, partition=n), f"topic 'a' has no partition {n}")
        for n in (-1, 2)
    ),
]


@pytest.mark.parametrize(("event", "message"), NOT_OF_ITS_TOPIC)
def test_inapplicable_topic_events_are_an_error(event: Any, message: str) -> None:
    topic = apply_topic(None, _first(catalog.TopicCreated))
    with pytest.raises(CannotApply, match=message):
        apply_topic(topic, _record_of(event))


def test_topic_ready_applies_once() -> None:
    created, ready = _first(catalog.TopicCreated), _first(catalog.TopicReady)
    with pytest.raises(CannotApply, match="topic 'a' is ready since"):
        apply_topic(apply_topic(apply_topic(None, created), ready), ready)


def test_inapplicable_cluster_events_are_an_error() -> None:
    for kind in (catalog.BrokerFenced, catalog.BrokerUnfenced, catalog.BrokerUnregistered):
        with pytest.raises(CannotApply, match="broker 7 is not registered"):
            apply_cluster(Cluster(), _record_of(kind(BrokerId(7), 1, "why")))
    with pytest.raises(CannotApply, match="not an event of the cluster"):
        apply_cluster(Cluster(), _first(catalog.TopicCreated))


def test_malformed_settings_cannot_be_applied() -> None:
    event = catalog.SettingsChanged((("num.partitions", "many"),), "1.0")
    with pytest.raises(ValueError, match="Expected `int`"):
        apply_cluster(Cluster(), _record_of(event))


def test_cluster_events_are_listed() -> None:
    records = [record for name in HISTORIES for record in history(name)]
    of_cluster = {type(record.event).__name__ for record in records if not concerns_topic(record.event)}
    of_access = {kind.__name__ for kind in catalog.EVENT_TYPES if kind.__module__ == "events.access"}
    assert of_cluster == of_access | {
        "BrokerRegistered", "BrokerFenced", "BrokerUnfenced", "BrokerUnregistered", "SettingsChanged",
        "BrokerLeaving", "LogDirsChanged", "QuorumEpochBegun", "FeaturesChanged", "ResourceConfigsChanged",
        "ProducerIdsAllocated", "HeadSigned", "RulesApplied", "ApprovalRequested", "ApprovalDecided",
    }  # fmt: skip


def test_pending_topics_are_listed_until_ready_or_deleted() -> None:
    log = clean()
    for end in range(len(log) + 1):
        state = fold(log[:end])
        offsets = sorted(topic.created_offset for topic in topics_of(state) if topic.ready_at_ms is None)
        assert list(state.waiting.values()) == offsets


def test_topic_ready_clears_the_propagated_brokers() -> None:
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
def test_a_create_deadline_is_never_before_the_request(timeout_ms: int, deadline_ms: int, shape: str) -> None:
    rig = given("1")
    request = command(rig, f"create t {shape} timeout={timeout_ms}")
    events: Any = rig.put(request).events
    assert events[0].deadline_ms - request.at_ms == deadline_ms
    assert getattr(events[1], "deadline_ms", events[0].deadline_ms) == events[0].deadline_ms


MESSAGES = """
1 | create a~b 1x1 | Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'
1 has:a.b | create a_b 1x1 | Topic 'a_b' collides with existing topic: a.b
1 has:t | create t 1x1 | Topic 't' already exists. It was created at 2023-11-14T22:13:20.004Z and is ready.
1 waits:t | create t 1x1 | Topic 't' already exists. It was created at 2023-11-14T22:13:20.004Z and is not ready yet.
1 | create t 1x1 denied=29 | Authorization failed.
1 | create t -1x1 v=0 | Number of partitions was set to an invalid non-positive value. The default needs CreateTopics version 1.
1 | create t 1x-1 v=0 | Replication factor must be larger than 0, or -1 to use the default value. The default needs CreateTopics version 1.
1 | create t 10001x1 | Excessively large number of partitions per request. 10001 partitions and their other records exceed the limit of 10000.
1 | create t 10000x1 | Unable to perform excessively large batch operation. 10000 partitions and their other records exceed the limit of 10000.
1 2 | create t 1x3 | Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because only 2 broker(s) are registered or some brokers have all their log directories cordoned.
1 2! | create t 1x2 | Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached because only 1 broker(s) are live of the 2 registered or some brokers have all their log directories cordoned.
1 default.replication.factor=3 | create t 1x3 | Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because only 1 broker(s) are registered or some brokers have all their log directories cordoned.
1 default.replication.factor=3 | create t 1x-1 | Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because only 1 broker(s) are registered or some brokers have all their log directories cordoned. The request has no factor, so default.replication.factor is used.
1 fewer minisr=2 | create t 1x3 | Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because only 1 broker(s) are registered or some brokers have all their log directories cordoned, and a topic needs 2 (min.insync.replicas, at most the replication factor).
1 fewer minisr=5 | create t 1x3 | Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because only 1 broker(s) are registered or some brokers have all their log directories cordoned, and a topic needs 3 (min.insync.replicas, at most the replication factor).
1 fewer | create t 9999x12 | 109989 replicas would be placeholders; the limit is 100000.
1 2 | create t on=0:1,1:1.2 | The manual partition assignment includes a partition with 2 replica(s), but this is not consistent with previous partitions, which have 1 replica(s).
1 | create t 1x1 timeout=0 | The topic was created; timeout_ms 0 does not wait until it is complete.
1 | create t 1x1 verdict=refused | no such names
1 | create t 1x1 verdict=failed | The policy failed; the controller's log has the cause.
1 has:t | partitions t to=1 | Topic already has 1 partition(s).
1 has:t | partitions t to=3 denied=29 | Topic authorization failed.
1 has:t | partitions t to=3 denied=31 | Cluster authorization failed.
1 has:t keep | delete t | Topic deletion is disabled.
1 | alter t set:retention.ms=1 | The topic 't' does not exist.
1 waits:t | expire t id=w-t at=5000 | The topic was created, but was not complete in time: 1 of 1 partitions have a leader and 0 of 1 live brokers have applied it; it waits for broker 1.
"""  # noqa: E501 - a message is one line
"""Messages that Kafka words differently or lacks. tests/reference compares the others with Kafka."""


@pytest.mark.parametrize("row", MESSAGES.strip().splitlines())
def test_rejection_messages(row: str) -> None:
    setting, request, message = (column.strip() for column in row.split("|"))
    rig = given(setting)
    (answer,) = rig.put(command(rig, request)).answers
    assert answer.message == message


def test_a_deletion_answers_the_pending_create() -> None:
    rig = given("1 waits:t")
    deleted, waited = rig.put(command(rig, "delete t")).answers
    assert (deleted.message, waited.message) == ("", "The topic was deleted before it was complete.")


def test_creation_times_beyond_the_calendar_are_printed_in_ms() -> None:
    rig = given("1")
    rig.put(command(rig, f"create t 1x1 at={2**60}"))
    (answer,) = rig.put(command(rig, "create t 1x1")).answers
    assert f"created at {2**60 + 1_700_000_000_003} ms" in answer.message
