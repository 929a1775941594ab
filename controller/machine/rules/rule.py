"""A rule for changes of topics: its scope, its requirements, and the message for a change that violates it.

A rule gets the topic as it would be after the change: its counts, and its explicit configs. A config without an
explicit value counts as not set, whatever the default; expressions also have effective values. Violations that the
topic already had before the change are ignored, so that an old topic can still be altered. Values are parsed by the
table of topic configs, so that `+5` is 5, `TRUE` is true, and `delete,compact` is `compact,delete`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from math import inf
from pathlib import PurePath
from typing import Literal, NamedTuple, get_args

import msgspec

from controller.machine.configs.topic_configs import LABEL, row_of
from controller.machine.configs.values import Bad, Value, value_text
from controller.machine.rules.expression import Expression, ExpressionFailed, Message, Variables
from controller.machine.state import Counts, principal_group
from controller.patterns import Pattern
from events.errors import UserError, shortened

Kind = Literal["create", "grow", "alter", "delete", "reassign", "elect", "defaults", "discovered"]
"""A kind of change. `defaults`: a dynamic config of brokers that topics inherit. `discovered`: a change made directly
in the target cluster, which rules only observe."""
KINDS: tuple[Kind, ...] = get_args(Kind)
ON_BY_DEFAULT: tuple[Kind, ...] = ("create", "grow", "alter", "reassign", "defaults", "discovered")
APPROVABLE: tuple[Kind, ...] = ("create", "grow", "alter", "delete")
"""The changes that can wait for approval. A rule with `approve_by` and without `on` concerns the first three."""
Mode = Literal["enforce", "warn", "observe"]
MODES: tuple[Mode, ...] = get_args(Mode)
ERROR_PART_CHARS_MAX = 2000
"""Limit in an error message for each of: the key, the value, the allowed values."""


class RulesError(UserError):
    """An error in the rules; the message has the line, the rule, the key and the value, where known, and what is
    allowed."""

    def __init__(self, problem: str, allowed: str, *, line: int = 0, rule: str = "", key: str = "", value: str = ""):
        key, value, problem, allowed = (
            shortened(part, ERROR_PART_CHARS_MAX) for part in (key, value, problem, allowed)
        )
        place = [f"line {line}"] * bool(line) + [rule] * bool(rule)
        text = f"{key} = {value}" if key and value else key
        super().__init__(": ".join([*place, *([text] if text else []), problem]) + f"; allowed: {allowed}")

    def in_file(self, path: PurePath) -> RulesError:
        """The same error, with the name of the file in its message."""
        self.args = (f"file {path}: {self}",)
        return self


class TopicFacts(msgspec.Struct, frozen=True, gc=False):
    """The facts of a topic that rules check. `factors` are the different replication factors of its partitions, without
    replicas that a reassignment removes. `configs` are the explicit configs."""

    partitions: int
    factors: tuple[int, ...]
    configs: Mapping[str, str]
    defaults: tuple[tuple[str, str], ...] = ()
    """The broker-level settings from which topics inherit defaults."""

    def value(self, name: str) -> Value | Bad:
        """The parsed value of an explicit config."""
        row = row_of(name)
        return Bad(f"{name} is not a topic config") if row is None else row.read(self.configs[name])


class Change(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A change of a topic, and its requester. `before` is None for a new topic, `after` for a deleted one. For a change
    of the cluster's defaults, `before` and `after` have only the configs that topics inherit."""

    kind: Kind
    topic: str
    before: TopicFacts | None
    after: TopicFacts | None
    principal: str
    client_id: str | None = None
    host: str = ""
    at_ms: int
    owner: str = ""
    """The principal that created the topic, or creates it; empty if it is unknown."""
    counts: Callable[[str], Counts] = lambda group: Counts()
    """Returns the counts of a group of topics (`groups_of`) before the change."""


NO_LIMIT_AT_MINUS_ONE = frozenset({"retention.ms", "retention.bytes", "local.retention.ms", "local.retention.bytes"})
"""Configs where -1 means no limit. There -1 counts as infinite, so that it exceeds every `max`."""


class Range(msgspec.Struct, frozen=True):
    """A range of allowed numbers, both ends included."""

    low: float = -inf
    high: float = inf

    def __contains__(self, number: float) -> bool:
        return self.low <= number <= self.high

    def __str__(self) -> str:
        if self.low == -inf:
            return f"at most {self.high}"
        if self.high == inf:
            return f"at least {self.low}"
        return f"{self.low}" if self.low == self.high else f"{self.low} to {self.high}"


class Choice(msgspec.Struct, frozen=True):
    """A set of allowed values. The order of the items in a list value does not matter."""

    values: tuple[Value, ...]

    def __contains__(self, value: Value) -> bool:
        return _unordered(value) in map(_unordered, self.values)

    def __str__(self) -> str:
        return " or ".join(f"'{value_text(value)}'" for value in self.values)


class ConfigRequirement(msgspec.Struct, frozen=True):
    """The allowed values of a topic config, if a request sets it."""

    name: str
    allowed: Range | Choice

    def common(self, other: ConfigRequirement) -> ConfigRequirement | None:
        """The values that both allow; None if there are none."""
        if isinstance(other.allowed, Choice):
            values = tuple(value for value in other.allowed.values if self._allows(value))
            return ConfigRequirement(self.name, Choice(values)) if values else None
        if isinstance(self.allowed, Choice):
            return other.common(self)
        both = Range(max(self.allowed.low, other.allowed.low), min(self.allowed.high, other.allowed.high))
        return ConfigRequirement(self.name, both) if both.low <= both.high else None

    def violation(self, topic: TopicFacts) -> str | None:
        """Returns the error if the topic sets the config to a value that is not allowed, or None."""
        value = topic.value(self.name)
        if isinstance(value, Bad):
            return value.message
        if self._allows(value):
            return None
        return f"{self.name} is '{topic.configs[self.name].strip()}', allowed is {self.allowed}"

    def _allows(self, value: Value) -> bool:
        if isinstance(self.allowed, Choice):
            return value in self.allowed
        assert isinstance(value, int | float), f"{self.name} has a range, so its values are numbers"
        endless = value == -1 and self.name in NO_LIMIT_AT_MINUS_ONE
        return (inf if endless else value) in self.allowed


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """The most topics and partitions (0: any number) of each principal, or of all topics whose names have a prefix. The
    empty prefix is that of all topics."""

    topics: int = 0
    partitions: int = 0
    per: str = ""
    """`principal`, or empty."""
    prefix: str = ""

    def group(self, topic: str, owner: str) -> str | None:
        """Returns the group in which the limit counts a topic; None if the limit does not concern the topic."""
        if self.per:
            return principal_group(owner) if owner else None
        return self.prefix if topic.startswith(self.prefix) else None

    def violations(self, change: Change) -> list[str]:
        """Why the change would exceed the limit; empty if it would not. Only growth is refused."""
        group = self.group(change.topic, change.owner)
        if change.after is None or group is None:
            return []
        had = Counts() if change.before is None else Counts(1, change.before.partitions)
        added = Counts(1, change.after.partitions) - had
        counts, found = change.counts(group), []
        of = change.owner if self.per else f"prefix '{self.prefix}'" if self.prefix else "the cluster"
        for name in ("topics", "partitions"):
            allowed, more, now = getattr(self, name), getattr(added, name), getattr(counts, name)
            if allowed and more > 0 and now + more > allowed:
                found.append(f"{of} has {now} {name}, and {more} more would exceed the limit of {allowed}")
        return found


class Scope(msgspec.Struct, frozen=True):
    """The names to which a rule applies: those that match `only` (None: all) and do not match `but` (None: none)."""

    only: re.Pattern[str] | None = None
    but: re.Pattern[str] | None = None
    prefixes: tuple[str, ...] = ()
    """The literal beginnings of the patterns in `only`: each name begins with one of them."""

    def __contains__(self, name: str) -> bool:
        if self.but is not None and self.but.fullmatch(name):
            return False
        return self.only is None or self.only.fullmatch(name) is not None


ALL = Scope()
"""Applies to all names."""


class Exemption(msgspec.Struct, frozen=True, kw_only=True):
    """Topics or principals that a rule does not apply to, with the reason, until a time (exclusive)."""

    topics: Scope = ALL
    principals: Scope = ALL
    reason: str
    until_ms: int
    until: str
    """The end of the exemption, as written in the rules."""
    applies_to: str = ""
    """The topics and principals, as written in the rules."""

    def covers(self, change: Change) -> bool:
        if change.at_ms >= self.until_ms or change.principal not in self.principals:
            return False
        # The defaults are of all topics, and no exemption of topics covers them.
        return self.topics is ALL if change.kind == "defaults" else change.topic in self.topics


class Violation(NamedTuple):
    """A violation of a rule; `failed` if the rule's expression failed on the change."""

    message: str
    failed: bool


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule of a file; see docs/policies.md for each key."""

    name: str
    mode: Mode = "enforce"
    on: tuple[Kind, ...] = ON_BY_DEFAULT
    hint: str = ""
    message: Message | None = None
    is_open: bool = False
    """True if an expression that fails only leaves an observation (`fail = "open"`)."""
    principals: Scope = ALL
    topics: Scope = ALL
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
    limit: Limit | None = None
    approve_by: tuple[str, ...] = ()
    """The principals (as patterns) and roles that may approve a violation; empty if nobody may."""
    approval_expires: int = 86_400_000
    """How long a request waits for approval, in ms."""
    written: dict[str, str] = {}
    """The keys and values as written in the rules, without name and mode."""

    def violation(
        self, change: Change, variables: Variables[Change], unchanged: Variables[Change] | None
    ) -> Violation | None:
        """Returns the violation of the rule by a change, or None.

        `variables` are those of the change. `unchanged` has the topic before the change; it is None for a new topic.
        """
        if change.kind not in self.on or change.principal not in self.principals:
            return None
        if change.kind != "defaults" and change.topic not in self.topics:
            return None
        if any(exemption.covers(change) for exemption in self.exceptions):
            return None
        found, failed = self._requirements(change), False
        if self.limit is not None:
            found += self.limit.violations(change)
        if self.check is not None and change.kind != "defaults":
            checked = self._check(self.check, change, variables, unchanged)
            if checked is not None and not (checked.failed and self.is_open and found):
                found, failed = [*found, checked.message], checked.failed
        if not found:
            return None
        text = ", ".join(found) if self.message is None or failed else self.message.text(variables)
        return Violation(f"rule '{self.name}': {text}" + (f" ({self.hint})" if self.hint else ""), failed)

    def may_be_violated(self, change: Change, topic: TopicFacts, variables: Variables[Change]) -> bool:
        """False if no change to a topic with these facts violates the rule, for a name that it allows."""
        check = self.check
        if self.refuse or self.limit or (check is not None and (check.slow_calls or not check.is_of_facts)):
            return True  # `matches` may be slow, so it is not evaluated twice
        is_false = check is not None and _check_violation(check, variables) is not None
        return is_false or any(self._topic_violations(change, topic))

    def _requirements(self, change: Change) -> list[str]:
        topic, before = change.after, change.before
        if change.kind != "defaults" and self.refuse:
            return [self.refuse]
        if topic is None:
            return []
        found = list(self._topic_violations(change, topic))
        already = list(self._topic_violations(change, before)) if found and before is not None else []
        return [one for one in found if one not in already]

    def _check(
        self, check: Expression, change: Change, variables: Variables[Change], unchanged: Variables[Change] | None
    ) -> Violation | None:
        violation = _check_violation(check, variables)
        if violation is None:
            return None
        before, after = change.before, change.after
        if before is None or after is None or unchanged is None or not check.is_of_topic:
            return violation
        is_fresh = before.partitions != after.partitions and "partitions" in check.names
        return violation if is_fresh or _check_violation(check, unchanged) is None else None

    def _topic_violations(self, change: Change, topic: TopicFacts) -> Iterator[str]:
        configs = topic.configs
        if change.kind != "defaults":  # a change of the cluster's defaults has no topic name and no counts
            if self.name_pattern is not None and not self.name_pattern.is_found_in(change.topic):
                yield f"topic name '{change.topic}' does not match '{self.name_pattern.text}'"
            if self.partitions is not None and topic.partitions not in self.partitions:
                yield f"partitions is {topic.partitions}, allowed is {self.partitions}"
            if (allowed := self.replication_factor) is not None:
                yield from (
                    f"replication_factor is {n}, allowed is {allowed}" for n in topic.factors if n not in allowed
                )
            yield from (self._missing(name) for name in self.required_configs if name not in configs)
            if self.allowed_configs is not None:
                named = (one.name for one in self.configs)
                settable = dict.fromkeys((*self.allowed_configs, *self.required_configs, *named))
                problem = f"may not be set, allowed are {', '.join(settable) or 'no configs'}"
                others = (name for name in sorted(configs) if name not in settable and not name.startswith(LABEL))
                yield from (f"{name} {problem}" for name in others)
        yield from filter(None, (one.violation(topic) for one in self.configs if one.name in configs))
        yield from (f"{name} may not be set" for name in self.forbidden_configs if name in configs)

    def allows(self) -> Iterator[ConfigRequirement]:
        """The values that a new topic may have, as far as they do not depend on others."""
        for name, allowed in (("partitions", self.partitions), ("replication_factor", self.replication_factor)):
            if allowed is not None:
                yield ConfigRequirement(name, allowed)
        yield from self.configs
        for names, is_set in ((self.required_configs, True), (self.forbidden_configs, False)):
            yield from (ConfigRequirement(f"'{name} is set'", Choice((is_set,))) for name in names)

    def _missing(self, name: str) -> str:
        value = next((f" to {one.allowed}" for one in self.configs if one.name == name), "")
        return f"{name} must be set{value}"


class TopicDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults for create requests that do not set these values. A count of 0 means that there is no default."""

    name: str
    principals: Scope = ALL
    topics: Scope = ALL
    partitions: int = 0
    replication_factor: int = 0
    configs: tuple[tuple[str, str], ...] = ()
    written: dict[str, str] = {}


def _check_violation(check: Expression, variables: Variables[Change]) -> Violation | None:
    try:
        return None if check.is_true(variables) else Violation(f"`{check.text}` is false", False)
    except ExpressionFailed as error:
        return Violation(f"`{check.text}` failed: {error}", True)


def _unordered(value: Value) -> Value | frozenset[str]:
    return frozenset(value) if isinstance(value, tuple) else value
