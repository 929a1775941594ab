"""Finds the few rules that a change may violate: 50 rules make a create a tenth more expensive, not four times.

Most changes violate no rule, and many topics are alike. Which rules the facts of a topic violate is computed once for
each principal and for equal facts, as far as the rules name them, and for the names with the same literal beginning in
`topics`. `Rule.violation` then decides on each suspect, so a suspect without a violation costs only time.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from controller.machine.configs.topic_configs import MIN_INSYNC_REPLICAS
from controller.machine.rules.expression import Variables
from controller.machine.rules.rule import Change, Kind, Rule
from controller.patterns import Pattern
from events.values import Configs

KNOWN_MAX = 1000
KNOWN_CHARS_MAX = 2000
"""Limits for the facts whose suspects are kept: their number, and the characters of the configs in each."""
Facts = tuple[int, tuple[int, ...], Configs]
"""The partitions, replication factors and explicit configs of a topic."""


class Prepared:
    """The rules for one kind of change."""

    def __init__(self, rules: Sequence[Rule], kind: Kind) -> None:
        self._rules = [rule for rule in rules if kind in rule.on]
        self._of_all = kind == "defaults"  # without a name of a topic; rare
        self._beginnings = {each for rule in self._rules for each in _beginnings(rule)}
        self._lengths = sorted(set(map(len, self._beginnings)), reverse=True)
        named = [_configs_named(rule) for rule in self._rules]
        self._named = None if None in named else {MIN_INSYNC_REPLICAS}.union(*filter(None, named))
        self._known: dict[object, list[tuple[Rule, Pattern | None]]] = {}
        """The suspects for some facts; with a pattern, only for a topic whose name does not match it."""
        self._defaults: Configs = ()
        """The defaults of the cluster for all facts in `_known`."""

    def is_allowed(self, name: str, principal: str, facts: Facts, defaults: Configs) -> bool:
        """True if a topic with these facts is known to violate no rule."""
        known = self._known.get(self._key(name, principal, facts, defaults))
        return known == [] or (known is not None and not _suspects(known, name))

    def suspects(self, change: Change, variables: Variables[Change]) -> Sequence[Rule]:
        """Returns all rules that the change violates, and perhaps others, in the order of the text."""
        topic = change.after
        if self._of_all or topic is None:
            return self._rules
        configs = tuple(topic.configs.items())
        facts = topic.partitions, topic.factors, configs
        key = self._key(change.topic, change.principal, facts, topic.defaults)
        known = self._known.get(key)
        if known is None:
            known = []
            for rule in self._rules:
                if change.principal not in rule.principals or not key[0].startswith(_beginnings(rule)):
                    continue
                if replace(rule, name_pattern=None).may_be_violated(change, topic, variables):
                    known.append((rule, None))
                elif rule.name_pattern is not None:
                    known.append((rule, rule.name_pattern))
            if sum(len(text) for _, text in configs) <= KNOWN_CHARS_MAX:
                if len(self._known) >= KNOWN_MAX:
                    self._known.clear()
                self._known[key] = known
        return _suspects(known, change.topic)

    def _key(self, name: str, principal: str, facts: Facts, defaults: Configs) -> tuple[str, str, Facts]:
        """The longest known beginning of a name, and the facts on which the rules depend."""
        if defaults is not self._defaults:  # they change rarely, and hashing them takes long
            self._known.clear()
            self._defaults = defaults
        partitions, factors, configs = facts
        if configs and (named := self._named) is not None:
            facts = partitions, factors, tuple([pair for pair in configs if pair[0] in named])
        for length in self._lengths:
            if (beginning := name[:length]) in self._beginnings:
                return beginning, principal, facts
        return "", principal, facts


def _suspects(known: Sequence[tuple[Rule, Pattern | None]], name: str) -> list[Rule]:
    return [rule for rule, pattern in known if pattern is None or not pattern.is_found_in(name)]


def _beginnings(rule: Rule) -> tuple[str, ...]:
    """The literal beginnings of the names to which a rule applies."""
    return rule.topics.prefixes or ("" if rule.limit is None else rule.limit.prefix,)


def _configs_named(rule: Rule) -> set[str] | None:
    """The configs on which a rule depends; None if it may depend on any."""
    if rule.allowed_configs is not None or (rule.check is not None and rule.check.configs is None):
        return None
    of_check = () if rule.check is None else rule.check.configs or ()
    return {*(one.name for one in rule.configs), *rule.required_configs, *rule.forbidden_configs, *of_check}
