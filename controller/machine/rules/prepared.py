"""Finds the few rules that a change may violate: with 50 mixed rules a create costs a fourth more, not four times more.

Most changes violate no rule, and many topics are alike. An index by the literal beginnings of `topics` and `principals`
finds the rules that may apply. Which of them the facts of a topic violate is computed once for equal facts, as far as
the rules name them. `Rule.violation` then decides on each suspect, so a suspect without a violation costs only time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Sequence

from msgspec.structs import replace

from controller.machine.configs.topic_configs import MIN_INSYNC_REPLICAS
from controller.machine.rules.expression import Variables
from controller.machine.rules.rule import Change, Kind, Rule
from controller.patterns import Pattern

KNOWN_MAX = 1000
KNOWN_CHARS_MAX = 2000
"""Limits for the facts whose suspects are kept: their number, and the characters of the configs in each."""


class Prepared:
    """The rules for one kind of change."""

    def __init__(self, rules: Sequence[Rule], kind: Kind) -> None:
        self._rules = [rule for rule in rules if kind in rule.on]
        self._of_all = kind == "defaults"  # without a name of a topic; rare
        topics: defaultdict[str, list[int]] = defaultdict(list)
        principals: defaultdict[str, list[int]] = defaultdict(list)
        for n, rule in enumerate(self._rules):
            prefixes = rule.topics.prefixes or ("" if rule.limit is None else rule.limit.prefix,)
            index, prefixes = (topics, prefixes) if all(prefixes) else (principals, rule.principals.prefixes or ("",))
            for prefix in prefixes:
                index[prefix].append(n)
        self._indexes = topics, principals
        self._lengths = [sorted({len(prefix) for prefix in index}, reverse=True) for index in self._indexes]
        named = [_configs_named(rule) for rule in self._rules]
        self._named = None if None in named else {MIN_INSYNC_REPLICAS}.union(*filter(None, named))
        self._known: dict[object, list[tuple[Rule, Pattern | None]]] = {}
        """The suspects for some facts; with a pattern, only for a topic whose name does not match it."""

    def suspects(self, change: Change, variables: Variables[Change]) -> Sequence[Rule]:
        """Returns all rules that the change violates, and perhaps others, in the order of the text."""
        topic = change.after
        if self._of_all or topic is None:
            return self._rules
        begins = _longest(self._lengths[0], self._indexes[0], change.topic)
        by = _longest(self._lengths[1], self._indexes[1], change.principal)
        named, configs = self._named, tuple(topic.configs.items())
        if configs and named is not None:
            configs = tuple([pair for pair in configs if pair[0] in named])
        key = (begins, by, topic.partitions, topic.factors, configs, topic.defaults)
        known = self._known.get(key)
        if known is None:
            indexed = {
                n
                for index, longest in zip(self._indexes, (begins, by), strict=True)
                for prefix, found in index.items()
                if longest.startswith(prefix)
                for n in found
            }
            rules = [self._rules[n] for n in sorted(indexed)]
            known = []
            for rule in rules:
                if replace(rule, name_pattern=None).may_be_violated(change, topic, variables):
                    known.append((rule, None))
                elif rule.name_pattern is not None:
                    known.append((rule, rule.name_pattern))
            if sum(len(text) for _, text in configs) <= KNOWN_CHARS_MAX:
                if len(self._known) >= KNOWN_MAX:
                    self._known.clear()
                self._known[key] = known
        return known and [rule for rule, pattern in known if pattern is None or not pattern.is_found_in(change.topic)]


def _longest(lengths: Sequence[int], index: Container[str], name: str) -> str:
    """The longest beginning of a name that an index has; every other one is a beginning of it."""
    for length in lengths:
        if (prefix := name[:length]) in index:
            return prefix
    return ""


def _configs_named(rule: Rule) -> set[str] | None:
    """The configs on which a rule depends; None if it may depend on any."""
    if rule.allowed_configs is not None or (rule.check is not None and rule.check.configs is None):
        return None
    of_check = () if rule.check is None else rule.check.configs or ()
    return {*(one.name for one in rule.configs), *rule.required_configs, *rule.forbidden_configs, *of_check}
