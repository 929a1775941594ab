"""How a check is written, and how the rows that break it become violations.

A check is a condition on all rows at once, with two functions that say of one row what was seen and what was expected.
Those are called only for rows that break it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from projections.replay.checks.arrays import NONE, Bools, Ids

VIOLATIONS = pa.schema(
    [
        ("log_partition", pa.int32()),
        ("shard", pa.string()),
        ("offset", pa.int64()),
        ("topic", pa.string()),
        ("check", pa.string()),
        ("seen", pa.string()),
        ("expected", pa.string()),
    ]
)
"""The columns of a violation. `topic` is null where no single topic is concerned."""
VIOLATION_COLUMNS = tuple(VIOLATIONS.names)

Place = tuple[int, str, int, str | None]
"""Where an event stands: log partition, shard key, offset, topic."""
Violation = tuple[int, str, int, str | None, str, str, str]
"""A row of VIOLATIONS."""


class Facts(Protocol):
    """Rows that checks are put to."""

    def place(self, row: int) -> Place:
        """Where the event of a row stands."""
        ...


F = TypeVar("F", bound=Facts)


class Check(NamedTuple, Generic[F]):
    """`broken` is true of the rows that break the check `name`; `seen` and `expected` are strings for people."""

    name: str
    broken: Callable[[F], Bools]
    seen: Callable[[F, int], str]
    expected: Callable[[F, int], str]


def found(checks: Sequence[Check[F]], facts: F) -> Iterator[Violation]:
    """What breaks the checks."""
    for check in checks:
        for row in np.flatnonzero(check.broken(facts)).tolist():
            yield (*facts.place(row), check.name, check.seen(facts, row), check.expected(facts, row))


def shown(number: int | np.int64) -> str:
    """A number as people write it; `none` where an event has none."""
    return "none" if number == NONE else str(number)


def listed(ids: Ids | None) -> str:
    """A list of ids as people write it: `[1,2]`, `none` where there is none."""
    return "none" if ids is None else f"[{','.join(map(str, ids))}]"


def others(ids: Ids, without: Ids) -> Ids:
    """The ids that are not among others."""
    return tuple(one for one in ids if one not in without)
