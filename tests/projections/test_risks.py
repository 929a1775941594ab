"""The report of risky topics: each risk alone, the order, the limit, and exceptions of rules."""

import pytest
from msgspec.structs import replace

from controller.machine.state import BROKERS, RulesVersion, Topic
from projections.queries.risks import RISKS, Risks
from projections.views.view import AsOfView
from tests.machine.rig import Rig, topics_of
from tests.machine.tables import command, given

NOW_MS = 1_800_000_000_000
AS_OF = AsOfView(0, None, None)
RULES = """
[[rule]]
name = "retention"
configs = { "retention.ms" = { max = 604800000 } }

[[rule.exception]]
topics = "archive*"
reason = "audit"
until = 2099-01-01

[[rule.exception]]
topics = "old*"
reason = "was fine"
until = 2020-01-01
"""


def state(*creates: str) -> Rig:
    rig = given("1 2 3")
    for each in creates:
        rig.put(command(rig, f"create {each} timeout=0"))
    return rig


def risks_of(rig: Rig, name: str = "a") -> tuple[str, ...]:
    found = Risks(rig.state.cluster, NOW_MS, 10)
    found.add(topics_of(rig.state))
    return next((one.risks for one in found.view(AS_OF).topics if one.name == name), ())


@pytest.mark.parametrize(
    ("create", "expected"),
    [
        ("a 2x3 conf=label.owner=me", ()),
        ("a 2x3", ("no-owner",)),
        ("a 2x1 conf=label.owner=me", ("one-replica",)),
        ("a 2x2 conf=label.owner=me;min.insync.replicas=2", ("no-spare-replica",)),
        ("a 2x3 conf=label.owner=me;min.insync.replicas=2", ()),
        ("a 2x3 conf=label.owner=me;retention.ms=-1", ("unlimited-retention",)),
        ("a 2x3 conf=label.owner=me;retention.ms=-1;retention.bytes=5", ()),
        ("a 2x3 conf=label.owner=me;retention.ms=-1;cleanup.policy=compact", ()),
        ("archive 2x3 conf=label.owner=me;retention.ms=-1", ()),
        ("old 2x3 conf=label.owner=me;retention.ms=-1", ("unlimited-retention",)),
    ],
)
def test_each_risk(create: str, expected: tuple[str, ...]) -> None:
    rig = state(create)
    rig.state.cluster = replace(rig.state.cluster, rules=RulesVersion(1, RULES, "", ""))
    assert risks_of(rig, create.split(maxsplit=1)[0]) == expected


def test_a_topic_of_which_no_partition_has_its_preferred_leader() -> None:
    rig = state("a 3x3 conf=label.owner=me")
    (topic,) = topics_of(rig.state)

    def led_by(leaders: list[int]) -> Topic:
        parts = (replace(one, leader=one.replicas[at]) for one, at in zip(topic.partitions, leaders, strict=True))
        return replace(topic, partitions=tuple(parts))

    for leaders, expected in (([1, 1, 0], ()), ([1, 2, 1], ("no-preferred-leader",))):
        rig.state.topics.put("a", led_by(leaders))  # type: ignore[arg-type]
        assert risks_of(rig) == expected


def test_defaults_of_the_cluster_count() -> None:
    rig = state("a 2x3 conf=label.owner=me")
    defaults = rig.state.cluster.with_configs({(BROKERS, ""): (("log.retention.ms", "-1"),)})
    rig.state.cluster = defaults
    assert risks_of(rig) == ("unlimited-retention",)


def test_topics_with_the_most_risks_are_listed_first() -> None:
    rig = state("a 1x3", "b 1x1", "c 1x3 conf=label.owner=me", "d 1x1 conf=label.owner=me")
    found = Risks(rig.state.cluster, NOW_MS, 2)
    for topic in topics_of(rig.state):
        found.add([topic])
    view = found.view(AS_OF)
    assert [(one.name, one.risks) for one in view.topics] == [("b", ("no-owner", "one-replica")), ("a", ("no-owner",))]
    assert view.more == 1
    assert {name: count for name, count in view.counts.items() if count} == {"no-owner": 2, "one-replica": 2}
    assert list(view.counts) == list(RISKS)
    assert view.topics[0].created_by == "User:alice"
