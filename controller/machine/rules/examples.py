"""Checks the `[[example]]` tables of rules: each has a change, and the names of the rules that it must violate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from controller.machine.rules.judging import judge
from controller.machine.rules.reading import Example, Rules
from controller.machine.rules.rule import Change, TopicFacts


def wrong_examples(rules: Rules, at_ms: int) -> Iterator[str]:
    """Yields a message for each example whose change violates other rules than the example names."""
    for example in rules.examples:
        judgement = judge(rules.rules, _change(example, at_ms))
        found = {one.rule.rpartition("/")[2] for one in judgement.all}
        if found != set(example.violates):
            expected = ", ".join(example.violates) or "no rule"
            text = "; ".join(one.message for one in judgement.all) or "no rule is violated"
            yield f"line {example.line}: {example.kind} {example.topic} should violate {expected}, but {text}"


def _change(example: Example, at_ms: int) -> Change:
    before = None if example.before is None else _facts(example.before)
    after = None if example.kind == "delete" else _facts({**(example.before or {}), **example.after})
    return Change(
        kind=example.kind,
        topic=example.topic,
        before=before,
        after=after,
        principal=example.principal,
        client_id=None,
        host="",
        at_ms=at_ms,
    )


def _facts(given: Mapping[str, Any]) -> TopicFacts:
    configs = dict(given.get("configs", ()))
    return TopicFacts(given.get("partitions", 1), (given.get("replication_factor", 1),), configs)
