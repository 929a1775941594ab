"""How a check is told in SQL, and how the rows that break it become violations.

A check is a condition on one row (which may hold what windows looked up of the rows before it), with two expressions
that say what was seen and what was expected. Conditions are three-valued in SQL; here unknown counts as not broken, so
a condition has to say what a null means to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import expr

VIOLATION_COLUMNS = ("log_partition", "shard", "offset", "topic", "check", "seen", "expected")
"""The columns of a violation. `topic` is null where no single topic is concerned."""


class Check(NamedTuple):
    """`broken` is true of a row that breaks the check `name`; `seen` and `expected` are strings for people."""

    name: str
    broken: str
    seen: str
    expected: str


def any_broken(checks: Sequence[Check]) -> str:
    """Whether a row breaks any of the checks; never null."""
    return "(" + " or ".join(f"coalesce({check.broken}, false)" for check in checks) + ")"


def found(checks: Sequence[Check]) -> str:
    """An array of what is broken in a row, null when nothing is: cheap for the many rows in which nothing is."""
    each = ", ".join(
        f"case when coalesce({check.broken}, false) then named_struct("
        f"'check', '{check.name}', 'seen', cast({check.seen} as string), "
        f"'expected', cast({check.expected} as string)) end"
        for check in checks
    )
    return f"case when {any_broken(checks)} then array_compact(array({each})) end"


def violations(frame: DataFrame, *columns: str) -> DataFrame:
    """The violations in columns made by `found`, one row each."""
    some = frame.where(" or ".join(f"{column} is not null" for column in columns))
    everything = ", ".join(f"coalesce({column}, array())" for column in columns)
    return some.selectExpr("log_partition", "shard", "offset", "topic", f"inline(concat({everything}))")


def text(*parts: str) -> str:
    """SQL that puts parts together to one string, nulls as `none`."""
    return "concat(" + ", ".join(f"coalesce(cast({part} as string), 'none')" for part in parts) + ")"


def listed(array: str) -> str:
    """SQL for an array of ids as people write it: `[1,2]`, `none` for null."""
    return f"coalesce(concat('[', array_join({array}, ','), ']'), 'none')"


def by_partition(values: Mapping[int, str]) -> str:
    """SQL for a value of each log partition; null for others."""
    if not values:
        return "null"
    cases = " ".join(f"when {log_partition} then {value}" for log_partition, value in values.items())
    return f"case log_partition {cases} end"


def begins(starts: Mapping[int, int] | None) -> str:
    """SQL for the offset from which a log partition is checked: 0 where nothing else is said."""
    said = by_partition({log_partition: str(start) for log_partition, start in (starts or {}).items() if start})
    return f"coalesce({said}, 0)"


def words(names: Sequence[str]) -> str:
    """SQL for a list of string literals, to stand in the brackets of `in (…)`."""
    return ", ".join(f"'{name}'" for name in names)


def columns(named: Mapping[str, str]) -> list[str]:
    """SQL for columns of these names."""
    return [f"{sql} as {name}" for name, sql in named.items()]


def aggregates(named: Mapping[str, str]) -> list[Column]:
    """Aggregates of these names, each told in SQL."""
    return [expr(sql).alias(name) for name, sql in named.items()]
