"""Prepared rules find every rule that a change violates, and few others."""

import re
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from controller.machine.rules.expression import Expression, Variables
from controller.machine.rules.judging import judge
from controller.machine.rules.prepared import Prepared
from controller.machine.rules.reading import Rules, read_rules
from controller.machine.rules.rule import KINDS, Change, Rule, TopicFacts
from controller.machine.state import Counts

REQUIREMENTS = (
    "partitions = {{ max = {n} }}",
    "partitions = {n}",
    "replication_factor = {{ min = {n} }}",
    'configs = {{ "retention.ms" = {{ max = {n} }} }}',
    'configs = {{ "retention.ms" = {{ min = {n} }} }}',
    'configs = {{ "cleanup.policy" = ["compact", "compact,delete"] }}',
    'configs = {{ "cleanup.policy" = "delete" }}',
    'required_configs = ["retention.ms"]\nallowed_configs = ["cleanup.policy"]',
    'forbidden_configs = ["retention.ms"]',
    "allowed_configs = []",
    "name_pattern = '^pay'",
    "name_pattern = 's{{{n}}}'",
    'refuse = "no"',
    "limit = {{ topics = {n} }}",
    "limit = {{ partitions = {n}, prefix = 'pay.' }}",
    "check = 'partitions < {n}'",
    "check = \"config['retention.ms'] > {n}\"",
    "check = \"config['cleanup.policy'] == ['delete'] || name == \\\"config['x']\\\"\"",
    "check = 'partitions / (replication_factor - {n}) > 0'",
    "check = 'partitions'",
    "check = 'min_insync_replicas < {n}'",
    "check = 'before == null || before.partitions <= {n}'",
    "check = \"config.exists(key, key == 'a') || min_insync_replicas < {n}\"",
    "check = \"label.owner == 'ann' // it's {n}\"",
    "check = \"name.matches('s{{{n}}}$')\"",
)
SCOPES = (
    *(
        "topics = 'pay.*'",
        "topics = ['pay.*', 'web*']",
        "topics = '*.orders'",
        "topics = ['w?b*', '*x']",
        "topics = 'pay'",
    ),
    *(
        "except_topics = 'pay.*'",
        "principals = 'User:a*'",
        "principals = ['User:bob', '*']",
        "except_principals = 'User:ann'",
    ),
    *('on = ["delete", "grow"]', 'on = "create"', "mode = 'warn'", "hint = 'hint'", "fail = 'open'"),
)
CONFIGS = {
    "retention.ms": ["1", "2", "4", "-1", "x"],
    "cleanup.policy": ["compact", "delete,compact", "delete", "?"],
    "label.owner": ["ann"],
    "min.insync.replicas": ["1", "2", "3"],
    "unknown": ["1"],
}


def text_of(dice: Random) -> str:
    """Rules of one requirement each; half of them have a scope."""
    text = ""
    for n in range(dice.randint(1, 6)):
        requirement = dice.choice(REQUIREMENTS).format(n=dice.randint(1, 4))
        scope = dice.choice(SCOPES) if dice.random() < 0.5 else ""
        scope = "" if "limit" in requirement and "topics" in scope else scope
        mode = "" if "mode" in scope else "mode = 'observe'"
        text += "\n".join((f"[[rule]]\nname = 'r{n}'", requirement, scope, mode, ""))
    return text


def facts(dice: Random) -> TopicFacts:
    configs = {name: dice.choice(values) for name, values in CONFIGS.items() if dice.random() < 0.5}
    factors = sorted({dice.randint(1, 3) for _ in range(dice.randint(1, 2))})
    return TopicFacts(dice.randint(1, 4), tuple(factors), configs, (("log.retention.ms", "2"),))


def change_of(dice: Random) -> Change:
    kind = dice.choice(("create", "alter", *KINDS))
    return Change(
        kind=kind,
        topic=dice.choice(["pay", "pay.orders", "pays.s", "web", "web.orders", "wx", "x"]),
        before=None if kind == "create" else facts(dice),
        after=None if kind == "delete" else facts(dice),
        principal=dice.choice(["User:ann", "User:bob"]),
        at_ms=0,
        counts=lambda group: Counts(2, 2),
    )


class Everything(Prepared):
    def suspects(self, change: Change, variables: Variables[Change]) -> Sequence[Rule]:
        return self._rules


@pytest.mark.parametrize("seed", range(10))
def test_prepared_rules_find_the_violations_that_all_rules_find(seed: int) -> None:
    dice, allowed = Random(seed), 0
    for _ in range(60):
        rules = read_rules(text_of(dice))
        everything = Rules(rules.rules, prepared={kind: Everything(rules.rules, kind) for kind in KINDS})
        for change in [change_of(dice) for _ in range(30)]:
            expected = judge(everything, change)
            assert judge(rules, change) == expected
            if change.kind == "create" and change.after is not None:
                of = change.after
                facts = (of.partitions, of.factors, tuple(of.configs.items()))
                is_allowed = rules.of("create").is_allowed(change.topic, change.principal, facts, of.defaults)
                assert not (is_allowed and expected.all)
                allowed += is_allowed
    assert allowed


def test_none_of_fifty_rules_is_applied_to_a_valid_create(monkeypatch: pytest.MonkeyPatch) -> None:
    pack = Path("examples/rules/pack.toml").read_text()
    parts = re.findall(r"^\[\[rule\]\](?:\n(?!\[\[(?:rule|example|default)\]\]).*)*", pack, re.MULTILINE)
    fifty = islice(cycle(parts), 50)
    rules = read_rules("\n".join(re.sub('name = "', f'name = "n{n}-', part, count=1) for n, part in enumerate(fifty)))
    assert len(rules.rules) == 50
    applied: list[str] = []
    evaluated: list[str] = []

    def noted(names: list[str], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda one, *of: (names.append(getattr(one, name)), function(one, *of))[1]  # type: ignore[func-returns-value]

    monkeypatch.setattr(Rule, "violation", noted(applied, "name", Rule.violation))
    monkeypatch.setattr(Expression, "value", noted(evaluated, "text", Expression.value))
    configs = {"min.insync.replicas": "2", "retention.ms": "86400000", "retention.bytes": "1"}
    for number in range(3):
        after = TopicFacts(6, (3,), {**configs, "label.ticket": str(number)})
        topic = f"web.orders-{number}"
        change = Change(kind="create", topic=topic, before=None, after=after, principal="User:web", at_ms=0)
        assert not judge(rules, change).all
        assert applied == []
        assert bool(evaluated) == (number == 0), "of equal topics only the first is evaluated, whatever labels it has"
        evaluated.clear()
