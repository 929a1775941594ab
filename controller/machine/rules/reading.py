"""Reads rules from TOML with tables `[[rule]]`, `[[default]]` and `[[example]]`; docs/policies.md has their keys.

An error anywhere refuses the whole text: otherwise only the next client that changes a topic would notice a wrong rule.
The first of several errors is reported, with its line. The rules are part of the state, so every process must read the
same text in the same way.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Any

import msgspec

from controller.machine.configs.topic_configs import BY_NAME
from controller.machine.rules import reading_values
from controller.machine.rules.place import Place, table_header, toml_text
from controller.machine.rules.prepared import Prepared
from controller.machine.rules.rule import (
    ALL,
    APPROVABLE,
    KINDS,
    MODES,
    ConfigRequirement,
    Kind,
    Rule,
    RulesError,
    Scope,
    TopicDefaults,
)
from controller.machine.state import Counts

BYTES_MAX = 256 * 1024
"""Limit for the text of the rules. It is one event, which must fit in a record of a Kafka topic."""
RULES_MAX = 1000
EXPRESSIONS_CHARS_MAX = 50_000
"""Limit for all expressions and messages together. Compiling so many characters takes half a second at most."""
STARS_MAX = 10_000
"""Limit for the number of `*` in all patterns: compiling each takes 30 µs."""
PATTERNS_SIZE_MAX = 5_000
"""Limit for the instructions of all name patterns: matching the longest topic name then takes 25 ms at most."""
SLOW_CALLS_MAX = 25
"""Limit for `matches` and macros in all expressions and messages: each takes 4 ms at most."""
KEY_PARTS_MAX = 30
"""Limit for a dotted key: `tomllib` takes time in proportion to the square of its parts, or more."""
_KEY = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
_LONG_KEY = re.compile(rf"(?<![\w-])(?:{_KEY}[ \t]*+\.[ \t]*+){{{KEY_PARTS_MAX}}}")


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """A test case for the rules: a change, and the names of the rules that it violates; none if it is allowed. `before`
    is None for a new topic."""

    line: int
    change: Kind = "create"
    topic: str
    principal: str = "User:ANONYMOUS"
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] = {}
    counts: Counts = Counts()
    """The counts of every limit before the change."""
    violates: tuple[str, ...]


class Rules(msgspec.Struct, frozen=True):
    """The rules, defaults and examples of a text, in order."""

    rules: tuple[Rule, ...]
    defaults: tuple[TopicDefaults, ...] = ()
    examples: tuple[Example, ...] = ()
    prepared: dict[Kind, Prepared] = msgspec.field(default_factory=dict)
    """The rules by kind of change, prepared when first needed."""

    def of(self, kind: Kind) -> Prepared:
        if kind not in self.prepared:
            self.prepared[kind] = Prepared(self.rules, kind)
        return self.prepared[kind]


@lru_cache(maxsize=16)
def recorded_rules(text: str) -> Rules:
    """Reads rules of the state; an empty text has none. A text that only a newer release can read refuses every
    change."""
    try:
        return read_rules(text) if text else Rules(())
    except RulesError as error:
        configs, why = tuple(BY_NAME), f"the rules of a newer release cannot be read: {error}"
        return Rules((Rule(name="unreadable", on=KINDS, refuse=why, forbidden_configs=configs),))


def new_rules(text: str) -> Rules:
    """Reads rules to apply, whose patterns together must be fast, so that a decision does not block the event loop.
    Recorded rules are not measured again: RE2 of another release may measure otherwise, and every voter must use the
    same rules. Raises RulesError."""
    rules = read_rules(text)
    _check_cost(rules.rules)
    return rules


def refuse_approval(text: str) -> None:
    """Raises RulesError if a rule has `approve_by`, for processes where requests cannot wait."""
    for rule in read_rules(text).rules if text else ():
        if rule.approve_by:
            problem = "requests cannot wait for approval over Kafka, with gateways and workers"
            raise RulesError(problem, "rules without it", rule=f"rule '{rule.name}'", key="approve_by")


@lru_cache(maxsize=16)
def read_rules(text: str) -> Rules:
    """Reads rules; of new ones, `new_rules` also measures the cost. Raises RulesError."""
    if len(text.encode("utf-8", "replace")) > BYTES_MAX:
        raise RulesError("the rules are too long", f"at most {BYTES_MAX} bytes")
    if text.count("*") > STARS_MAX:
        raise RulesError("the patterns have too many '*'", f"at most {STARS_MAX} together")
    if _LONG_KEY.search(text):
        raise RulesError("a key has too many parts", f"at most {KEY_PARTS_MAX} parts, separated by dots")
    try:
        return _read_rules(tomllib.loads(text), text)
    except tomllib.TOMLDecodeError as error:
        raise RulesError(f"is not TOML: {error}", "TOML; put regular expressions in 'single quotes'") from error
    except RecursionError:
        raise RulesError("is nested too deep", "[[rule]] tables with one level of tables in them") from None
    except ValueError as error:
        raise RulesError(f"has a number that is too long: {error}", "a 64-bit number") from None


def _read_rules(document: Mapping[str, Any], text: str) -> Rules:
    known = ("rule", "default", "example")
    for key, value in document.items():
        if key != "mode" and key not in known:
            allowed = "mode, and tables [[rule]], [[default]], [[example]]"
            Place(text=text).at(key).fail(value, "unknown key", allowed)
        if key in known and not (isinstance(value, list) and all(isinstance(table, dict) for table in value)):
            raise RulesError("is not a table", f"[[{key}]]", key=key)
    tables = {key: document.get(key, []) for key in known}
    if not tables["rule"] and not tables["default"]:
        raise RulesError("there are no rules", "one [[rule]] table for each rule, at least one")
    if sum(map(len, tables.values())) > RULES_MAX:
        raise RulesError("there are too many rules", f"at most {RULES_MAX} tables")
    written = sum(len(str(table.get(key, ""))) for table in tables["rule"] for key in ("check", "message"))
    if written > EXPRESSIONS_CHARS_MAX:
        raise RulesError("the expressions and messages are too long", f"{EXPRESSIONS_CHARS_MAX} characters together")
    mode = reading_values.mode_of(Place(text=text, key="mode"), document.get("mode", "enforce"))
    taken: set[str] = set()
    read: dict[str, tuple[Any, ...]] = {}
    places: dict[str, list[Place]] = {}
    for kind, reader in (("rule", _rule), ("default", _default), ("example", _example)):
        header = table_header(kind)
        headers = (number for number, line in enumerate(text.split("\n"), 1) if header.match(line))
        lines = chain(headers, repeat(0))
        places[kind] = [Place(text=text, table=kind, number=n, line=next(lines)) for n, _ in enumerate(tables[kind], 1)]
        read[kind] = tuple(map(reader, places[kind], tables[kind], repeat(taken)))
    # The mode of the whole text can only weaken the mode of a rule, in the order enforce, warn, observe.
    rules = tuple(msgspec.structs.replace(one, mode=max(one.mode, mode, key=MODES.index)) for one in read["rule"])
    _check_together(list(zip(rules, places["rule"], strict=True)))
    return Rules(rules, read["default"], read["example"])


def _check_cost(rules: Sequence[Rule]) -> None:
    size = sum(rule.name_pattern.size for rule in rules if rule.name_pattern is not None)
    if size > PATTERNS_SIZE_MAX:
        problem = f"all name_pattern together are too complex: RE2 makes {size} instructions of them"
        raise RulesError(problem, f"at most {PATTERNS_SIZE_MAX}; a repetition such as x{{50}} counts as 50")
    expressions = [one for rule in rules if rule.check is not None for one in (rule.check,)]
    expressions += [one for rule in rules if rule.message is not None for one in rule.message.fields]
    calls = sum(one.slow_calls for one in expressions)
    if calls > SLOW_CALLS_MAX:
        problem = f"the expressions call matches and macros {calls} times"
        raise RulesError(problem, f"at most {SLOW_CALLS_MAX} times together")


def _check_together(rules: Sequence[tuple[Rule, Place]]) -> None:
    """Refuses enforced rules without exceptions that no new topic can satisfy together: two with the same scope, or one
    without a scope and any other."""
    known: dict[tuple[Scope, Scope, str], ConfigRequirement] = {}
    for rule, place in sorted(rules, key=lambda one: (one[0].principals, one[0].topics) != (ALL, ALL)):
        if rule.mode != "enforce" or "create" not in rule.on or rule.exceptions or rule.approve_by:
            continue
        for one in rule.allows():
            together = one
            for scope in ((ALL, ALL), (rule.principals, rule.topics)):
                other = known.get((*scope, one.name), one)
                both = together.common(other)
                if both is None:
                    problem = f"contradicts other rules, which allow {other.allowed} for {one.name}, not {one.allowed}"
                    allowed = "rules for other topics or principals, an exception, or the mode warn or observe"
                    msgspec.structs.replace(place, name=rule.name).fail(None, problem, allowed)
                together = both
            known[rule.principals, rule.topics, one.name] = together


def _named(place: Place, table: dict[str, object], taken: set[str]) -> Place:
    name = reading_values.name_of(place.at("name"), table.get("name"))
    if name in taken:
        place.at("name").fail(name, "is taken", "a name of its own")
    taken.add(name)
    return msgspec.structs.replace(place, name=name)


def _rule(place: Place, table: dict[str, object], taken: set[str]) -> Rule:
    place = _named(place, table, taken)
    values = reading_values.table_values(place, table, reading_values.RULE_READERS)
    if not reading_values.REQUIREMENT_READERS.keys() & values.keys():
        place.fail(None, "has no requirement", f"at least one of {', '.join(reading_values.REQUIREMENT_READERS)}")
    _check_contradictions(place, values)
    values["is_open"] = values.pop("fail", "closed") == "open"
    values["exceptions"] = values.pop("exception", ())
    return Rule(**reading_values.scoped(values), written=_written(table))


def _default(place: Place, table: dict[str, object], taken: set[str]) -> TopicDefaults:
    place = _named(place, table, taken)
    values = reading_values.table_values(place, table, reading_values.DEFAULT_READERS)
    if not values.keys() & {"partitions", "replication_factor", "configs"}:
        place.fail(None, "has no default", "at least one of partitions, replication_factor, configs")
    return TopicDefaults(**reading_values.scoped(values), written=_written(table))


def _example(place: Place, table: dict[str, object], taken: set[str]) -> Example:
    values = reading_values.table_values(place, table, reading_values.EXAMPLE_READERS)
    for key in ("topic", "violates"):
        if key not in values:
            place.fail(None, f"has no {key}", "topic, and violates with the names of rules, [] if it is allowed")
    for name in values["violates"]:
        if name not in taken:
            place.at("violates").fail(name, "is no rule", ", ".join(sorted(taken)))
    example = Example(line=place.line, **values)
    if (example.change == "create") is (example.before is not None):
        place.fail(None, "before is the topic as it was", "before for every change except create")
    return example


def _written(table: Mapping[str, object]) -> dict[str, str]:
    """The keys and values of a table, as text for display."""
    return {key: toml_text(value) for key, value in table.items() if key not in ("name", "mode", "on", "exception")}


def _check_contradictions(place: Place, values: dict[str, Any]) -> None:
    """A forbidden config may be neither required nor allowed. A limit does not count by patterns of names. Only
    a request that the log has in full can wait for approval."""
    if "limit" in values and values.keys() & {"topics", "except_topics"}:
        problem = "counts all topics or those of a prefix, not those of the rule's patterns"
        place.at("limit").fail(None, problem, "limit = { prefix = '…', … }, and no topics or except_topics")
    for kind in values.setdefault("on", APPROVABLE[:-1]) if "approve_by" in values else ():
        if kind not in APPROVABLE:
            place.at("on").fail(kind, "cannot wait for approval", f"with approve_by: {', '.join(APPROVABLE)}")
    constrained = tuple(requirement.name for requirement in values.get("configs", ()))
    named = {*constrained, *values.get("required_configs", ()), *(values.get("allowed_configs") or ())}
    for name in values.get("forbidden_configs", ()):
        if name in named:
            place.at("forbidden_configs").fail(
                name, "is both forbidden and required", "a config that no other key of the rule names"
            )
