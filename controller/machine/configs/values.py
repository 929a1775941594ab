"""Values of Kafka's config types: parsing, limits, canonical texts and error messages, for topics, groups and settings.

Clients and operators write configs as texts. `read_value` parses them like Kafka's ConfigDef, which ignores surrounding
blanks, and reads `TRUE` as true, `+5` as 5, and a list by its commas. Error messages begin like ConfigDef's and also
name the allowed values.

Kafka's controller and brokers parse some configs more strictly (Integer.parseInt, Boolean.parseBoolean). So configs are
stored in a canonical form (`ConfigRow.canonical`), which all of Kafka's parsers read alike.

Unlike Kafka, `NaN` is not a ratio between 0 and 1.
"""

import math
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from enum import IntEnum
from functools import lru_cache

import msgspec


class ConfigType(IntEnum):
    """ConfigDef's types, with the numbers of DescribeConfigs (KIP-569)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


Value = bool | int | float | str | tuple[str, ...]


class Limit(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Base of the limits of a config's values."""


class AtLeast(Limit, frozen=True, gc=False):
    """The limit of a number: at least `low`, or exactly `other`, which has a special meaning."""

    low: int
    other: int | None = None


class Between(Limit, frozen=True, gc=False):
    """The limit of a number: from `low` to `high`, both included, or exactly `other`, which has a special meaning."""

    low: int
    high: int
    other: int | None = None


class OneOf(Limit, frozen=True, gc=False):
    """The limit of a text, or of the items of a list; duplicate items count once."""

    values: tuple[str, ...]


class ReplicaList(Limit, frozen=True, gc=False):
    """The limit of a list of throttled replicas: `*`, or partition:broker pairs (KIP-73)."""


Allowed = AtLeast | Between | OneOf | ReplicaList | None
"""The limit of a config's values; None means no limit beyond the type."""


class Bad(msgspec.Struct, frozen=True, gc=False):
    """Why a text is invalid; names the key, the text and the allowed values."""

    message: str


class ConfigRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A config in a table. `default` is Kafka's, as text. The JSON files of the tables have the fields in order."""

    name: str
    kind: ConfigType
    default: str | None
    allowed: Allowed

    def read(self, text: str) -> Value | Bad:
        return read_value(self.name, self.kind, self.allowed, text)

    def canonical(self, text: str) -> str:
        """Returns the text to store, as Java prints the value. An invalid text only loses its surrounding blanks."""
        value = self.read(text)
        return text.strip(_BLANKS) if isinstance(value, Bad) else value_text(value)


def read_values(rows: Iterable[ConfigRow], texts: Mapping[str, str]) -> dict[str, Value] | Bad:
    """Parses the texts of these rows, by name. Returns the first error in the order of the rows."""
    values: dict[str, Value] = {}
    for row in rows:
        text = texts.get(row.name)
        if text is not None:
            value = row.read(text)
            if isinstance(value, Bad):
                return value
            values[row.name] = value
    return values


CACHED_CHARS_MAX = 40
_BLANKS = "".join(map(chr, range(0x21)))
"""The characters that Java's String.trim removes."""

_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
_INTEGER = re.compile(r"[+-]?(?:(?![\U00010000-\U0010ffff])\d){1,4000}")
"""Digits of all scripts up to U+FFFF, as in Java, which reads UTF-16 units."""
_DECIMAL = re.compile(r"([+-]?(?:Infinity|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))[fFdD]?")
_HEX_DECIMAL = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_AROUND_COMMAS = " \t\n\r\f\v"
_REPLICA = re.compile(r"([0-9]+:[0-9]+)?")
_REPLICAS_FORM = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


def range_text(allowed: Allowed) -> str:
    """Describes the limit in the notation of Kafka's documentation; empty without a limit."""
    match allowed:
        case AtLeast(low, other):
            return f"[{low},...]" + ("" if other is None else f" or {other}")
        case Between(low, high, other):
            return f"[{low},...,{high}]" + ("" if other is None else f" or {other}")
        case OneOf(values):
            return f"[{', '.join(values)}]"
        case ReplicaList():
            return _REPLICAS_FORM
        case None:
            return ""


def allowed_text(kind: ConfigType, allowed: Allowed) -> str:
    """Describes the allowed values: `a 32-bit integer in [1,...]`."""
    limits = range_text(allowed)
    match kind:
        case ConfigType.BOOLEAN:
            return "true or false"
        case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG | ConfigType.DOUBLE:
            number = "a decimal number" if kind is ConfigType.DOUBLE else f"a {_BITS[kind]}-bit integer"
            return number + (f" in {limits}" if limits else "")
        case ConfigType.LIST if isinstance(allowed, ReplicaList):
            return "* or a comma-separated list of partition:broker"
        case ConfigType.LIST:
            return f"a comma-separated list of {limits or 'values'}"
        case _:
            return f"one of {limits}" if limits else "any text"


def read_value(name: str, kind: ConfigType, allowed: Allowed, text: str) -> Value | Bad:
    """Parses and validates a text like ConfigDef; returns Bad if it is invalid."""
    return (_cached if len(text) <= CACHED_CHARS_MAX else _read)(name, kind, allowed, text)


def _read(name: str, kind: ConfigType, allowed: Allowed, text: str) -> Value | Bad:
    trimmed = text.strip(_BLANKS)
    match kind:
        case ConfigType.BOOLEAN:
            lowered = trimmed.lower()
            if lowered in ("true", "false"):
                return lowered == "true"
            return _bad(name, text, "Expected value to be either true or false")
        case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG | ConfigType.DOUBLE:
            number = _decimal(trimmed) if kind is ConfigType.DOUBLE else _integer(trimmed, _BITS[kind])
            if number is None:
                return _bad(name, text, f"Not a number of type {kind.name}; allowed: {allowed_text(kind, allowed)}")
            why = _beyond(allowed, number)
            if why is None:
                return number
            return _bad(name, value_text(number), f"{why}; allowed: {allowed_text(kind, allowed)}")
        case ConfigType.LIST:
            items = (each.strip(_AROUND_COMMAS) for each in trimmed.split(","))
            return _listed(name, allowed, text, tuple(items) if trimmed else ())
        case _:
            if isinstance(allowed, OneOf) and trimmed not in allowed.values:
                return _bad(name, trimmed, f"String must be one of: {', '.join(allowed.values)}")
            return trimmed


_cached = lru_cache(maxsize=2000)(_read)


def value_text(value: Value) -> str:
    """Prints a value like Kafka: Java's notation of numbers, list items joined by commas."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return _java_decimal(value)
        case tuple():
            return ",".join(value)
        case _:
            return str(value)


def _bad(name: str, value: str, why: str) -> Bad:
    return Bad(f"Invalid value {value} for configuration {name}: {why}")


def _integer(trimmed: str, bits: int) -> int | None:
    if _INTEGER.fullmatch(trimmed) is None:
        return None
    number = int(trimmed)
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def _decimal(trimmed: str) -> float | None:
    """Parses a number like Double.parseDouble."""
    match = _DECIMAL.fullmatch(trimmed)
    if match is not None:
        return float(match[1])
    match = _HEX_DECIMAL.fullmatch(trimmed)
    try:
        return None if match is None else float.fromhex(match[1])
    except OverflowError:
        return -math.inf if trimmed.startswith("-") else math.inf


def _beyond(allowed: Allowed, number: float) -> str | None:
    match allowed:
        case AtLeast(low, other) if number < low and number != other:
            return f"Value must be at least {low}" + ("" if other is None else f" or equal to {other}")
        case Between(low, high, int(other)) if number != other and not low <= number <= high:
            return f"Value must be between {low} and {high} or equal to {other}"
        case Between(low, _, None) if number < low:
            return f"Value must be at least {low}"
        case Between(_, high, None) if number > high:
            return f"Value must be no more than {high}"
        case _:
            return None


def _listed(name: str, allowed: Allowed, text: str, items: tuple[str, ...]) -> tuple[str, ...] | Bad:
    match allowed:
        case OneOf(values):
            distinct = tuple(dict.fromkeys(items))
            for item in distinct:
                if not item:
                    why = f"values must not be empty. Value: {text}; allowed: {allowed_text(ConfigType.LIST, allowed)}"
                    return Bad(f"Configuration '{name}' {why}")
                if item not in values:
                    return _bad(name, item, f"String must be one of: {', '.join(values)}")
            return distinct
        case ReplicaList():
            if "".join(items) == "*" or all(_REPLICA.fullmatch(item) for item in items):
                return items
            shown = f"[{', '.join(items)}]"
            why = f"{name} must be the literal '*' or a list of replicas in the following format: {_REPLICAS_FORM}"
            return _bad(name, shown, why)
        case _:
            return items


def _java_decimal(value: float) -> str:
    """Prints a number like Double.toString: with an exponent below a thousandth and from ten million."""
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    shown = "".join(map(str, digits))
    power = len(digits) - 1 + int(exponent)
    return f"{'-' if sign else ''}{shown[0]}.{shown[1:] or '0'}E{power}"
