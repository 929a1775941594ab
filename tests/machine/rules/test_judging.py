"""Rules on every kind of change, through `decide`: refusals, warnings, observations, defaults, and their events."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from controller.machine.commands import access, commands
from controller.machine.commands.commands import DiscoverTopic
from controller.machine.configs.changes import OpType
from controller.machine.decide import decide
from controller.machine.decision import Decision
from controller.machine.errors import ErrorCode
from controller.machine.rules import reading
from controller.machine.rules.judging import wrong_examples
from controller.machine.rules.reading import read_rules
from controller.machine.state import BROKERS
from controller.policy.chain import request_of
from events.catalog import (
    Assignment,
    Cause,
    ConfigOp,
    FilledDefault,
    Observation,
    Partition,
    RulesApplied,
    RulesObserved,
    TopicCreated,
)
from events.codec import encode_event
from events.names import BrokerId, RequestId, TopicId, TopicName
from tests.machine.rig import TOPIC_ID, Rig

RETENTION = """
[[rule]]
name = "retention"
configs = { "retention.ms" = { max = 604800000 } }
"""


def ready(rules: str = "", **settings: str) -> Rig:
    """Returns a rig with three brokers, the topic pay.orders with 3 partitions of factor 3, and the rules."""
    rig = Rig()
    rig.settings(tuple(settings.items()))
    for broker in (1, 2, 3):
        rig.register(broker)
        rig.unfence(broker)
    assert not create(rig, "pay.orders").answers
    if rules:
        assert apply(rig, rules).answers[0].code == 0
    return rig


def command(rig: Rig, kind: type, /, **given: Any) -> Any:
    return kind(request_id=RequestId(f"r{rig.tick()}"), at_ms=rig.now_ms, **{"principal": "User:ann", **given})


def apply(rig: Rig, text: str, **given: Any) -> Decision:
    return rig.put(command(rig, access.ApplyRules, text=text, **given))


def create(
    rig: Rig, topic: str, partitions: int = 3, configs: Mapping[str, str] | None = None, **given: Any
) -> Decision:
    made = {"num_partitions": partitions, "replication_factor": 3, "timeout_ms": 1000, "topic_id": TOPIC_ID, **given}
    pairs = tuple((configs or {}).items())
    return rig.put(command(rig, commands.CreateTopic, topic=TopicName(topic), configs=pairs, **made))


def alter(rig: Rig, topic: str, configs: Mapping[str, str], **given: Any) -> Decision:
    ops = tuple(ConfigOp(name, OpType.SET, value) for name, value in configs.items())
    return rig.put(command(rig, commands.AlterTopicConfigs, topic=TopicName(topic), ops=ops, **given))


def grow(rig: Rig, topic: str, count: int, **given: Any) -> Decision:
    return rig.put(command(rig, commands.CreatePartitions, topic=TopicName(topic), count=count, **given))


def delete(rig: Rig, topic: str) -> Decision:
    return rig.put(command(rig, commands.DeleteTopic, topic=TopicName(topic)))


def broker_default(rig: Rig, name: str, value: str, **given: Any) -> Decision:
    fields = {"topic": TopicName("4:"), "kind": BROKERS, "name": "", "ops": (ConfigOp(name, OpType.SET, value),)}
    return rig.put(command(rig, commands.AlterResourceConfigs, **fields, **given))


def discover(rig: Rig, topic: str) -> Decision:
    """Import a topic with unlimited retention that was created in the target cluster."""
    found = DiscoverTopic(
        request_id=RequestId("d"),
        at_ms=rig.tick(),
        topic=TopicName(topic),
        topic_id=TopicId(b"b" * 16),
        partitions=(Partition((BrokerId(1),), (BrokerId(1),), BrokerId(1), 0),),
        configs=(("retention.ms", "-1"),),
    )
    return rig.put(found)


def refusal(decision: Decision) -> str:
    (answer,) = decision.answers
    assert answer.code == ErrorCode.POLICY_VIOLATION
    return answer.message


def test_a_config_rule_applies_to_every_api_that_sets_the_config() -> None:
    rig, endless = ready(RETENTION), {"retention.ms": "-1"}
    text = "rule 'retention': retention.ms is '-1', allowed is at most 604800000"
    assert refusal(create(rig, "a", configs=endless)) == text
    assert refusal(create(rig, "a", configs=endless, validate_only=True)) == text
    assert refusal(create(rig, "a", configs=endless, api="Metadata")) == text
    assert refusal(alter(rig, "pay.orders", configs=endless)) == text
    assert refusal(alter(rig, "pay.orders", configs=endless, validate_only=True)) == text
    assert refusal(alter(rig, "pay.orders", configs=endless, incremental=False)) == text
    assert refusal(broker_default(rig, "log.retention.ms", "-1")) == text
    assert refusal(broker_default(rig, "log.retention.ms", "-1", validate_only=True)) == text
    assert "retention.ms is '720000000'" in refusal(broker_default(rig, "log.retention.hours", "200"))
    assert rig.state.cluster.configs_of(BROKERS, "") == ()
    assert not alter(rig, "pay.orders", configs={"retention.ms": "5"}).refusal


def test_existing_rule_violations_do_not_block_other_changes() -> None:
    rig = ready()
    alter(rig, "pay.orders", configs={"retention.ms": "-1"})
    apply(rig, RETENTION + "[[rule]]\nname = 'isr'\ncheck = 'min_insync_replicas == 2'\n")
    assert not alter(rig, "pay.orders", configs={"segment.ms": "86400000"}).refusal
    assert not grow(rig, "pay.orders", 4).refusal
    assert "'604800001'" in refusal(alter(rig, "pay.orders", configs={"retention.ms": "604800001"}))
    assert not alter(rig, "pay.orders", configs={"min.insync.replicas": "2", "retention.ms": "5"}).refusal
    assert "is false" in refusal(alter(rig, "pay.orders", configs={"min.insync.replicas": "3"}))
    assert "'-1'" in refusal(alter(rig, "pay.orders", configs={"retention.ms": "-1"}))


def test_an_expression_bounds_the_partitions_of_a_topic_that_already_has_more() -> None:
    rig = ready()
    apply(rig, "[[rule]]\nname = 'r'\ncheck = 'partitions <= 2'")
    assert not alter(rig, "pay.orders", configs={"flush.ms": "5"}).refusal
    assert refusal(grow(rig, "pay.orders", 4)) == "rule 'r': `partitions <= 2` is false"


def test_policies_see_the_defaults_of_rules() -> None:
    rig = ready(DEFAULTS)
    made = {"num_partitions": -1, "replication_factor": -1, "timeout_ms": 1000, "topic_id": TOPIC_ID}
    seen: Any = request_of(command(rig, commands.CreateTopic, topic=TopicName("team.a"), configs=(), **made), rig.state)
    filled = {"cleanup.policy": "compact", "retention.ms": "5"}
    assert (seen.num_partitions, seen.replication_factor, seen.configs) == (6, 2, filled)


def test_long_messages_are_truncated() -> None:
    rules = "".join(f"[[rule]]\nname = '{name}'\nmessage = '{'{name} ' * 140}'\npartitions = 9\n" for name in "ab")
    rig = ready(rules)
    assert len(refusal(create(rig, "t" * 249))) == 4096
    apply(rig, f"mode = 'warn'\n{rules}")
    (observed,) = (one for one in create(rig, "t" * 249).events if isinstance(one, RulesObserved))
    assert [len(one.message) for one in observed.warned] == [4096, 4096]
    assert len(observed.warning) == 4096


def test_violations_of_a_thousand_rules_fit_in_one_kafka_record() -> None:
    rule = "[[rule]]\nname = 'r{}'\nmode = 'observe'\npartitions = 1\nhint = '{}'\n"
    rig = ready("".join(rule.format(number, "é" * 100) for number in range(900)))
    (observed,) = (event for event in create(rig, "orders").events if isinstance(event, RulesObserved))
    assert [one.rule for one in observed.observed] == [f"policy:rules/r{number}" for number in range(900)]
    assert {len(one.message) for one in observed.observed} == {50_000 // 900}
    assert len(encode_event(0, Cause("", RequestId("")), observed)) < 500_000


def test_a_grow_rule_compares_partitions_before_and_after() -> None:
    rig = ready("[[rule]]\nname = 'double'\non = 'grow'\ncheck = 'after.partitions <= before.partitions * 2'")
    assert refusal(grow(rig, "pay.orders", 7)) == "rule 'double': `after.partitions <= before.partitions * 2` is false"
    assert refusal(grow(rig, "pay.orders", 7, validate_only=True))
    assert not grow(rig, "pay.orders", 6).refusal


def test_a_delete_rule_applies_only_to_deletions() -> None:
    rig = ready("[[rule]]\nname = 'keep'\non = ['delete']\ntopics = 'pay.*'\nrefuse = 'ask the platform team'")
    decision = delete(rig, "pay.orders")
    assert refusal(decision) == "rule 'keep': ask the platform team"
    (rejected,) = decision.events
    assert (type(rejected).__name__, rejected.rule) == ("ChangeRejected", "policy:rules/keep")  # type: ignore[union-attr]
    assert not alter(rig, "pay.orders", configs={"flush.ms": "5"}).refusal
    create(rig, "a")
    assert not delete(rig, "a").refusal


def test_rules_judge_elections_and_reassignments_of_kafka_brokers() -> None:
    rules = "[[rule]]\nname = 'unclean'\non = ['elect', 'reassign']\ncheck = 'principal == \"User:ops\"'"
    rig = ready(rules)
    move = commands.Reassignment(0, (BrokerId(3), BrokerId(1), BrokerId(2)))
    moved = rig.put(command(rig, commands.ReassignPartitions, topic=TopicName("pay.orders"), reassignments=(move,)))
    assert refusal(moved) == "rule 'unclean': `principal == \"User:ops\"` is false"
    assert [(one.partition, one.code) for one in moved.answers[0].partitions] == [(0, 44)]
    assert moved.events == ()
    by_ops = command(
        rig, commands.ReassignPartitions, topic=TopicName("pay.orders"), reassignments=(move,), principal="User:ops"
    )
    assert rig.put(by_ops).refusal is None


def test_a_rule_warning_is_in_the_response_and_the_log() -> None:
    text = "[[rule]]\nname = 'isr'\nmode = 'warn'\ncheck = 'min_insync_replicas == replication_factor - 1'\n"
    rig = ready(f"{text}message = 'min.insync.replicas is {{min_insync_replicas}} of {{replication_factor}}'")
    decision = create(rig, "a", timeout_ms=0)
    observed = decision.events[-1]
    assert isinstance(observed, RulesObserved)
    assert observed.warned == (Observation("policy:rules/isr", "rule 'isr': min.insync.replicas is 1 of 3"),)
    create(rig, "c")
    assert rig.confirm().answers[-1].message == "warning: rule 'isr': min.insync.replicas is 1 of 3"
    dry = create(rig, "b", validate_only=True)
    assert (dry.answers[0].code, dry.answers[0].message) == (0, "warning: rule 'isr': min.insync.replicas is 1 of 3")
    altered = alter(rig, "a", configs={"min.insync.replicas": "3"})
    assert altered.answers[0].message == ""  # the topic violated the rule before
    assert not alter(rig, "a", configs={"min.insync.replicas": "2"}).answers[0].message
    assert alter(rig, "a", configs={"min.insync.replicas": "1"}).answers[0].message.startswith("warning: ")


def test_an_observed_rule_only_leaves_an_event() -> None:
    rig = ready("mode = 'observe'\n" + RETENTION)
    decision = alter(rig, "pay.orders", configs={"retention.ms": "-1"})
    assert [type(event).__name__ for event in decision.events] == ["TopicConfigsChanged", "RulesObserved"]
    assert (decision.answers[0].code, decision.answers[0].message) == (0, "")


def test_external_changes_are_observed_by_rules() -> None:
    rig = ready(RETENTION, **{"has.target.cluster": "true"})
    observed = discover(rig, "b").events[-1]
    assert isinstance(observed, RulesObserved)
    assert (observed.change, [one.rule for one in observed.observed]) == ("discovered", ["policy:rules/retention"])


DEFAULTS = """
[[default]]
name = "team"
topics = "team.*"
partitions = 6
configs = { "retention.ms" = 5, "cleanup.policy" = "compact" }

[[default]]
name = "rest"
partitions = 2
replication_factor = 2
"""


def test_rule_defaults_fill_unset_values_of_a_create() -> None:
    rig = ready(DEFAULTS)
    given = {"partitions": -1, "replication_factor": -1, "configs": {"cleanup.policy": "delete"}}
    requested, created, observed = create(rig, "team.a", **given).events  # type: ignore[arg-type]
    assert isinstance(created, TopicCreated)
    assert isinstance(observed, RulesObserved)
    assert (len(created.partitions), created.replication_factor) == (6, 2)
    assert created.configs == (("cleanup.policy", "delete"), ("retention.ms", "5"))
    assert observed.defaults == (
        FilledDefault("policy:rules/team", "partitions", "6"),
        FilledDefault("policy:rules/team", "retention.ms", "5"),
        FilledDefault("policy:rules/rest", "replication_factor", "2"),
    )
    assert (requested.num_partitions, requested.configs) == (-1, (("cleanup.policy", "delete"),))  # type: ignore[union-attr]
    by_hand = create(
        rig, "team.b", -1, replication_factor=-1, assignments=(Assignment(0, (BrokerId(1), BrokerId(2))),)
    ).events[1]
    assert isinstance(by_hand, TopicCreated)
    assert len(by_hand.partitions) == 1


def test_a_refusal_names_the_default_whose_value_breaks_a_rule() -> None:
    small = "[[rule]]\nname = 'small'\ntopics = 't*'\npartitions = { max = 4 }\n"
    rig = ready(DEFAULTS + small)
    message = "rule 'small': partitions is 6, allowed is at most 4"
    assert refusal(create(rig, "team.a", -1)) == f"{message}; partitions 6 comes from default 'team'"
    assert refusal(create(rig, "team.a", 6)) == message


EXCEPTED = """
[[rule]]
name = "small"
partitions = { max = 3 }

[[rule.exception]]
topics = "big.*"
reason = "migration"
until = 2023-11-20
"""


def test_a_rule_exception_expires_at_the_end_of_its_day() -> None:
    rig = ready(EXCEPTED)
    assert not create(rig, "big.a", 9).refusal
    assert create(rig, "small.a", 9).refusal
    rig.now_ms = 1_700_524_800_000 - 2  # just before 2023-11-21, UTC
    assert not create(rig, "big.b", 9).refusal
    assert create(rig, "big.c", 9).refusal


def test_a_rule_exception_of_topics_does_not_cover_defaults() -> None:
    exception = "[[rule.exception]]\n{} = '*'\nreason = 'r'\nuntil = 2030-01-01\n"
    for of, code in (("topics", ErrorCode.POLICY_VIOLATION), ("principals", ErrorCode.NONE)):
        rig = ready(RETENTION + exception.format(of))
        assert not alter(rig, "pay.orders", configs={"retention.ms": "-1"}).refusal
        assert broker_default(rig, "log.retention.ms", "-1").answers[0].code == code


def test_a_failing_rule_expression_refuses_unless_fail_open() -> None:
    rule = "[[rule]]\nname = 'r'\ncheck = 'before.partitions > 0'\n"
    rig = ready(rule)
    assert refusal(create(rig, "a")).startswith("rule 'r': `before.partitions > 0` failed: No such overload")
    assert refusal(create(ready("[[rule]]\nname = 'r'\ncheck = 'partitions'"), "a")).endswith("not true or false")
    assert create(rig, "b").refusal.rule == "policy:rules/r:failed"  # type: ignore[union-attr]
    opened = create(ready(rule + "fail = 'open'\nmessage = 'not seen'"), "a")
    assert not opened.refusal
    (observed,) = opened.events[-1].observed  # type: ignore[union-attr]
    assert observed.rule == "policy:rules/r:failed"
    assert observed.message.startswith("rule 'r': `before.partitions > 0` failed: No such overload")
    both = create(ready(rule + "fail = 'open'\npartitions = 1"), "a", partitions=2)
    assert (both.refusal.rule, "failed" in both.refusal.message) == ("policy:rules/r", False)  # type: ignore[union-attr]


def test_the_cost_of_recorded_rules_is_not_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """RE2 of another voter may make more instructions of the same patterns."""
    text = "[[rule]]\nname = 'r'\nname_pattern = '^a{9}$'\n"
    rig = ready(text)
    monkeypatch.setattr(reading, "PATTERNS_SIZE_MAX", 1)
    reading.read_rules.cache_clear()
    reading.recorded_rules.cache_clear()
    assert refusal(create(rig, "a")) == "rule 'r': topic name 'a' does not match '^a{9}$'"
    assert "too complex" in apply(rig, f"{text}# again").answers[0].message


def test_applying_changed_rules_increments_their_version() -> None:
    rig = ready()
    assert apply(rig, RETENTION, is_file=True).answers[0].number == 1
    assert apply(rig, RETENTION, is_file=True).events == ()
    (second,) = apply(rig, DEFAULTS).events
    assert isinstance(second, RulesApplied)
    assert (second.number, second.is_file) == (2, False)
    assert apply(rig, RETENTION, is_file=True).events == (), "the rules file never reverts newer rules"
    assert apply(rig, DEFAULTS).answers[0].number == 2
    assert apply(rig, "", after=1).answers[0].code == ErrorCode.INVALID_UPDATE_VERSION
    wrong = apply(rig, "[[rule]]\nname = 'x'").answers[0]
    assert (wrong.code, wrong.number) == (ErrorCode.INVALID_CONFIG, 2)
    assert apply(rig, RETENTION + "# changed", is_file=True).answers[0].number == 3
    assert apply(rig, "", after=3).answers[0].number == 4
    assert not create(rig, "a", configs={"retention.ms": "-1"}).refusal


def test_rules_are_copied_from_another_partition() -> None:
    rules, other = ready(RETENTION).state.cluster.rules, ready()
    copy = commands.CopyClusterState(request_id=RequestId("c"), at_ms=other.tick(), configs=(), rules=rules)
    assert [type(event).__name__ for event in other.put(copy).events] == ["RulesApplied"]
    assert other.put(copy).events == ()
    assert refusal(create(other, "a", configs={"retention.ms": "-1"}))


def test_rules_of_a_newer_release_refuse_every_change() -> None:
    rig = ready(RETENTION)
    assert rig.state.cluster.rules is not None
    newer = replace(rig.state.cluster.rules, text="[[rule]]\nname = 'r'\nmoon = 'full'")
    rig.state.cluster = replace(rig.state.cluster, rules=newer)
    assert "cannot be read: line 3" in refusal(create(rig, "a"))
    assert [type(event).__name__ for event in discover(rig, "b").events] == ["TopicDiscovered", "RulesObserved"]


def test_a_dry_run_with_rules_records_no_events() -> None:
    rig = ready("mode = 'observe'\n" + RETENTION + DEFAULTS)
    dry = create(rig, "team.a", -1, {"retention.ms": "-1"}, validate_only=True)
    assert dry.events == ()
    assert dry.answers[0].topic is not None
    assert len(dry.answers[0].topic.partitions) == 6
    assert decide(rig.state, command(rig, commands.DeleteTopic, topic=TopicName("none"))).refusal is not None


@pytest.mark.parametrize(("violates", "wrong"), [("['small']", 0), ("[]", 1)])
def test_rule_examples_are_checked(violates: str, wrong: int) -> None:
    example = f"\n[[example]]\ntopic = 'a'\nafter = {{ partitions = 9 }}\nviolates = {violates}\n"
    found = list(wrong_examples(read_rules(EXCEPTED + example), 0))
    assert len(found) == wrong
    assert not found or found[0] == (
        "line 11: create a should violate no rule, but rule 'small': partitions is 9, allowed is at most 3"
    )
