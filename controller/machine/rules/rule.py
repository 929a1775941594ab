"""A rule for changes of topics: its scope, its requirements, and the message for a change that violates it.

A rule sees the topic as it would be after the change: its counts, and its explicit configs. A config that is left to
the cluster counts as not set, whatever the default; expressions also see effective values. What the topic already
violated before the change is not held against it, so that an old topic can still be altered. Values are parsed by the
table of topic configs, so that `+5` is 5, `TRUE` is true, and `delete,compact` is `compact,delete`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from controller.machine.configs.table import BY_NAME
from controller.machine.configs.values import Bad, Value, read_value, value_text
from controller.machine.rules.expression import Expression, ExpressionFailed, Message, Variables
from controller.patterns import Pattern

Kind = Literal["create", "grow", "alter", "delete", "reassign", "elect", "defaults", "discovered"]
"""A kind of change. `defaults`: a dynamic config of brokers that topics inherit. `discovered`: somebody changed the
target cluster itself; such a change is only observed."""
KINDS: tuple[Kind, ...] = ("create", "grow", "alter", "delete", "reassign", "elect", "defaults", "discovered")
ON_BY_DEFAULT: tuple[Kind, ...] = ("create", "grow", "alter", "reassign", "defaults", "discovered")
Mode = Literal["enforce", "warn", "observe"]
MODES: tuple[Mode, ...] = ("enforce", "warn", "observe")


class TopicFacts(msgspec.Struct, frozen=True):
    """What rules see of a topic. `factors` are the different replication factors of its partitions, without replicas
    that a reassignment removes. `configs` are the explicit configs, `config` also has effective values."""

    partitions: int
    factors: tuple[int, ...]
    configs: Mapping[str, str]
    defaults: tuple[tuple[str, str], ...] = ()
    """The broker-level settings that are defaults of topics."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a topic: who requested it, and the topic before and after; None if there is none. A change of the
    cluster's defaults has no topic."""

    kind: Kind
    topic: str
    before: TopicFacts | None
    after: TopicFacts | None
    principal: str
    client_id: str | None
    host: str
    at_ms: int


NO_LIMIT_AT_MINUS_ONE = frozenset({"retention.ms", "retention.bytes", "local.retention.ms", "local.retention.bytes"})
"""Configs where -1 means no limit. It counts as infinite, so that it exceeds every `max`."""


class Range(msgspec.Struct, frozen=True):
    """Both ends are included; None means no limit."""

    low: float | None = None
    high: float | None = None

    def __contains__(self, number: float) -> bool:
        return (self.low is None or number >= self.low) and (self.high is None or number <= self.high)

    def __str__(self) -> str:
        if self.low is None:
            return f"at most {self.high}"
        if self.high is None:
            return f"at least {self.low}"
        return f"{self.low}" if self.low == self.high else f"{self.low} to {self.high}"


class Choice(msgspec.Struct, frozen=True):
    """One of these values. The order of lists does not matter."""

    values: tuple[Value, ...]

    def __contains__(self, value: Value) -> bool:
        return _unordered(value) in map(_unordered, self.values)

    def __str__(self) -> str:
        return " or ".join(f"'{value_text(value)}'" for value in self.values)


class ConfigRequirement(msgspec.Struct, frozen=True):
    """The allowed values of a topic config, if a request sets it."""

    name: str
    allowed: Range | Choice

    def violation(self, text: str) -> str | None:
        """Returns the error for a value, or None."""
        row = BY_NAME[self.name]
        value = read_value(row.name, row.kind, row.allowed, text)
        if isinstance(value, Bad):
            return value.message
        return None if self._allows(value) else f"{self.name} is '{text.strip()}', allowed is {self.allowed}"

    def _allows(self, value: Value) -> bool:
        if isinstance(self.allowed, Choice):
            return value in self.allowed
        assert isinstance(value, int | float), f"{self.name} has a range, so its values are numbers"
        endless = value == -1 and self.name in NO_LIMIT_AT_MINUS_ONE
        return (float("inf") if endless else value) in self.allowed


class Scope(msgspec.Struct, frozen=True):
    """Names that match `only` and not `but`. None matches every name for `only`, and none for `but`."""

    only: re.Pattern[str] | None = None
    but: re.Pattern[str] | None = None

    def __contains__(self, name: str) -> bool:
        if self.but is not None and self.but.fullmatch(name):
            return False
        return self.only is None or self.only.fullmatch(name) is not None


class Exemption(msgspec.Struct, frozen=True, kw_only=True):
    """Topics or principals that a rule does not apply to, with the reason, until a time (exclusive)."""

    topics: Scope = Scope()
    principals: Scope = Scope()
    reason: str
    until_ms: int
    until: str
    """The date as written."""
    applies_to: str = ""
    """The topics and principals as written."""

    def covers(self, change: Change) -> bool:
        return change.at_ms < self.until_ms and change.topic in self.topics and change.principal in self.principals


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule of a file; see docs/policies.md for each key."""

    name: str
    mode: Mode = "enforce"
    on: tuple[Kind, ...] = ON_BY_DEFAULT
    hint: str = ""
    message: Message | None = None
    is_open: bool = False
    """True if an expression that fails allows the change (`fail = "open"`)."""
    principals: Scope = Scope()
    topics: Scope = Scope()
    exceptions: tuple[Exemption, ...] = ()
    refuse: str = ""
    name_pattern: Pattern | None = None
    partitions: Range | None = None
    replication_factor: Range | None = None
    configs: tuple[ConfigRequirement, ...] = ()
    required_configs: tuple[str, ...] = ()
    allowed_configs: tuple[str, ...] | None = None
    forbidden_configs: tuple[str, ...] = ()
    check: Expression | None = None
    written: dict[str, str] = {}
    """The keys and values in the file, without name and mode."""

    def violation(self, change: Change, variables: Variables, unchanged: Variables | None) -> str | None:
        """Returns the message for a change that violates the rule, or None.

        `variables` are those of the change, `unchanged` those of the topic as it was, None for a new one.
        """
        if change.kind not in self.on or change.principal not in self.principals:
            return None
        if change.kind != "defaults" and change.topic not in self.topics:
            return None
        if any(exemption.covers(change) for exemption in self.exceptions):
            return None
        found = list(self._violations(change, variables, unchanged))
        if not found:
            return None
        text = ", ".join(found) if self.message is None else self.message.text(variables)
        return f"rule '{self.name}': {text}" + (f" ({self.hint})" if self.hint else "")

    def _violations(self, change: Change, variables: Variables, unchanged: Variables | None) -> Iterator[str]:
        if change.kind == "defaults":  # a topic's name and counts say nothing about what other topics inherit
            assert change.after is not None, "defaults remain"
            yield from self._config_violations(change.after.configs, is_whole=False)
        elif self.refuse:
            yield self.refuse
        elif change.after is not None:
            already = frozenset() if change.before is None else frozenset(self._topic_violations(change, change.before))
            yield from (one for one in self._topic_violations(change, change.after) if one not in already)
        if self.check is not None and change.kind != "defaults":
            violation = self._check_violation(self.check, variables)
            was_so = change.after is not None and unchanged is not None and self.check.is_of_topic
            if violation and not (was_so and self._check_violation(self.check, unchanged)):  # type: ignore[arg-type]
                yield violation

    def _check_violation(self, check: Expression, variables: Variables) -> str | None:
        try:
            return None if check.is_true(variables) else f"`{check.text}` is false"
        except ExpressionFailed as error:
            return None if self.is_open else f"`{check.text}` failed: {error}"

    def _topic_violations(self, change: Change, topic: TopicFacts) -> Iterator[str]:
        if self.name_pattern is not None and not self.name_pattern.is_found_in(change.topic):
            yield f"topic name '{change.topic}' does not match '{self.name_pattern.text}'"
        yield from _outside("partitions", self.partitions, topic.partitions)
        yield from _outside("replication_factor", self.replication_factor, *topic.factors)
        yield from self._config_violations(topic.configs, is_whole=True)

    def _config_violations(self, configs: Mapping[str, str], *, is_whole: bool) -> Iterator[str]:
        """Without `is_whole`, `configs` are defaults: nothing is required of them."""
        named = {requirement.name: requirement for requirement in self.configs}
        for name in self.required_configs if is_whole else ():
            if name not in configs:
                value = f" to {named[name].allowed}" if name in named else ""
                yield f"{name} must be set{value}"
        for name, text in sorted(configs.items()):
            if name in self.forbidden_configs:
                yield f"{name} may not be set"
            elif name in named:
                violation = named[name].violation(text)
                if violation is not None:
                    yield violation
            elif is_whole and self.allowed_configs is not None and name not in self._settable:
                yield f"{name} may not be set, allowed are {', '.join(self._settable) or 'no configs'}"

    @property
    def _settable(self) -> tuple[str, ...]:
        named = (requirement.name for requirement in self.configs)
        return tuple(dict.fromkeys((*(self.allowed_configs or ()), *self.required_configs, *named)))


class TopicDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults for create requests that leave something out. A count of 0 is no default."""

    name: str
    principals: Scope = Scope()
    topics: Scope = Scope()
    partitions: int = 0
    replication_factor: int = 0
    configs: tuple[tuple[str, str], ...] = ()
    written: dict[str, str] = {}


def _unordered(value: Value) -> Value | frozenset[str]:
    return frozenset(value) if isinstance(value, tuple) else value


def _outside(what: str, allowed: Range | None, *numbers: int) -> Iterator[str]:
    for number in numbers:
        if allowed is not None and number not in allowed:
            yield f"{what} is {number}, allowed is {allowed}"
