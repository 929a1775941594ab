"""Finds the few rules that a change may violate, so that 50 rules cost less than a tenth of a create.

Most changes violate no rule. The rules for a kind of change are prepared once: an index by the literal beginnings of
`topics` and `principals` finds the buckets of rules that may apply. In a bucket, one comparison for each value stands
for all its rules: they are suspects only if some rule does not allow the value. One CEL program evaluates all cheap
conditions. `Rule.violation` then decides on each suspect, so that a suspect without a violation costs only time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import inf

from controller.machine.configs.topic_configs import LABEL
from controller.machine.configs.values import Bad
from controller.machine.rules.expression import Conditions, Variables
from controller.machine.rules.rule import Change, ConfigRequirement, Kind, Range, Rule, TopicFacts

NONE: AbstractSet[int] = frozenset()


class Prepared:
    """The rules for one kind of change."""

    def __init__(self, rules: Sequence[Rule], kind: Kind) -> None:
        self._rules = [rule for rule in rules if kind in rule.on]
        self._is_simple = kind == "defaults"  # without a name of a topic; rare
        topics: defaultdict[str, dict[int, Rule]] = defaultdict(dict)
        principals: defaultdict[str, dict[int, Rule]] = defaultdict(dict)
        for n, rule in enumerate(self._rules):
            prefixes = rule.topics.prefixes or ("" if rule.limit is None else rule.limit.prefix,)
            named, prefixes = (topics, prefixes) if all(prefixes) else (principals, rule.principals.prefixes or ("",))
            for prefix in prefixes:
                named[prefix][n] = rule
        self._topics, self._principals = _Index(topics), _Index(principals)

    def suspects(self, change: Change, variables: Variables[Change]) -> Sequence[Rule]:
        """Returns all rules that the change violates, and perhaps others, in the order of the text."""
        if self._is_simple:
            return self._rules
        found: set[int] = set()
        for bucket in (*self._topics.buckets(change.topic), *self._principals.buckets(change.principal)):
            bucket.add_suspects(found, change, variables)
        return [self._rules[n] for n in sorted(found)] if found else ()


class _Index:
    """Buckets of rules by the beginning of a name."""

    def __init__(self, rules: Mapping[str, dict[int, Rule]]) -> None:
        self._buckets = {prefix: _Bucket(numbered) for prefix, numbered in rules.items()}
        self._lengths = sorted({len(prefix) for prefix in rules})

    def buckets(self, name: str) -> list[_Bucket]:
        known = self._buckets
        return [known[prefix] for length in self._lengths if (prefix := name[:length]) in known]


class _Bucket:
    """Rules by number. Each requirement is in one of the groups here, or its rule is always a suspect."""

    def __init__(self, rules: dict[int, Rule]) -> None:
        conditions = {n: one.check for n, one in rules.items() if one.check is not None and one.check.is_cheap}
        self._always = {n for n, one in rules.items() if one.refuse or one.limit or (one.check and n not in conditions)}
        self._conditions = Conditions(tuple(conditions.values())) if conditions else None
        self._conditional = tuple(conditions)
        patterns: dict[str, tuple[Callable[[str], bool], set[int]]] = {}
        self._settable: frozenset[str] | None = None
        self._selective: set[int] = set()
        self._allowed: dict[str, tuple[ConfigRequirement | None, set[int]]] = {}
        self._required: defaultdict[str, set[int]] = defaultdict(set)
        self._forbidden: defaultdict[str, set[int]] = defaultdict(set)
        for n, one in rules.items():
            if one.name_pattern is not None:
                patterns.setdefault(one.name_pattern.text, (one.name_pattern.is_found_in, set()))[1].add(n)
            if one.allowed_configs is not None:
                self._selective.add(n)
                settable = frozenset(one.settable)
                self._settable = settable if self._settable is None else self._settable & settable
            for requirement in one.requirements():
                both, numbers = self._allowed.get(requirement.name, (requirement, set()))
                self._allowed[requirement.name] = (both and both.common(requirement), numbers | {n})
            for names, group in ((one.required_configs, self._required), (one.forbidden_configs, self._forbidden)):
                for name in names:
                    group[name].add(n)
        self._patterns = tuple(patterns.values())
        self._partitions, self._factors = self._range("partitions"), self._range("replication_factor")

    def _range(self, name: str) -> tuple[float, float, AbstractSet[int]]:
        """The range that all rules allow, and the rules; an empty range if they contradict each other."""
        both, numbers = self._allowed.get(name, (None, NONE))
        allowed = None if both is None else both.allowed
        return (allowed.low, allowed.high, numbers) if isinstance(allowed, Range) else (inf, -inf, numbers)

    def add_suspects(self, found: set[int], change: Change, variables: Variables[Change]) -> None:
        found |= self._always
        if self._conditions is not None:
            answers = self._conditions.are_true(variables)
            found.update(n for n, is_true in zip(self._conditional, answers, strict=True) if not is_true)
        topic = change.after
        if topic is None:
            return
        for is_found_in, numbers in self._patterns:
            if not is_found_in(change.topic):
                found |= numbers
        for name, numbers in self._required.items():
            if name not in topic.configs:
                found |= numbers
        self._add_by_values(found, topic)

    def _add_by_values(self, found: set[int], topic: TopicFacts) -> None:
        allowed, settable = self._allowed, self._settable
        low, high, numbers = self._partitions
        if not low <= topic.partitions <= high:
            found |= numbers
        low, high, numbers = self._factors
        if topic.factors and not low <= topic.factors[0] <= topic.factors[-1] <= high:
            found |= numbers
        for name in topic.configs:
            if name in allowed:
                both, numbers = allowed[name]
                value = topic.value(name)
                if both is None or isinstance(value, Bad) or not both.allows(value):
                    found |= numbers
            if name in self._forbidden:
                found |= self._forbidden[name]
            if settable is not None and name not in settable and not name.startswith(LABEL):
                found |= self._selective
