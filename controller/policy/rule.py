"""A rule for new topics: its scope, its requirements, and the message for a request that violates it.

A rule sees the request: the counts as resolved or from a manual assignment, and the explicit configs. A config that is
left to the cluster counts as not set, whatever the default. Values are parsed by the table of topic configs, so that
`+5` is 5, `TRUE` is true, and `delete,compact` is `compact,delete`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from controller.machine.configs.table import BY_NAME
from controller.machine.configs.values import Bad, Value, read_value, value_text
from controller.patterns import Pattern
from controller.policy.interface import RequestMetadata

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


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule of a file; see docs/policies.md for each key."""

    name: str
    enforced: bool = True
    hint: str = ""
    principals: Scope = Scope()
    topics: Scope = Scope()
    refuse: str = ""
    name_pattern: Pattern | None = None
    partitions: Range | None = None
    replication_factor: Range | None = None
    configs: tuple[ConfigRequirement, ...] = ()
    required_configs: tuple[str, ...] = ()
    allowed_configs: tuple[str, ...] | None = None
    forbidden_configs: tuple[str, ...] = ()
    written: dict[str, str] = {}
    """The keys and values in the file, without name and mode."""

    def refusal(self, request: RequestMetadata) -> str | None:
        """Returns all violations of the rule in one message, or None."""
        if request.principal not in self.principals or request.topic not in self.topics:
            return None
        found = ", ".join(self._violations(request))
        if not found:
            return None
        return f"rule '{self.name}': {found}" + (f" ({self.hint})" if self.hint else "")

    def _violations(self, request: RequestMetadata) -> Iterator[str]:
        if self.refuse:
            yield self.refuse
        if self.name_pattern is not None and not self.name_pattern.is_found_in(request.topic):
            yield f"topic name '{request.topic}' does not match '{self.name_pattern.text}'"
        yield from _outside("partitions", self.partitions, _partitions(request))
        yield from _outside("replication_factor", self.replication_factor, *_factors(request))
        yield from self._config_violations(request)

    def _config_violations(self, request: RequestMetadata) -> Iterator[str]:
        named = {requirement.name: requirement for requirement in self.configs}
        for name in self.required_configs:
            if name not in request.configs:
                value = f" to {named[name].allowed}" if name in named else ""
                yield f"{name} must be set{value}"
        for name, text in sorted(request.configs.items()):
            if name in self.forbidden_configs:
                yield f"{name} may not be set"
            elif name in named:
                violation = named[name].violation(text)
                if violation is not None:
                    yield violation
            elif self.allowed_configs is not None and name not in self._settable:
                yield f"{name} may not be set, allowed are {', '.join(self._settable) or 'no configs'}"

    @property
    def _settable(self) -> tuple[str, ...]:
        named = (requirement.name for requirement in self.configs)
        return tuple(dict.fromkeys((*(self.allowed_configs or ()), *self.required_configs, *named)))


def _unordered(value: Value) -> Value | frozenset[str]:
    return frozenset(value) if isinstance(value, tuple) else value


def _outside(what: str, allowed: Range | None, *numbers: int) -> Iterator[str]:
    for number in numbers:
        if allowed is not None and number not in allowed:
            yield f"{what} is {number}, allowed is {allowed}"


def _partitions(request: RequestMetadata) -> int:
    if request.replicas_assignments is not None:
        return len(request.replicas_assignments)
    assert request.num_partitions is not None, "a request has counts or an assignment"
    return request.num_partitions


def _factors(request: RequestMetadata) -> tuple[int, ...]:
    """More than one number only for a manual assignment that the built-in validation refuses."""
    if request.replicas_assignments is not None:
        return tuple(sorted({len(replicas) for replicas in request.replicas_assignments.values()}))
    assert request.replication_factor is not None, "a request has counts or an assignment"
    return (request.replication_factor,)
