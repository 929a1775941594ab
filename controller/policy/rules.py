"""TopicRules, a ready-made create-topic policy with a rules file.

    create.topic.policy.class.name=controller.policy.rules.TopicRules
    topic.rules.file=topic-rules.toml
    topic.rules.mode=enforce

The file is TOML with one `[[rule]]` table for each rule; docs/policies.md describes the keys. It is read once, at the
start. An error anywhere in the file refuses the whole file: otherwise a wrong rule would only be noticed by the next
client that creates a topic. The first of several errors is reported.
"""

from __future__ import annotations

import fnmatch
import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn, cast

import msgspec

from controller.machine.configs.table import BY_NAME, TopicConfig
from controller.machine.configs.values import Bad, ConfigType, Value, allowed_text, read_value
from controller.patterns import ALLOWED, Pattern, PatternError
from controller.policy.interface import CreateTopicPolicy, EffectiveRule, PolicyViolation, RequestMetadata
from controller.policy.rule import NO_LIMIT_AT_MINUS_ONE, Choice, ConfigRequirement, Range, Rule, Scope
from events.catalog import Observation
from events.logs.log import read_text

FILE_BYTES_MAX = 8 << 20
MODES = ("enforce", "observe")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_NUMBERS = (ConfigType.INT, ConfigType.SHORT, ConfigType.LONG, ConfigType.DOUBLE)


class RulesError(Exception):
    """An error in the rules; the message has the file, the rule, the key and the value, where known, and what is
    allowed."""

    def __init__(self, problem: str, allowed: str, *, file: str = "", rule: str = "", key: str = "", value: str = ""):
        place = [f"file {file}"] * bool(file) + [rule] * bool(rule)
        text = f"{key} = {value}" if key and value else key
        super().__init__(": ".join([*place, *([text] if text else []), problem]) + f"; allowed: {allowed}")


def read_rules(path: Path) -> tuple[Rule, ...]:
    """Returns the rules of a file, in order. Raises RulesError."""
    file = str(path.absolute())
    try:
        return _read_rules(tomllib.loads(read_text(path, FILE_BYTES_MAX)), file)
    except OSError as error:
        raise RulesError(f"cannot be read: {error.strerror}", "a TOML file of rules", file=file) from error
    except UnicodeDecodeError as error:
        raise RulesError(f"is not UTF-8 at byte {error.start}", "TOML in UTF-8", file=file) from error
    except tomllib.TOMLDecodeError as error:
        allowed = "TOML; put regular expressions in 'single quotes'"
        raise RulesError(f"is not TOML: {error}", allowed, file=file) from error
    except RecursionError:
        raise RulesError("is nested too deep", "[[rule]] tables with one level of tables in them", file=file) from None
    except ValueError as error:
        raise RulesError(f"has a number that is too long: {error}", "a 64-bit number", file=file) from None


def _read_rules(document: Mapping[str, Any], file: str) -> tuple[Rule, ...]:
    tables = document.get("rule")
    for key, value in document.items():
        if key != "rule":
            raise RulesError("unknown key", "[[rule]] tables alone", file=file, key=key, value=_toml(value))
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise RulesError("there are no rules", "one [[rule]] table for each rule, at least one", file=file)
    rules: dict[str, Rule] = {}
    for number, table in enumerate(tables, 1):
        rule = _rule(_Place(file=file, rule=f"rule {number}"), table)
        if rule.name in rules:
            _Place(file=file, rule=f"rule {number}", key="name").fail(rule.name, "is taken", "a name of its own")
        rules[rule.name] = rule
    return tuple(rules.values())


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """The position in the file, for error messages."""

    file: str
    rule: str
    key: str = ""

    def at(self, key: str) -> _Place:
        return msgspec.structs.replace(self, key=f"{self.key}.{key}" if self.key else key)

    def fail(self, value: object, problem: str, allowed: str) -> NoReturn:
        text = "" if value is None else _toml(value)
        raise RulesError(problem, allowed, file=self.file, rule=self.rule, key=self.key, value=text)


def _rule(place: _Place, table: dict[str, object]) -> Rule:
    name = _name(place.at("name"), table.get("name"))
    place = msgspec.structs.replace(place, rule=f"rule '{name}'")
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in _READERS:
            place.at(key).fail(value, "unknown key", ", ".join(KEYS))
        values[key] = _READERS[key](place.at(key), value)
    if not _REQUIREMENT_READERS.keys() & values.keys():
        place.fail(None, "has no requirement", f"at least one of {', '.join(_REQUIREMENT_READERS)}")
    _check_contradictions(place, values)
    mode = values.pop("mode", "enforce")
    principals = Scope(values.pop("principals", None), values.pop("except_principals", None))
    topics = Scope(values.pop("topics", None), values.pop("except_topics", None))
    written = {key: _written(value) for key, value in table.items() if key not in ("name", "mode")}
    return Rule(**values, enforced=mode == "enforce", principals=principals, topics=topics, written=written)


def _written(value: object) -> str:
    """Formats a value for people."""
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_written(each)}" for key, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _check_contradictions(place: _Place, values: Mapping[str, Any]) -> None:
    """A forbidden config may be neither required nor allowed."""
    constrained = tuple(requirement.name for requirement in values.get("configs", ()))
    named = {*constrained, *values.get("required_configs", ()), *(values.get("allowed_configs") or ())}
    for name in values.get("forbidden_configs", ()):
        if name in named:
            place.at("forbidden_configs").fail(
                name, "is both forbidden and required", "a config that no other key of the rule names"
            )


# Readers of one value each. They return it as a Rule has it, or fail.


def _name(place: _Place, value: object) -> str:
    if not isinstance(value, str) or _NAME.fullmatch(value) is None:
        problem = "a rule has no name" if value is None else "is not a name"
        place.fail(value, problem, "1 to 100 letters, digits, '.', '_' and '-'")
    return value


def _mode(place: _Place, value: object) -> str:
    if not isinstance(value, str) or value not in MODES:
        place.fail(value, "is not a mode", " or ".join(MODES))
    return value


def _text(place: _Place, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        place.fail(value, "is not a text", "a text, such as the reason or a contact")
    return value


def _globs(place: _Place, value: object) -> re.Pattern[str]:
    patterns = [value] if isinstance(value, str) else value
    if not isinstance(patterns, list) or not patterns or not all(isinstance(one, str) and one for one in patterns):
        place.fail(value, "is not a pattern", "a pattern or a list of them, with * for any text, ? for one character")
    # Python's own engine is quick with these: a part that was found is never looked for again.
    return re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns))


def _regex(place: _Place, value: object) -> Pattern:
    allowed = f"a regular expression in {ALLOWED}; it is found anywhere in the name unless ^ and $ anchor it"
    if not isinstance(value, str) or not value:
        place.fail(value, "is not a regular expression", allowed)
    try:
        return Pattern(value)
    except PatternError as error:
        place.fail(value, f"is not a regular expression: {error}", allowed)


def _count(place: _Place, value: object) -> Range:
    """Parses a range of counts; a single number allows only itself."""
    allowed = "a whole number from 1, or { min = …, max = … } of such"
    ends = value if isinstance(value, dict) else {"min": value, "max": value}
    _check_ends(place, value, ends, allowed)
    for end in ends.values():
        if type(end) is not int or end < 1:
            place.fail(value, f"{_toml(end)} is not a whole number from 1", allowed)
    return _range(place, value, ends, allowed)


def _names(place: _Place, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        place.fail(value, "is not a list of topic configs", 'a list as in ["retention.ms", "cleanup.policy"]')
    for name in value:
        _row(place, name, value)
    return tuple(dict.fromkeys(value))


def _some_names(place: _Place, value: object) -> tuple[str, ...]:
    names = _names(place, value)
    if not names:
        place.fail(value, "is empty", 'a list as in ["retention.ms", "cleanup.policy"], or no such key')
    return names


def _requirements(place: _Place, value: object) -> tuple[ConfigRequirement, ...]:
    if not isinstance(value, dict) or not value:
        place.fail(value, "is not a table of topic configs", 'a table as in { "retention.ms" = { max = 604800000 } }')
    return tuple(_requirement(place.at(_quoted(name)), name, allowed) for name, allowed in value.items())


def _requirement(place: _Place, name: str, allowed: object) -> ConfigRequirement:
    row = _row(place, name, allowed)
    if isinstance(allowed, dict):
        return ConfigRequirement(name, _config_range(place, row, allowed))
    choices = allowed if isinstance(allowed, list) else [allowed]
    if not choices:
        place.fail(allowed, "is empty", f"values, each {allowed_text(row.kind, row.allowed)}")
    return ConfigRequirement(name, Choice(tuple(_value(place, row, one) for one in choices)))


def _config_range(place: _Place, row: TopicConfig, ends: dict[str, Any]) -> Range:
    if row.kind not in _NUMBERS:
        place.fail(ends, "has no ranges", f"a value or a list of them, each {allowed_text(row.kind, row.allowed)}")
    allowed = f"{{ min = …, max = … }}, each {allowed_text(row.kind, row.allowed)}"
    _check_ends(place, ends, ends, allowed)
    for key, end in ends.items():
        if type(end) not in (int, float) or not math.isfinite(end):
            place.fail(ends, f"{_toml(end)} is not a number", allowed)
        if end == -1 and row.name in NO_LIMIT_AT_MINUS_ONE:
            place.fail(ends, "-1 means no limit here", "omit it")
        _value(place.at(key), row, end)
    return _range(place, ends, ends, allowed)


def _value(place: _Place, row: TopicConfig, given: object) -> Value:
    """Parses a value by the table of topic configs, so that a rule cannot require an impossible value."""
    if not isinstance(given, str | int | float):
        place.fail(given, "is not a value", allowed_text(row.kind, row.allowed))
    text = str(given).lower() if isinstance(given, bool) else str(given)
    value = read_value(row.name, row.kind, row.allowed, text)
    if isinstance(value, Bad):
        place.fail(given, value.message.partition("; allowed: ")[0], allowed_text(row.kind, row.allowed))
    return value


def _row(place: _Place, name: str, value: object) -> TopicConfig:
    row = BY_NAME.get(name)
    if row is None:
        place.fail(value, f"'{name}' is not a topic config", _near(name))
    return row


def _near(name: str) -> str:
    if any(known.startswith(f"{name}.") for known in BY_NAME):
        return 'names as written; quote names with dots, as in "retention.ms"'
    near = get_close_matches(name, BY_NAME, n=1)
    return (f"perhaps {near[0]}; " if near else "") + f"any of {', '.join(sorted(BY_NAME))}"


def _check_ends(place: _Place, value: object, ends: Mapping[str, Any], allowed: str) -> None:
    if not ends:
        place.fail(value, "has neither min nor max", allowed)
    for key in ends:
        if key not in ("min", "max"):
            place.fail(value, f"unknown key '{key}'", allowed)


def _range(place: _Place, value: object, ends: Mapping[str, Any], allowed: str) -> Range:
    low, high = ends.get("min"), ends.get("max")
    if low is not None and high is not None and low > high:
        place.fail(value, "min is over max", allowed)
    return Range(low, high)


def _quoted(name: str) -> str:
    return f'"{name}"' if "." in name else name


def _toml(value: object) -> str:
    """Formats a value roughly like TOML, for messages."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f"'{value}'"
        case dict():
            pairs = cast("dict[str, object]", value).items()
            return "{ " + ", ".join(f"{_quoted(key)} = {_toml(one)}" for key, one in pairs) + " }" if pairs else "{}"
        case list():
            return f"[{', '.join(_toml(one) for one in cast('Sequence[object]', value))}]"
        case _:
            return str(value)


_SCOPE_READERS: dict[str, Callable[[_Place, object], Any]] = {
    "name": _name,
    "mode": _mode,
    "hint": _text,
    "principals": _globs,
    "except_principals": _globs,
    "topics": _globs,
    "except_topics": _globs,
}
_REQUIREMENT_READERS: dict[str, Callable[[_Place, object], Any]] = {
    "refuse": _text,
    "name_pattern": _regex,
    "partitions": _count,
    "replication_factor": _count,
    "configs": _requirements,
    "required_configs": _some_names,
    "allowed_configs": _names,
    "forbidden_configs": _some_names,
}
_READERS = _SCOPE_READERS | _REQUIREMENT_READERS

KEYS = tuple(_READERS)
"""All keys of a rule, in the order of the documentation."""


FILE_SETTING = "topic.rules.file"
MODE_SETTING = "topic.rules.mode"


class TopicRules(CreateTopicPolicy):
    """Refuses topics that violate an enforced rule; the message names all violated enforced rules.

    A rule is enforced unless its own `mode`, or the setting `topic.rules.mode` for the whole file, is `observe`.
    Violations of other rules are recorded as observations. The log names rules as `policy:rules/<name>`; a refusal has
    the name of the first violated rule.
    """

    def __init__(self) -> None:
        self._rules: tuple[Rule, ...] = ()
        self._enforcing = True

    def configure(self, settings: Mapping[str, str]) -> None:
        """Reads the file of `topic.rules.file`, relative to the working folder. Raises RulesError."""
        path = settings.get(FILE_SETTING, "").strip()
        if not path:
            raise RulesError("is not set", "the path of a TOML file of rules", key=FILE_SETTING)
        mode = settings.get(MODE_SETTING, "").strip() or "enforce"
        if mode not in MODES:
            raise RulesError("is not a mode", " or ".join(MODES), key=MODE_SETTING, value=f"'{mode}'")
        self._enforcing = mode == "enforce"
        self._rules = read_rules(Path(path))

    @property
    def in_force(self) -> tuple[EffectiveRule, ...]:
        """The rules, for display."""
        return tuple(EffectiveRule(one.name, one.enforced and self._enforcing, one.written) for one in self._rules)

    def validate(self, request: RequestMetadata) -> Sequence[Observation] | None:
        """Checks a topic by every rule. Raises PolicyViolation; returns observations."""
        refusals: list[Observation] = []
        observed: list[Observation] = []
        for rule in self._rules:
            message = rule.refusal(request)
            if message is not None:
                broken = refusals if rule.enforced and self._enforcing else observed
                broken.append(Observation(f"rules/{rule.name}", message))
        if refusals:
            message = "; ".join(refusal.message for refusal in refusals)
            raise PolicyViolation(message, rule=refusals[0].rule, observed=observed)
        return observed or None
