"""The views, in the HTTP API, of the rules for changes of topics: versions, rules and their exceptions."""

from __future__ import annotations

import msgspec

from controller.machine.rules.reading import read_rules
from controller.machine.rules.rule import Rule, RulesError


class RulesVersionView(msgspec.Struct, frozen=True, kw_only=True):
    """A version of the rules: its text, and who applied it when. `is_file` is true if the controller applied the file
    of its settings."""

    number: int
    sha256: str
    principal: str
    is_file: bool
    applied_at: str
    applied_at_ms: int
    offset: int
    text: str


class ExceptionView(msgspec.Struct, frozen=True):
    """An exception of a rule. An expired one has no effect."""

    applies_to: str
    reason: str
    until: str
    is_expired: bool


class RuleView(msgspec.Struct, frozen=True, kw_only=True):
    """A rule. `definition` has its keys and values as text."""

    name: str
    mode: str
    on: tuple[str, ...]
    definition: dict[str, str]
    exceptions: tuple[ExceptionView, ...]


def rule_views(text: str, at_ms: int) -> tuple[RuleView, ...]:
    """The rules and defaults of a text, in order; empty for a text that only a newer release can read."""
    if not text:
        return ()
    try:
        rules = read_rules(text)
    except RulesError:
        return ()
    defaults = (
        RuleView(name=one.name, mode="default", on=("create",), definition=one.written, exceptions=())
        for one in rules.defaults
    )
    return (*(_rule(one, at_ms) for one in rules.rules), *defaults)


def _rule(rule: Rule, at_ms: int) -> RuleView:
    exceptions = (
        ExceptionView(one.applies_to, one.reason, one.until, is_expired=at_ms >= one.until_ms)
        for one in rule.exceptions
    )
    return RuleView(name=rule.name, mode=rule.mode, on=rule.on, definition=rule.written, exceptions=tuple(exceptions))
