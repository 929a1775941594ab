"""Parsers for `reading`: each returns a value for a `Rule`, or fails with the line and the allowed values."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from difflib import get_close_matches
from math import inf, isfinite
from typing import Any

from controller.machine.configs.topic_configs import BY_NAME, LABEL, TopicConfig, row_of
from controller.machine.configs.values import Bad, ConfigType, Value, allowed_text
from controller.machine.rules.expression import Expression, ExpressionError, Message
from controller.machine.rules.place import Place, quoted, toml_text
from controller.machine.rules.rule import (
    KINDS,
    MODES,
    NO_LIMIT_AT_MINUS_ONE,
    Choice,
    ConfigRequirement,
    Exemption,
    Kind,
    Limit,
    Range,
    Scope,
)
from controller.machine.state import PREFIXES_MAX, Counts, groups_of
from controller.patterns import ALLOWED, Pattern, PatternError

PATTERNS_MAX = 100
TEXT_CHARS_MAX = 1000
"""Limit for a text such as a hint, because the refusal of each topic contains it."""
APPROVERS_MAX = 20
APPROVAL_MS_MAX = 30 * 86_400_000
_UNITS_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}
_APPROVER = re.compile(r"approver|admin|[A-Za-z]{1,20}:[^\s\x00-\x1f\x7f-\x9f]{1,200}")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_NAME_PART = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_WILDCARD = re.compile(r"[*?\[]")
_NUMBERS = (ConfigType.INT, ConfigType.SHORT, ConfigType.LONG, ConfigType.DOUBLE)


def table_values(place: Place, table: dict[str, object], readers: Mapping[str, _Reader]) -> dict[str, Any]:
    for key, value in table.items():
        if key not in readers:
            place.at(key).fail(value, "unknown key", ", ".join(readers))
    return {key: readers[key](place.at(key), value) for key, value in table.items()}


def scoped(values: dict[str, Any]) -> dict[str, Any]:
    for name in ("principals", "topics"):
        only, but = values.pop(name, None), values.pop(f"except_{name}", None)
        if only is not None or but is not None:
            prefixes = tuple(dict.fromkeys(_WILDCARD.split(glob)[0] for glob in only or ()))
            values[name] = Scope(_matching(only), _matching(but), prefixes if all(prefixes) else ())
    return values


def _matching(globs: Sequence[str] | None) -> re.Pattern[str] | None:
    """`re` is fast with translated globs: they have atomic groups, so it never backtracks into a matched part."""
    return None if globs is None else re.compile("|".join(map(fnmatch.translate, globs)))


# Each function parses one value of the TOML text into the form that `Rule` has, or raises an error with the place.


def name_of(place: Place, value: object) -> str:
    if not isinstance(value, str) or _NAME.fullmatch(value) is None:
        problem = "a rule has no name" if value is None else "is not a name"
        place.fail(value, problem, "1 to 100 letters, digits, '.', '_' and '-'")
    return value


def _one_of(values: Sequence[str], problem: str, allowed: str) -> _Reader:
    def read(place: Place, value: object) -> object:
        if value not in values:
            place.fail(value, problem, allowed)
        return value

    return read


def _text(place: Place, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        place.fail(value, "is not a text", "a text, such as the reason or a contact")
    if len(value) > TEXT_CHARS_MAX:
        place.fail(value, f"has {len(value)} characters, allowed are {TEXT_CHARS_MAX}", "a shorter text")
    if _CONTROL.search(value):
        place.fail(value, "has control characters", "printable characters, tabs and newlines")
    return value


def _globs(place: Place, value: object) -> Sequence[str]:
    patterns = [value] if isinstance(value, str) else value
    if not isinstance(patterns, list) or not patterns or not all(isinstance(one, str) and one for one in patterns):
        place.fail(value, "is not a pattern", "a pattern or a list of them, with * for any text, ? for one character")
    if len(patterns) > PATTERNS_MAX:
        place.fail(f"{len(patterns)} patterns", "are too many", f"at most {PATTERNS_MAX}")
    return patterns


def _regex(place: Place, value: object) -> Pattern:
    allowed = f"a regular expression in {ALLOWED}; it is found anywhere in the name unless ^ and $ anchor it"
    if not isinstance(value, str) or not value:
        place.fail(value, "is not a regular expression", allowed)
    try:
        return Pattern(value)
    except PatternError as error:
        place.fail(value, f"is not a regular expression: {error}", allowed)


def _count(place: Place, value: object) -> Range:
    """Parses a range of counts; a single number allows only itself."""
    allowed = "a whole number from 1, or { min = …, max = … } of such"
    ends = value if isinstance(value, dict) else {"min": value, "max": value}
    _check_ends(place, value, ends, allowed)
    for end in ends.values():
        if type(end) is not int or end < 1:
            place.fail(value, f"{toml_text(end)} is not a whole number from 1", allowed)
    return _range(place, value, ends, allowed)


def _limit(place: Place, value: object) -> Limit:
    allowed = "{ topics = …, partitions = … }, one or both, with per = 'principal' or prefix = '…', or neither"
    if not isinstance(value, dict):
        place.fail(value, "is not a limit", allowed)
    values = table_values(place, value, _LIMIT_READERS)
    if not values.keys() & {"topics", "partitions"}:
        place.fail(value, "limits nothing", allowed)
    if values.keys() >= {"per", "prefix"}:
        place.fail(value, "has both per and prefix", allowed)
    return Limit(**values)


def _prefix(place: Place, value: object) -> str:
    if not isinstance(value, str) or value not in groups_of(value, "") or not value:
        allowed = f"the beginning of names up to a '.', '_' or '-', as in 'pay.', with at most {PREFIXES_MAX} of these"
        place.fail(value, "is not a prefix", allowed)
    if not _NAME_PART.fullmatch(value):
        place.fail(value, "is not the beginning of a topic name", "letters, digits, '.', '_', '-', at most 249")
    return value


def _names(place: Place, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        place.fail(value, "is not a list of topic configs", 'a list as in ["retention.ms", "cleanup.policy"]')
    for name in value:
        _row(place, name, value)
    return tuple(dict.fromkeys(value))


def _some_names(place: Place, value: object) -> tuple[str, ...]:
    names = _names(place, value)
    if not names:
        place.fail(value, "is empty", 'a list as in ["retention.ms", "cleanup.policy"], or no such key')
    return names


def _requirements(place: Place, value: object) -> tuple[ConfigRequirement, ...]:
    if not isinstance(value, dict) or not value:
        place.fail(value, "is not a table of topic configs", 'a table as in { "retention.ms" = { max = 604800000 } }')
    return tuple(_requirement(place.at(quoted(name)), name, allowed) for name, allowed in sorted(value.items()))


def _requirement(place: Place, name: str, allowed: object) -> ConfigRequirement:
    row = _row(place, name, allowed)
    if isinstance(allowed, dict):
        return ConfigRequirement(name, _config_range(place, row, allowed))
    choices = allowed if isinstance(allowed, list) else [allowed]
    if not choices:
        place.fail(allowed, "is empty", f"values, each {allowed_text(row.kind, row.allowed)}")
    return ConfigRequirement(name, Choice(tuple(_value(place, row, one) for one in choices)))


def _config_range(place: Place, row: TopicConfig, ends: dict[str, Any]) -> Range:
    if row.kind not in _NUMBERS:
        place.fail(ends, "has no ranges", f"a value or a list of them, each {allowed_text(row.kind, row.allowed)}")
    allowed = f"{{ min = …, max = … }}, each {allowed_text(row.kind, row.allowed)}"
    _check_ends(place, ends, ends, allowed)
    for key, end in ends.items():
        if type(end) not in (int, float) or (isinstance(end, float) and not isfinite(end)):
            place.fail(ends, f"{toml_text(end)} is not a number", allowed)
        if end == -1 and row.name in NO_LIMIT_AT_MINUS_ONE:
            place.fail(ends, "-1 means no limit here", "omit it")
        _value(place.at(key), row, end)
    return _range(place, ends, ends, allowed)


def _value(place: Place, row: TopicConfig, given: object) -> Value:
    """Parses a value by the type and limits of its topic config: a rule cannot require an impossible value."""
    if not isinstance(given, str | int | float):
        place.fail(given, "is not a value", allowed_text(row.kind, row.allowed))
    value = row.read(_config_text(given))
    if isinstance(value, Bad):
        place.fail(given, value.message.partition("; allowed: ")[0], allowed_text(row.kind, row.allowed))
    return value


def _row(place: Place, name: str, value: object) -> TopicConfig:
    row = row_of(name)
    if row is None:
        place.fail(value, f"'{name}' is not a topic config", _near(name))
    return row


def _near(name: str) -> str:
    if any(known.startswith(f"{name}.") for known in BY_NAME):
        return 'names as written; quote names with dots, as in "retention.ms"'
    near = get_close_matches(name, BY_NAME, n=1)
    return (f"perhaps {near[0]}; " if near else "") + f"any of {', '.join(sorted(BY_NAME))}, {LABEL}NAME"


def _check_ends(place: Place, value: object, ends: Mapping[str, Any], allowed: str) -> None:
    if not ends:
        place.fail(value, "has neither min nor max", allowed)
    for key in ends:
        if key not in ("min", "max"):
            place.fail(value, f"unknown key '{key}'", allowed)


def _range(place: Place, value: object, ends: Mapping[str, Any], allowed: str) -> Range:
    given = Range(ends.get("min", -inf), ends.get("max", inf))
    if given.low > given.high:
        place.fail(value, "min is over max", allowed)
    return given


def _kinds(place: Place, value: object) -> tuple[Kind, ...]:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list) or not given or not all(one in KINDS for one in given):
        place.fail(value, "is not a list of changes", f"any of {', '.join(KINDS)}")
    return tuple(dict.fromkeys(given))


def _cel(kind: type[Expression | Message], allowed: str) -> _Reader:
    def read(place: Place, value: object) -> Expression | Message:
        try:
            return kind(_text(place, value))
        except ExpressionError as error:
            place.fail(value, str(error), allowed)

    return read


def _exceptions(place: Place, value: object) -> tuple[Exemption, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(one, dict) for one in value):
        place.fail(value, "is not a list of exceptions", "[[rule.exception]] tables")
    return tuple(_exception(place, table) for table in value)


def _exception(place: Place, table: dict[str, object]) -> Exemption:
    values = table_values(place, table, _EXCEPTION_READERS)
    if "reason" not in values or "until" not in values or not values.keys() & {"topics", "principals"}:
        place.fail(table, "is incomplete", "topics or principals, a reason, and until with a date")
    until = values.pop("until")
    applies_to = "; ".join(f"{key} = {toml_text(table[key])}" for key in ("topics", "principals") if key in table)
    at = str(table["until"])
    return Exemption(**scoped(values), applies_to=applies_to, until=at, until_ms=int(until.timestamp() * 1000))


def _until(place: Place, value: object) -> datetime:
    """Parses the end of an exception; a date includes its day."""
    if isinstance(value, datetime):
        return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    if not isinstance(value, date) or value >= date.max:
        place.fail(value, "is not a date", "a date as in 2027-03-31, its day included, in UTC")
    return datetime(value.year, value.month, value.day, tzinfo=UTC) + timedelta(days=1)


def _default_count(place: Place, value: object) -> int:
    if type(value) is not int or not 1 <= value < 1 << 31:
        place.fail(value, "is not a count", "a whole number from 1")
    return value


def _default_configs(place: Place, value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict) or not value:
        place.fail(value, "is not a table of topic configs", 'a table as in { "retention.ms" = 604800000 }')
    for name, given in value.items():
        _value(place.at(quoted(name)), _row(place, name, given), given)
    return tuple(sorted((name, _config_text(given)) for name, given in value.items()))


def _config_text(given: object) -> str:
    return str(given).lower() if isinstance(given, bool) else str(given)


def _approvers(place: Place, value: object) -> tuple[str, ...]:
    given = value if isinstance(value, list) and 0 < len(value) <= APPROVERS_MAX else [None]
    if not all(isinstance(one, str) and _APPROVER.fullmatch(one) for one in given):
        allowed = f"1 to {APPROVERS_MAX} principals, perhaps with *, or roles: ['User:alice', 'approver', 'admin']"
        place.fail(value, "is not a list of approvers", allowed)
    return tuple(dict.fromkeys(given))


def _duration(place: Place, value: object) -> int:
    found = re.fullmatch("([0-9]{1,4})([mhd])", value) if isinstance(value, str) else None
    ms = 0 if found is None else int(found[1]) * _UNITS_MS[found[2]]
    if not 0 < ms <= APPROVAL_MS_MAX:
        place.fail(value, "is not a duration", "minutes, hours or days, as in '90m', '24h', '7d', at most '30d'")
    return ms


def _facts(place: Place, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        place.fail(value, "is not a topic", "a table of partitions, replication_factor, configs")
    return table_values(place, value, _FACTS_READERS)


def _counts(place: Place, value: object) -> Counts:
    ends = value if isinstance(value, dict) else {}
    if not ends.keys() or ends.keys() - {"topics", "partitions"} or any(type(one) is not int for one in ends.values()):
        place.fail(value, "is not the counts of limits before the change", "{ topics = …, partitions = … }")
    return Counts(**ends)


def _rule_names(place: Place, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        place.fail(value, "is not a list of rules", 'names as in ["naming"], [] for an allowed change')
    return tuple(value)


_Reader = Callable[[Place, object], Any]
mode_of: _Reader = _one_of(MODES, "is not a mode", ", ".join(MODES))
_GLOBS: dict[str, _Reader] = dict.fromkeys(("principals", "except_principals", "topics", "except_topics"), _globs)
REQUIREMENT_READERS: dict[str, _Reader] = {
    "refuse": _text,
    "name_pattern": _regex,
    "partitions": _count,
    "replication_factor": _count,
    "configs": _requirements,
    "required_configs": _some_names,
    "allowed_configs": _names,
    "forbidden_configs": _some_names,
    "check": _cel(Expression, "an expression in CEL, as in 'partitions <= 48'"),
    "limit": _limit,
}
RULE_READERS: dict[str, _Reader] = {
    "name": name_of,
    "mode": mode_of,
    "on": _kinds,
    "hint": _text,
    "message": _cel(Message, "a text with expressions in braces, as in '{name} has {partitions} partitions'"),
    "fail": _one_of(("open", "closed"), "is not a way to fail", "closed (refuse the change), or open"),
    "exception": _exceptions,
    "approve_by": _approvers,
    "approval_expires": _duration,
    **_GLOBS,
    **REQUIREMENT_READERS,
}
_EXCEPTION_READERS: dict[str, _Reader] = {"topics": _globs, "principals": _globs, "reason": _text, "until": _until}
_LIMIT_READERS: dict[str, _Reader] = {
    "topics": _default_count,
    "partitions": _default_count,
    "per": _one_of(("principal",), "is not counted", "principal"),
    "prefix": _prefix,
}
_FACTS_READERS: dict[str, _Reader] = {
    "partitions": _default_count,
    "replication_factor": _default_count,
    "configs": _default_configs,
}
DEFAULT_READERS: dict[str, _Reader] = {"name": name_of, **_GLOBS, **_FACTS_READERS}
EXAMPLE_READERS: dict[str, _Reader] = {
    "change": _one_of(KINDS, "is not a change", f"one of {', '.join(KINDS)}"),
    "topic": _text,
    "principal": _text,
    "before": _facts,
    "after": _facts,
    "counts": _counts,
    "violates": _rule_names,
}
