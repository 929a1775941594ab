"""Unfinished changes in a log, and differences between a topic and the target cluster."""

import msgspec
import pytest

from controller.brokers.cluster.link import SeenTopic
from controller.brokers.cluster.reconciliation import action_of, brokers_of, differs, open_work_of, unfinished_topics
from events.catalog import Partition, Recorded
from events.names import BrokerId, TopicName
from tests.events.golden import history
from tests.machine.tables import command, given


def story(*steps: str, topics: str = "a") -> list[Recorded]:
    """The events of topic `a`, or of more topics, before a cluster of two brokers."""
    rig = given("1 2 cluster fewer")
    for step in steps:
        rig.put(command(rig, step))
    return [record for record in rig.log if getattr(record.event, "topic", "-") in topics]


SEEN = "seen a 1.2::1:0 conf="


@pytest.mark.parametrize(
    ("steps", "open_", "deleted"),
    [
        ((SEEN,), [], False),
        ((SEEN, "partitions a to=2 clear=0 id=p"), ["PartitionsAdded"], False),
        ((SEEN, "partitions a to=2 clear=0 id=p", "done a id=p"), [], False),
        ((SEEN, "alter a set:retention.ms=5 clear=0 id=c", "delete a id=d"), ["TopicDeleted"], True),
        ((SEEN, "delete a id=d", "done a id=d"), [], True),
        ((SEEN, "delete a id=d", "done a id=d code=73"), [], False),
        ((SEEN, "delete a id=d", "create a 1x2 clear=0"), [], True),
        (
            (SEEN, "alter a set:retention.ms=5 clear=0 id=c", "alter a set:retention.ms=6 clear=0 id=e", "done a id=e"),
            [],
            False,
        ),
        (
            (SEEN, "alter a set:retention.ms=5 clear=0 id=c", "partitions a to=2 clear=0 id=p", "done a id=c"),
            ["PartitionsAdded"],
            False,
        ),
    ],
)
def test_decided_changes_are_open_until_reported(steps: tuple[str, ...], open_: list[str], deleted: bool) -> None:
    past = open_work_of(story(*steps))
    assert [type(change).__name__ for change in past.changes] == open_
    assert bool(past.deleted) is deleted


def test_unfinished_topics_are_found_in_the_log() -> None:
    assert unfinished_topics(story(SEEN, "delete a id=d")) == ["a"]
    assert unfinished_topics(story(SEEN, "delete a id=d", "done a id=d")) == []
    assert unfinished_topics(story(SEEN, "partitions a to=2 clear=0 id=p", "delete a id=d", "done a id=d")) == ["a"]


def test_a_topic_is_unfinished_although_another_of_the_same_request_is_done() -> None:
    both = (SEEN, "seen b 1.2::1:0 conf=", "delete a id=d", "delete b id=d")
    assert unfinished_topics(story(*both, "done b id=d", topics="ab")) == ["a"]
    assert unfinished_topics(story(*both, "done a id=d", topics="ab")) == ["b"]


def test_a_filled_placeholder_is_open_until_the_broker_is_in_sync() -> None:
    joins = ("create a 1x3 clear=0", "seen a 1.2::1:0", "register 3", "unfence 3", "reconcile a")
    assert open_work_of(story(*joins)).has_unfilled
    assert not open_work_of(story(*joins, "seen a 1.2.3:1.2.3:1:0")).has_unfilled


def test_events_lead_to_target_cluster_actions() -> None:
    actions = [action_of(record.event) for record in history("cluster")]
    kinds = [action.name for action in actions if action is not None]
    assert kinds == ["TopicCreated", "TopicCreated", "PartitionsAdded", "TopicConfigsChanged", "TopicDeleted"]
    filled = [
        action_of(record.event) for record in story("create a 1x3 clear=0", "register 3", "unfence 3", "reconcile a")
    ]
    assert [action and action.name for action in filled] == [None, "TopicCreated", "placeholders"]


def test_differences_between_a_topic_and_the_cluster_are_found() -> None:
    rig = given("1 2 cluster fewer")
    for step in ("create a 1x3 clear=0", "seen a 1.2::1:0"):
        rig.put(command(rig, step))
    topic = rig.topic("a")
    assert brokers_of(topic.partitions[0]) == (1, 2)
    ids = tuple(map(BrokerId, (1, 2)))
    same = SeenTopic(TopicName("a"), topic.topic_id, (Partition(ids, ids[::-1], BrokerId(1), 0),))
    assert not differs(topic, same)
    for other in (
        {"topic_id": b"x" * 16},
        {"partitions": ()},
        {"partitions": (Partition(ids[::-1], ids, BrokerId(1), 0),)},
        {"partitions": (Partition(ids, ids[:1], BrokerId(1), 0),)},
        {"partitions": (Partition(ids, ids, BrokerId(2), 1),)},
    ):
        assert differs(topic, msgspec.structs.replace(same, **other)), other
    kept = Partition(ids, ids[:1], BrokerId(-1), 1)
    nobody = SeenTopic(same.name, same.topic_id, (Partition(ids, (), BrokerId(-1), 1),))
    assert not differs(msgspec.structs.replace(topic, partitions=(kept,)), nobody), "the last ISR member is retained"
