"""Applies the rules of the state to a decided change, for `decide`: violations refuse, warn, or are only observed.

The rules are part of the state, so that every process uses the version recorded before a decision. A change is judged
after the decision on it, because the decision contains the topic after the change. `filled` runs before the decision:
it adds the defaults of the rules to a create request. `apply_rules` decides on new rules, which become a version in the
log.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any

import msgspec
from msgspec.structs import replace

from controller.machine.apply import apply_topic, concerns_topic
from controller.machine.commands import commands
from controller.machine.commands.access import ApplyRules
from controller.machine.configs.changes import altered
from controller.machine.configs.topic_configs import (
    BY_NAME,
    MIN_INSYNC_REPLICAS,
    effective_values,
    labels_of,
    operators_default,
    without_labels,
)
from controller.machine.configs.values import Bad
from controller.machine.decision import Decision, answered, topic_named
from controller.machine.errors import ErrorCode, Rejection
from controller.machine.rules.expression import Variables
from controller.machine.rules.prepared import Prepared
from controller.machine.rules.reading import Rules, new_rules, recorded_rules
from controller.machine.rules.rule import MODES, Change, Kind, Rule, RulesError, TopicDefaults, TopicFacts, Violation
from controller.machine.state import BROKERS, Cluster, Counts, State, Topic
from events import catalog
from events.errors import shortened
from events.names import Offset

KIND_OF: Mapping[type, Kind] = {
    commands.CreateTopic: "create",
    commands.CreatePartitions: "grow",
    commands.AlterTopicConfigs: "alter",
    commands.DeleteTopic: "delete",
    commands.ReassignPartitions: "reassign",
    commands.ElectLeaders: "elect",
    commands.AlterResourceConfigs: "defaults",
    commands.DiscoverTopic: "discovered",
}
"""The commands that rules judge."""
DEFAULTS_TRIED_MAX = 50_000
"""Pairs of a topic and a default that one request may compare: this takes 50 ms at most."""
FAILED = ":failed"
"""Follows the name of a rule in the log if its expression failed."""
RECORDED_CHARS_MAX = 50_000
"""Characters of all messages about one change: they are one event, which must fit in a record of a Kafka topic."""


class Judgement(msgspec.Struct, frozen=True):
    """The violations of rules by a change, by the mode of the rule (enforce, warn, observe)."""

    refused: tuple[catalog.Observation, ...] = ()
    warned: tuple[catalog.Observation, ...] = ()
    observed: tuple[catalog.Observation, ...] = ()
    held: tuple[tuple[Rule, catalog.Observation], ...] = ()
    """Violations of enforced rules that somebody may approve."""

    @property
    def all(self) -> tuple[catalog.Observation, ...]:
        return (*self.refused, *(one for _, one in self.held), *self.warned, *self.observed)

    def rejection(self, defaults: Sequence[catalog.FilledDefault] = ()) -> Rejection | None:
        """The rejection if enforced rules are violated, which names each of those rules, and the defaults whose values
        they refuse; else None."""
        if not self.refused:
            return None
        message = "; ".join(one.message for one in self.refused)
        named = [one for one in defaults if re.search(rf"\b{re.escape(one.name)} is ", message)]
        filled = [f"{one.name} {one.value} comes from default '{one.rule.rpartition('/')[2]}'" for one in named]
        message = shortened("; ".join((message, *filled)), catalog.MESSAGE_CHARS_MAX)
        return Rejection(ErrorCode.POLICY_VIOLATION, message, self.refused[0].rule)


ALLOWED = Judgement()


def judge(rules: Rules, change: Change, approved: Collection[str] = ()) -> Judgement:
    """Applies all rules to a change, except those with these names, whose violation was approved."""
    variables, before = Variables(_MAKERS, change), change.before
    suspects = rules.of(change.kind).suspects(change, variables)
    if not suspects:
        return ALLOWED
    unchanged = None if before is None else Variables(_MAKERS, replace(change, after=before))
    violations: list[tuple[Rule, Violation]] = []
    for rule in suspects:
        found = None if rule.name in approved else rule.violation(change, variables, unchanged)
        if found is not None:
            violations.append((rule, found))
    if not violations:
        return ALLOWED
    violations.sort(key=lambda one: not one[1].failed)  # the first one names the refusal in the log
    chars_max = min(catalog.MESSAGE_CHARS_MAX, RECORDED_CHARS_MAX // len(violations))
    broken: dict[str, list[catalog.Observation]] = {mode: [] for mode in MODES}
    held = []
    for rule, found in violations:
        mode = "observe" if change.kind == "discovered" or (found.failed and rule.is_open) else rule.mode
        name = f"policy:rules/{rule.name}{FAILED if found.failed else ''}"
        observation = catalog.Observation(name, shortened(found.message, chars_max))
        if rule.approve_by and mode == "enforce" and not found.failed:
            held.append((rule, observation))
        else:
            broken[mode].append(observation)
    refused, warned, observed = (tuple(broken[mode]) for mode in MODES)
    return Judgement(refused, warned, observed, tuple(held))


def judge_decision(
    rules: Rules, state: State, command: commands.AnyCommand, decision: Decision, approved: Collection[str] = ()
) -> Judgement:
    """Applies the rules to a decided command, except the approved ones."""
    if decision.refusal is not None or decision.needs_approval:
        return ALLOWED
    kind = KIND_OF[type(command)]
    change = _change(state, kind, command, decision, rules.of(kind))
    return ALLOWED if change is None else judge(rules, change, approved)


def filled(
    state: State, command: commands.CreateTopic
) -> tuple[commands.CreateTopic, tuple[catalog.FilledDefault, ...]]:
    """Adds the defaults of the rules to a create request. Returns the new command, and each added value with the name
    of its default.

    For each value the first default that applies is used. A request with a manual assignment gets no counts.
    """
    added: list[catalog.FilledDefault] = []
    for default in _applicable(rules_of(state.cluster).defaults, command.principal, command.topic):
        values: dict[str, Any] = {}
        if not command.assignments:
            given = {"num_partitions": default.partitions, "replication_factor": default.replication_factor}
            values = {name: value for name, value in given.items() if value and getattr(command, name) == -1}
        named = {name for name, _ in command.configs}
        configs = tuple((name, text) for name, text in default.configs if name not in named)
        new = [(name.removeprefix("num_"), str(value)) for name, value in (*values.items(), *configs)]
        added += [catalog.FilledDefault(f"policy:rules/{default.name}", *pair) for pair in new]
        command = replace(command, **values, configs=(*command.configs, *configs)) if new else command
    return command, tuple(added)


def _applicable(defaults: Sequence[TopicDefaults], principal: str, topic: str) -> Iterator[TopicDefaults]:
    return (one for one in defaults if principal in one.principals and topic in one.topics)


def most_partitions(cluster: Cluster, principal: str, topics: Sequence[str]) -> int:
    """Returns how many partitions create requests for these topics get that ask for no number; more if the defaults of
    the rules are too many to try each topic."""
    own, defaults = cluster.settings.num_partitions, rules_of(cluster).defaults
    largest = max([own, *(one.partitions for one in defaults)])
    if largest == own or len(topics) * len(defaults) > DEFAULTS_TRIED_MAX:
        return largest * len(topics)
    applicable = (_applicable(defaults, principal, topic) for topic in topics)
    return sum(next((one.partitions for one in each if one.partitions), own) for each in applicable)


def rules_of(cluster: Cluster) -> Rules:
    return recorded_rules("" if cluster.rules is None else cluster.rules.text)


def _change(state: State, kind: Kind, command: Any, decision: Decision, prepared: Prepared) -> Change | None:
    """The change that a decision makes, or would make in a dry run; None if it makes none, or one that the prepared
    rules are known to allow."""
    if not decision.events and not (
        getattr(command, "validate_only", False) and decision.answers and not decision.answers[0].code
    ):
        return None
    before: TopicFacts | None
    after: TopicFacts | None
    principal = owner = getattr(command, "principal", "")
    defaults = state.cluster.settings.effective_defaults
    if kind == "create":
        made: Any = decision.events[1] if decision.events else decision.answers[0].topic
        facts = len(made.partitions), (made.replication_factor,), made.configs
        if prepared.is_allowed(command.topic, principal, facts, defaults):
            return None
        before, after = None, TopicFacts(*facts[:2], dict(made.configs), defaults)
    elif kind == "defaults":
        if command.kind != BROKERS:
            return None
        before, after = _defaults(state.cluster, command)
    else:
        topic = topic_named(state, command.topic)
        owner = owner if topic is None else topic.principal
        before = None if topic is None else _facts(topic, defaults)
        changed = None if kind == "delete" else _topic_after(topic, command, decision)
        if before is not None and topic and changed and changed.partitions is topic.partitions:
            after = replace(before, configs=dict(changed.configs))  # there may be 100,000 partitions
        else:
            after = None if changed is None else _facts(changed, defaults)
    return Change(
        kind=kind,
        topic=command.topic,
        before=before,
        after=after,
        principal=principal,
        client_id=getattr(command, "client_id", None),
        host=getattr(command, "host", ""),
        at_ms=command.at_ms,
        owner=owner,
        counts=partial(_counts, state, command),
    )


def _counts(state: State, command: Any, group: str) -> Counts:
    """The counts of a group before a command, with those of the other partitions of the log."""
    elsewhere = {name: Counts(*counts) for name, *counts in getattr(command, "elsewhere", ())}
    return state.topics.counts(group) + elsewhere.get(group, Counts())


def limited_groups(state: State, command: commands.TopicCommand) -> set[str]:
    """The groups of topics whose counts the rules need for a command that adds topics or partitions."""
    if not isinstance(command, commands.CreateTopic | commands.CreatePartitions):
        return set()
    topic = topic_named(state, command.topic)
    owner = command.principal if topic is None else topic.principal
    limits = (rule.limit for rule in rules_of(state.cluster).rules if rule.limit is not None)
    groups = (limit.group(command.topic, owner) for limit in limits)
    return {group for group in groups if group is not None}


def _topic_after(topic: Topic | None, command: commands.AnyCommand, decision: Decision) -> Topic:
    after = topic if decision.events else decision.answers[0].topic
    for event in filter(concerns_topic, decision.events):
        cause = catalog.Cause(type(command).__name__, command.request_id)
        after = apply_topic(after, catalog.Recorded(Offset(-1), command.at_ms, cause, event))
    assert after is not None, "the change does not delete the topic, and a dry run answers with the topic"
    return after


def _facts(topic: Topic, defaults: catalog.Configs) -> TopicFacts:
    factors = {
        len(one.replicas) - (len(one.replica_metadata.removing) if one.replica_metadata else 0)
        for one in topic.partitions
    }
    return TopicFacts(len(topic.partitions), tuple(sorted(factors)), dict(topic.configs), defaults)


def _defaults(cluster: Cluster, command: commands.AlterResourceConfigs) -> tuple[TopicFacts, TopicFacts]:
    before = cluster.configs_of(command.kind, command.name)
    after = altered(before, command.ops, command.incremental)
    assert not isinstance(after, Rejection), "it was decided"
    return _inherited(before), _inherited(after)


def _inherited(settings: catalog.Configs) -> TopicFacts:
    """The broker-level configs that topics inherit, under the names of the topic configs."""
    given = dict(settings)
    texts = {row.name: operators_default(row, given) for row in BY_NAME.values()}
    return TopicFacts(0, (), {name: text for name, text in texts.items() if text is not None})


def apply_rules(state: State, command: ApplyRules) -> Decision:
    """Applies rules. The answer's `number` is the version that is effective afterwards.

    Nothing changes if the text equals the effective rules, or if a file equals the last file that was applied. Invalid
    rules are refused with INVALID_CONFIG. INVALID_UPDATE_VERSION: the newest version is not the command's `after`.
    """
    held = state.cluster.rules
    number = 0 if held is None else held.number
    if command.after is not None and command.after != number:
        message = f"Version {number} of the rules was applied meanwhile, after version {command.after}."
        return answered(command, code=ErrorCode.INVALID_UPDATE_VERSION, message=message, number=number)
    try:
        if command.text:
            new_rules(command.text)
    except RulesError as error:
        return answered(command, code=ErrorCode.INVALID_CONFIG, message=str(error), number=number)
    digest = sha256(command.text.encode()).hexdigest()
    known = "" if held is None else held.file_sha256 if command.is_file else held.sha256
    if digest == known or (held is None and not command.text):
        return answered(command, number=number)
    who = (command.principal, command.client_id, command.host)
    event = catalog.RulesApplied(command.request_id, number + 1, command.text, digest, command.is_file, *who)
    return answered(command, event, number=number + 1)


# Examples.


def wrong_examples(rules: Rules, at_ms: int) -> Iterator[str]:
    """Yields a message for each example whose change violates other rules than the example names."""
    for example in rules.examples:
        topic, principal = example.topic, example.principal
        before = None if example.before is None else _example_facts(example.before)
        after = None if example.change == "delete" else _example_facts({**(example.before or {}), **example.after})
        change = Change(kind=example.change, topic=topic, before=before, after=after, principal=principal, at_ms=at_ms)
        change = replace(change, owner=principal, counts=lambda group, counts=example.counts: counts)
        judgement = judge(rules, change)
        found = {one.rule.rpartition("/")[2] for one in judgement.all}
        if found != set(example.violates):
            expected = ", ".join(example.violates) or "no rule"
            text = "; ".join(one.message for one in judgement.all) or "no rule is violated"
            yield f"line {example.line}: {example.change} {topic} should violate {expected}, but {text}"


def _example_facts(given: Mapping[str, Any]) -> TopicFacts:
    configs = dict(given.get("configs", ()))
    return TopicFacts(given.get("partitions", 1), (given.get("replication_factor", 1),), configs)


# Variables of expressions.


def _now(change: Change) -> TopicFacts:
    now = change.after or change.before
    assert now is not None, "a change is of something"
    return now


def _value(topic: TopicFacts, name: str) -> object:
    value = topic.value(name) if name in topic.configs else None
    if value is None or isinstance(value, Bad):
        value = effective_values(topic.defaults)[name]
    return value


def _config(topic: TopicFacts) -> dict[str, object]:
    """The effective configs of a topic by name: numbers, texts, true or false, and lists."""
    names = dict.fromkeys((*effective_values(topic.defaults), *(name for name in topic.configs if name in BY_NAME)))
    return {name: _value(topic, name) for name in names}


_TOPIC_MAKERS: Mapping[str, Callable[[TopicFacts], object]] = {
    "partitions": lambda topic: topic.partitions,
    "replication_factor": lambda topic: topic.factors[-1],
    "min_insync_replicas": lambda topic: _value(topic, MIN_INSYNC_REPLICAS),
    "configs": lambda topic: dict(without_labels(topic.configs.items())),
    "label": lambda topic: labels_of(topic.configs.items()),
    "config": _config,
}
_MAKERS: Mapping[str, Callable[[Change], object]] = {
    "name": lambda change: change.topic,
    "change": lambda change: change.kind,
    "principal": lambda change: change.principal,
    "client_id": lambda change: change.client_id or "",
    "host": lambda change: change.host,
    "before": lambda change: change.before and {name: make(change.before) for name, make in _TOPIC_MAKERS.items()},
    "after": lambda change: change.after and {name: make(change.after) for name, make in _TOPIC_MAKERS.items()},
    **{name: lambda change, make=make: make(_now(change)) for name, make in _TOPIC_MAKERS.items()},  # type: ignore[misc]
}
