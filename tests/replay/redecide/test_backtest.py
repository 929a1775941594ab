"""Backtests: the effects of other settings and policies on recorded requests."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import given as drawn
from msgspec.structs import replace

from controller.machine.apply import apply
from controller.machine.commands.commands import CreateTopic
from controller.machine.configs.topic_configs import TOPIC_DEFAULTS
from controller.machine.decide import decide
from controller.machine.recorded_command import recall
from controller.machine.state import DictTopics, State, settings_from_pairs
from events.catalog import ChangeRejected, CreateRejected, CreateRequested, Recorded, TopicCreated
from projections.replay.log.log_ref import LogRef
from projections.replay.outcome import Options, ReplayError
from projections.replay.redecide import whatif
from projections.replay.redecide.backtest import Change, Effect, effects, run_backtest, tally
from projections.replay.redecide.recorded import Timeline
from projections.replay.redecide.whatif import Policies, WhatIf, check, what_if
from projections.replay.runner import InProcess
from projections.replay.shards import rows_of
from projections.views.backtests import CHANGES
from tests.machine.audit.planted import at, without
from tests.machine.tables import command, given
from tests.machine.walks import Walk, decisions, walked, walks
from tests.projections.logs import story
from tests.replay.history import requests_in
from tests.replay.written import records_of, written

SETTING = "create.topic.policy.class.name"
PAGE = Path(__file__).parents[3] / "docs" / "backtest.md"
POLICY = "tests.replay.redecide.policies.FewPartitions"
UNDER_REPLICATED = ("enable.under.replicated.topic.creation", "true")

STORY = """
1@x 2@y 3! count=2
create a 1x2 id=qa
create wide 5x2 id=qw as=User:bob
create deep 1x3 id=qd
create deeper 1x3 id=qe as=User:bob
create deepest 1x4 id=qf conf=min.insync.replicas=3
create auto -1x-1 id=qg api=Metadata
create broken 1x1 id=qh
create one 1x1 id=qi
partitions a to=3 id=more
delete a id=end as=User:bob
create a 1x3 id=qj
create wide 7x2 id=qk as=User:bob
"""


def tried(records: Sequence[Recorded], policy: str | None = None, **changes: str) -> list[Effect]:
    """The requests of a log that the changes decide differently."""
    pairs = tuple((key.replace("_", "."), value) for key, value in changes.items())
    return [
        one
        for one in all_of(records, what_if((*pairs, *([(SETTING, policy)] if policy is not None else []))))
        if one.change
    ]


def all_of(records: Sequence[Recorded], trial: WhatIf) -> list[Effect]:
    """The effects of the changes on every request."""
    policies = Policies(trial)
    try:
        return list(effects(requests_in(records, trial.rules or ""), trial, policies))
    finally:
        assert policies.close() == ()


def shown(found: list[Effect]) -> list[tuple[str, str, str, str]]:
    """Change, principal, rule and topic of each effect, in log order."""
    in_order = sorted(found, key=example_of)
    return [(one.change, one.principal, one.rule or one.was_rule, example_of(one)[1]) for one in in_order]


def example_of(effect: Effect) -> tuple[int, str, str]:
    """The offset, topic and message of the only example."""
    ((_, offset, topic, message),) = effect.examples
    return offset, topic, message


def test_kip_409_creates_with_too_few_brokers_are_let_through() -> None:
    log = story(STORY).log
    found = tried(log, enable_under_replicated_topic_creation="true")
    assert shown(found) == [
        ("let-through", "User:alice", "validation:live-brokers", "deep"),
        ("let-through", "User:bob", "validation:live-brokers", "deeper"),
        ("refused-otherwise", "User:alice", "validation:under-replicated-floor", "deepest"),
        ("let-through", "User:alice", "validation:live-brokers", "a"),
    ]
    assert [(one.was_rule, one.rule) for one in found if example_of(one)[1] == "deepest"] == [
        ("validation:live-brokers", "validation:under-replicated-floor")
    ]
    assert example_of(found[0])[2].startswith("Unable to replicate the partition 3 time(s)"), found[0]


def test_a_backtest_distinguishes_policy_refusals_from_policy_failures() -> None:
    log = story(STORY).log
    found = tried(log, POLICY)
    assert shown(found) == [
        ("refused", "User:bob", "policy:partitions", "wide"),
        ("failed", "User:alice", "policy:tests.replay.redecide.policies.FewPartitions", "broken"),
    ]
    assert "KeyError: 'broken'" in min(map(example_of, found), key=itemgetter(1))[2]


JUDGED = """
1@x 2@y policy
create good 1x1 verdict=allowed id=qa
create bad 1x1 verdict=refused id=qb
create bug 1x1 verdict=failed id=qc
create deep 1x3 id=qd
"""
LET_THROUGH = [
    ("let-through", "User:alice", "policy:names", "bad"),
    ("let-through", "User:alice", "policy:my.Policy", "bug"),
]
NOTING = "tests.replay.redecide.policies.Noting"
BROKEN = "policy:tests.replay.redecide.policies.FewPartitions"
OUTCOMES: dict[str, tuple[str, str | None, dict[str, str], list[tuple[str, str, str, str]]]] = {
    "on the recorded state: without deletion `a` would still exist for the later request": (
        STORY, None, {"delete_topic_enable": "false"}, [("refused", "User:bob", "validation:delete.topic.enable", "a")]
    ),
    "without auto-creation there is no request": (
        STORY, None, {"auto_create_topics_enable": "false"},
        [("refused", "User:alice", "auto.create.topics.enable", "auto")],
    ),
    "another default": (STORY, None, {"num_partitions": "3"}, [("done-otherwise", "User:alice", "", "auto")]),
    "the same default": (STORY, None, {"num_partitions": "2"}, []),
    "a policy with its setting": (
        STORY, POLICY, {"policy_partitions_max": "1"},
        [("refused", "User:bob", "policy:partitions", "wide"), ("refused", "User:alice", "policy:partitions", "auto"),
         ("failed", "User:alice", BROKEN, "broken")],
    ),
    "a policy with a higher limit": (
        STORY, POLICY, {"policy_partitions_max": "9"}, [("failed", "User:alice", BROKEN, "broken")]
    ),
    "a policy that only notes": (
        STORY, NOTING, {}, [("observed", "User:alice", "policy:factor", topic) for topic in ("auto", "broken", "one")]
    ),
    "recorded verdicts apply without a policy to try": (
        JUDGED, None, {"enable_under_replicated_topic_creation": "true"},
        [("unjudged", "User:alice", "validation:live-brokers", "deep")],
    ),
    "no policy": (JUDGED, "", {}, LET_THROUGH),
    "no policy, as a setting": (JUDGED, None, {"create_topic_policy_class_name": ""}, LET_THROUGH),
    "a policy judges requests that only now reach it": (
        JUDGED, POLICY, {"enable_under_replicated_topic_creation": "true"},
        [*LET_THROUGH, ("let-through", "User:alice", "validation:live-brokers", "deep")],
    ),
}  # fmt: skip
"""Requests, a policy, settings, and the effects: change, principal, rule, topic."""


@pytest.mark.parametrize(("text", "policy", "changes", "expected"), OUTCOMES.values(), ids=OUTCOMES)
def test_effects_of_settings_and_policies(
    text: str, policy: str | None, changes: dict[str, str], expected: list[tuple[str, str, str, str]]
) -> None:
    assert shown(tried(story(text).log, policy, **changes)) == expected


def test_policies_are_configured_once_per_settings_and_closed(tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    log = story("1 2\ncreate a 1x1\nsettings count=2\ncreate b 1x1\ncreate c 1x1").log
    assert tried(log, "tests.replay.redecide.policies.Leaving", policy_diary=str(diary)) == []
    entries = diary.read_text().splitlines()
    assert sorted(entries) == ["closed", "closed", "configured", "configured", "judged a", "judged b", "judged c"]
    assert entries[-2:] == ["closed", "closed"]


def test_a_backtest_of_a_rules_file_in_enforced_and_observed_mode(tmp_path: Path) -> None:
    rules = tmp_path / "topic-rules.toml"
    rules.write_text('[[rule]]\nname = "size"\npartitions = { max = 2 }\n')
    log = story(STORY).log
    enforced = tried(log, None, topic_rules_file=str(rules))
    assert shown(enforced) == [
        ("refused", "User:bob", "policy:rules/size", "wide"),
        ("refused", "User:alice", "policy:rules/size", "a"),
    ]
    rules.write_text(f'mode = "observe"\n{rules.read_text()}')
    observed = tried(log, None, topic_rules_file=str(rules))
    assert shown(observed) == [(observed[0].change, *each[1:]) for each in shown(enforced)]
    assert observed[0].change == "observed"
    assert {example_of(one)[2] for one in enforced} == {example_of(one)[2] for one in observed}
    assert example_of(enforced[0])[2].startswith("rule 'size': partitions is ")


def test_backtest_page_lists_every_setting_and_change() -> None:
    text = " ".join(PAGE.read_text().split())
    for setting in whatif._DECISIVE.keys() - TOPIC_DEFAULTS.keys():
        assert f"`{setting}`" in text, f"{PAGE} does not mention {setting}"
    for change, words in CHANGES.items():
        assert f"| `{change}` | {words}" in text, f"{PAGE} has another definition of {change}"


# Invalid input.


def test_a_backtest_rejects_contradictory_topic_defaults() -> None:
    log = story("log.cleaner.min.compaction.lag.ms=500 1\ncreate a 1x1").log
    tried_ = what_if((("log.cleaner.max.compaction.lag.ms", "100"),))
    with pytest.raises(ReplayError, match=r"with the settings of offset 0: .*compaction\.lag\.ms"):
        check(tried_, Timeline(log))


def test_a_backtest_rejects_a_log_with_missing_events() -> None:
    log = story(STORY).log
    with pytest.raises(ReplayError, match="replay redecide"):
        tried(without(log, log[-3].offset), "")
    with pytest.raises(ReplayError, match="cannot be applied: topic 'a' does not exist"):
        tried(without(log, at(log, TopicCreated, topic="a")), "")


# Counts.


def plainly(log: Sequence[Recorded], trial: WhatIf) -> Counter[tuple[str, str]]:
    """Counts requests that become refused or let through, by one loop over the whole log and one state."""
    counts: Counter[tuple[str, str]] = Counter()
    state = State(DictTopics())
    for group in decisions(log):
        command = recall(group)
        if command is not None:
            recorded = state.cluster
            pairs = trial.pairs_over(recorded.settings_pairs)
            state.cluster = replace(recorded, settings=settings_from_pairs(pairs), settings_pairs=pairs)
            if isinstance(command, CreateTopic) and trial.policies == "":
                command = replace(command, verdict=None)
            decision = decide(state, command)
            was, now = _refused([one.event for one in group]), _refused(decision.events)
            if decision.needs_approval:
                counts["unjudged", command.principal] += 1
            elif was != now:
                counts["refused" if now else "let-through", command.principal] += 1
            state.cluster = recorded
        for record in group:
            apply(state, record)
    return counts


def _refused(events: Sequence[Any]) -> bool:
    return any(isinstance(event, CreateRejected | ChangeRejected) for event in events)


TRIED = [
    WhatIf((UNDER_REPLICATED,)),
    WhatIf((("delete.topic.enable", "false"), ("min.insync.replicas", "3"))),
    WhatIf((("default.replication.factor", "3"), ("num.partitions", "4"))),
    WhatIf((), ""),
]


@pytest.mark.parametrize("trial", TRIED, ids=lambda trial: "+".join(key for key, _ in trial.settings) or "no policy")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@drawn(walk=walks())
def test_backtest_counts_equal_a_plain_loop_over_random_logs(trial: WhatIf, walk: Walk) -> None:
    log = walked(walk).log
    found = Counter(
        (one.change, one.principal)
        for one in all_of(log, trial)
        if one.change in ("refused", "let-through", "unjudged") and one.rule != "auto.create.topics.enable"
    )
    assert found == plainly(log, trial), "\n".join(f"{one.offset} {one.cause.command} {one.event}" for one in log)


def counts_of(found: Iterable[Effect]) -> list[dict[str, Any]]:
    """Returns the counts of some effects."""
    counts: list[dict[str, Any]] = tally(found).to_pylist()
    return counts


def test_counts_of_parts_add_up_to_those_of_the_whole() -> None:
    found = all_of(story(STORY).log, what_if(((SETTING, POLICY), UNDER_REPLICATED, ("policy.partitions.max", "0"))))
    whole = counts_of(found)
    for cut in range(len(found) + 1):
        parts = [rows_of(tally(part)) for part in (found[cut:], found[:cut])]
        assert tally(chain(*parts)).to_pylist() == whole, f"split at {cut}"
    assert sum(one["count"] for one in whole) == len(found) == 12
    assert sum(one["count"] for one in whole if one["change"]) == sum(bool(one.change) for one in found)


def test_backtest_examples_are_the_first_requests_of_each_count() -> None:
    found = counts_of(all_of(story(STORY).log, what_if(((SETTING, POLICY), ("policy.partitions.max", "0")))))
    refused = next(one for one in found if one["principal"] == "User:alice" and one["api"] == "CreateTopics")
    assert (refused["change"], refused["was_rule"], refused["rule"]) == ("refused", "", "policy:partitions")
    assert refused["count"] == 2
    assert [example["topic"] for example in refused["examples"]] == ["a", "one"]


def test_backtest_counts_list_refusals_before_observations() -> None:
    changes: list[Change] = ["observed", "let-through", "refused", "refused"]
    counts = counts_of(Effect(change, "User:a", "", "r", "CreateTopics", 1, [(0, 1, "t", "")]) for change in changes)
    assert [(one["change"], one["count"]) for one in counts] == [("refused", 2), ("let-through", 1), ("observed", 1)]


# The whole log.


def test_backtest_counts_equal_a_plain_loop_over_a_real_log(history: LogRef) -> None:
    options = Options(settings=(("enable.under.replicated.topic.creation", "false"), (SETTING, POLICY)))
    log = records_of(history)
    trial = what_if(options.settings)
    effects = all_of(log, trial)
    done = run_backtest(InProcess(), history, options)
    plain = [one for one in counts_of(effects) if one["change"]]
    assert done.rows == [{**one, "requests": len(effects)} for one in plain]
    assert done.found
    assert done.lines[0] == (
        f"{len(effects)} requests up to offset {len(log) - 1} tried with policy {POLICY}, "
        f"enable.under.replicated.topic.creation=false: {sum(one['count'] for one in plain)} would end otherwise"
    )
    assert "        1 x User:bob over CreateTopics, now by validation:live-brokers" in done.lines


def test_a_backtest_without_an_effect_finds_nothing(history: LogRef) -> None:
    done = run_backtest(InProcess(), history, Options(settings=(("num.partitions", "2"),), at="30"))
    assert not done.found
    assert done.rows == []
    assert done.lines[0].endswith("up to offset 30 tried with num.partitions=2: 0 would end otherwise")


def test_backtested_policies_are_closed(history: LogRef, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    policy = "tests.replay.redecide.policies.Leaving"
    run_backtest(InProcess(), history, Options(settings=((SETTING, policy), ("policy.diary", str(diary)))))
    counts = Counter(line.split()[0] for line in diary.read_text().splitlines())
    assert counts["configured"] == counts["closed"] > 0, "each task configures and closes its policy"
    events = [one.event for one in records_of(history)]
    creates = sum(isinstance(one, CreateRequested) for one in events)
    invalid = sum(isinstance(one, CreateRejected) and one.rule.startswith("validation:") for one in events)
    assert counts["judged"] == creates - invalid > 0, counts


OF_KAFKA_BROKERS = """
quorum
join 1
join 2
join 3
unfence 1
unfence 2
unfence 3
create t on=0:1.2.3 timeout=0 id=c
fence 1
reconcile t
unfence 1
report t by=2 0:2.3.1:1:1:e2.3.1
elect t 0
reassign t 0:3.1
configure 4: set:log.retention.ms=-1
configure 4:1 set:log.retention.ms=5
"""
FOR_KAFKA_BROKERS = """
[[rule]]
name = "still"
on = ["reassign", "elect"]
refuse = "nothing moves"

[[rule]]
name = "short"
configs = { "retention.ms" = { max = 9 } }
"""


def test_reassignments_elections_and_broker_configs_are_tried(tmp_path: Path) -> None:
    """The log has their results only: no client id, and no host of reassignments and elections."""
    (tmp_path / "rules.toml").write_text(FOR_KAFKA_BROKERS)
    rig = given("")
    for line in OF_KAFKA_BROKERS.strip().splitlines():
        rig.put(command(rig, line))
    options = Options(settings=(("topic.rules.file", str(tmp_path / "rules.toml")),))
    outcome = run_backtest(InProcess(), written(tmp_path / "log", rig.log), options)
    listed = {(row["api"], row["principal"], row["rule"], row["examples"][0]["topic"]) for row in outcome.rows}
    assert listed == {
        ("ElectLeaders", "User:alice", "policy:rules/still", "t"),
        ("AlterPartitionReassignments", "User:alice", "policy:rules/still", "t"),
        ("IncrementalAlterConfigs", "User:alice", "policy:rules/short", "configs of all brokers"),
    }
    assert (outcome.about["requests"], outcome.about["otherwise"]) == (5, 3)


def test_a_backtest_of_a_limit_counts_the_recorded_topics(tmp_path: Path) -> None:
    rules = tmp_path / "limits.toml"
    rules.write_text('[[rule]]\nname = "few"\nlimit = { topics = 2, per = "principal" }\n')
    found = tried(story(STORY).log, None, topic_rules_file=str(rules))
    assert [(one.change, one.principal, example_of(one)[1]) for one in found] == [
        ("refused", "User:alice", "broken"),
        ("refused", "User:alice", "one"),
    ]
    assert "User:alice has 2 topics" in example_of(found[0])[2]
