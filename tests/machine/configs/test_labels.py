"""Labels of topics: limits, and what brokers and their clients get to see of them."""

import pytest

from controller.brokers.kraft.projection import topic_records
from controller.machine.apply import apply
from controller.machine.configs.changes import OpType, altered_topic_configs
from controller.machine.configs.topic_configs import validate_topic_configs
from controller.machine.configs.values import ConfigType
from controller.machine.configs.views import described_configs
from controller.machine.errors import ErrorCode, Rejection
from controller.machine.state import Topic
from controller.machine.validation import protected
from events.catalog import Cause, ConfigOp, Configs, FeaturesChanged, Partition, Recorded
from events.names import BrokerId, Offset, RequestId, TopicName
from tests.machine.rig import TOPIC_ID
from tests.machine.tables import command, play, stories
from tests.machine.tables import given as rig_with

OWNED: Configs = (("label.owner", "pay"),)


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"label.owner": "pay", "retention.ms": "5"}, None),
        ({"label.data-criticality": "Ä" * 250}, None),
        ({"label.owner": "Ä" * 251}, "The value of label.owner has 502 bytes; allowed: at most 500 bytes"),
        ({"label.owner": "a\nb"}, "The value of label.owner has control characters"),
        ({"label.owner": "\ud800"}, "The value of label.owner has control characters or broken Unicode"),
        ({"label.": "x"}, "Invalid name of a label: label.; allowed after 'label.': 1 to 60 letters"),
        ({"label.a/b": "x"}, "Invalid name of a label: label.a/b"),
        ({f"label.{'a' * 61}": "x"}, "Invalid name of a label: label.aaa"),
        ({f"label.{one}": "x" for one in range(20)}, None),
        ({f"label.{one}": "x" for one in range(21)}, "The topic would have 21 labels; allowed: at most 20"),
        ({"label.protected": "False"}, None),
        ({"label.protected": "yes"}, "Invalid value of label.protected: 'yes'; allowed: true, false"),
        ({"label": "x"}, "Unknown topic config name: label"),
        ({"label.owner": "x", "retention.ms": "y"}, "Invalid value y for configuration retention.ms"),
    ],
)
def test_labels_are_bounded_in_number_name_and_value(configs: dict[str, str], message: str | None) -> None:
    rejection = validate_topic_configs(configs.items())
    if message is None:
        assert rejection is None
    else:
        assert rejection is not None
        assert rejection.code is ErrorCode.INVALID_CONFIG
        assert rejection.message.startswith(message)


def test_describe_configs_shows_labels_as_strings_of_the_topic() -> None:
    entry = next(one for one in described_configs(OWNED, ()) if one.name == "label.owner")
    assert (entry.value, entry.config_type, entry.is_default) == ("pay", ConfigType.STRING, False)


def test_labels_cannot_be_appended_to() -> None:
    refused = altered_topic_configs(OWNED, [ConfigOp("label.owner", OpType.APPEND, "x")])
    assert isinstance(refused, Rejection)
    assert "its type is not LIST" in refused.message


def test_clients_of_kraft_brokers_cannot_set_labels_and_do_not_remove_them() -> None:
    rig = rig_with("1")
    apply(
        rig.state, Recorded(Offset(0), 0, Cause("", RequestId("f")), FeaturesChanged((("metadata.version", 25),), ""))
    )
    play(
        rig,
        [
            "create t 1x1 conf=label.owner=pay api=CreateTopics id=q1 | refused => INVALID_CONFIG validation:labels",
            "create t 1x1 conf=label.owner=pay api=HTTP id=q2 | requested created(1)",
            "alter t set:label.owner=web id=q3 | rejected => INVALID_CONFIG validation:labels",
            "alter t set:label.owner=web api=HTTP id=q4 | configs(label.owner=web) => NONE",
            "replace t set:retention.ms=5 id=q5 | configs(label.owner=web retention.ms=5) => NONE",
        ],
    )
    refused = rig.put(command(rig, "alter t set:label.owner=web")).answers[0].message
    assert "Set it with `topicwright topic label t owner=…`, over HTTP or with files" in refused


def test_metadata_records_have_no_labels() -> None:
    broker = (BrokerId(1),)
    topic = Topic(TopicName("t"), TOPIC_ID, (Partition(broker, broker, BrokerId(1), 0, 0),), OWNED, 0, Offset(0))
    bare = Topic(TopicName("t"), TOPIC_ID, topic.partitions, (), 0, Offset(0))
    assert topic_records(None, topic, 25) == topic_records(None, bare, 25)
    assert topic_records(bare, topic, 25) == []


PROTECTED = """
# a protected topic is not deleted, and its retention does not become shorter; the label can be removed first
1
    create t 1x1 conf=label.protected=true;retention.ms=9 id=q1 | requested created(1)
    confirm 1 | known(1) ready answered => NONE after 1 ms
    delete t id=q2 | rejected => POLICY_VIOLATION validation:protected
    delete t dry | => POLICY_VIOLATION validation:protected
    alter t set:retention.ms=8 id=q3 | rejected => POLICY_VIOLATION validation:protected
    alter t set:retention.ms=8 delete:label.protected id=q4 | rejected => POLICY_VIOLATION validation:protected
    alter t set:retention.ms=-1 id=q5 | configs(label.protected=true retention.ms=-1) => NONE
    alter t set:retention.ms=9 id=q6 | rejected => POLICY_VIOLATION validation:protected
    alter t delete:retention.ms id=q6 | rejected => POLICY_VIOLATION validation:protected
    alter t set:retention.bytes=9 id=q7 | rejected => POLICY_VIOLATION validation:protected
    alter t set:cleanup.policy=compact id=q8 | rejected => POLICY_VIOLATION validation:protected
    alter t set:cleanup.policy=delete dry | => NONE
    alter t set:label.protected=false id=q10 | configs(label.protected=false retention.ms=-1) => NONE
    alter t set:retention.ms=8 id=q11 | configs(label.protected=false retention.ms=8) => NONE
    delete t id=q12 | deleted => NONE

# the defaults of the cluster count for a protected topic that sets no retention
1 log.retention.ms=5
    create t 1x1 conf=label.protected=TRUE id=q1 | requested created(1)
    alter t set:retention.ms=4 id=q2 | rejected => POLICY_VIOLATION validation:protected
    alter t set:retention.ms=5 id=q3 | configs(label.protected=TRUE retention.ms=5) => NONE
"""


@pytest.mark.parametrize(
    ("heading", "lines"), stories(PROTECTED), ids=lambda part: part if isinstance(part, str) else ""
)
def test_protected_topics_lose_no_records(heading: str, lines: list[str]) -> None:
    play(rig_with(lines[0]), lines[1:])


def test_an_invalid_config_of_a_protected_topic_can_be_removed() -> None:
    """A log written by Kafka may have values that Kafka no longer accepts."""
    partitions = (Partition((BrokerId(1),), (BrokerId(1),), BrokerId(1)),)
    label = ("label.protected", "true")
    for invalid in (("cleanup.policy", "compost"), ("retention.ms", "long")):
        topic = Topic(TopicName("t"), TOPIC_ID, partitions, (invalid, label), 0, Offset(0))
        assert protected(topic, (label,), ()) is None
