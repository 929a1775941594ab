"""Whether the offsets of a log are contiguous, and how far it goes.

A sound log is proved in one pass without a shuffle, by islands. Spark's `monotonically_increasing_id` numbers the rows
of a partition by one, so offset minus number is constant as long as offsets rise by one. Rows with one such difference
are an island; within it offsets are distinct because the numbers are, so it has no hole if it has as many rows as its
ends are apart. If each island begins where the ones before it ended, the log is contiguous. Comparing the count of a
whole log with its ends would miss a hole that a repeated event makes up for.

A log that is not proved so is looked at again in the order of its offsets, with `lag`, which finds the very places.
That is slower, so it is cut into chunks that are sorted beside each other. It is needed for broken logs, and where
rows are stored in another order than the log's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame

from projections.replay.checks_told import Check, aggregates, begins, columns, found, text, violations

OFFSET_COLUMNS = ("log_partition", "offset", "at_ms", "cause_command")
"""What is read of every event."""

OFFSET_CHECKS = (
    Check(
        "offsets-contiguous",
        "offset != expected_offset",
        text("'offset '", "offset"),
        text("'offset '", "expected_offset"),
    ),
)

_CHUNK_EVENTS = 1 << 16


class Extent(NamedTuple):
    """How far one log partition goes. `reviewed_ms` is when a review of topics last left an event, None when none did;
    with `contiguous` its offsets are proved to be so."""

    events: int
    end_offset: int
    end_ms: int
    reviewed_ms: int | None
    contiguous: bool


_OF_AN_ISLAND = {
    "first": "min(offset)",
    "last": "max(offset)",
    "held": "count(*)",
    "end_ms": "max(at_ms)",
    "reviewed_ms": "max(case when cause_command = 'ReviewTopics' then at_ms end)",
}
_ISLANDS_BEFORE = "partition by log_partition order by first rows between unbounded preceding and 1 preceding"
_REACHED_BEFORE = f"max(last) over ({_ISLANDS_BEFORE})"
_OF_ALL = {
    "events": "sum(held)",
    "end_offset": "max(last)",
    "end_ms": "max(end_ms)",
    "reviewed_ms": "max(reviewed_ms)",
    "contiguous": "every(first = begins_at and held = last - first + 1)",
}


def extents(events: DataFrame, starts: Mapping[int, int] | None = None) -> dict[int, Extent]:
    """How far each log partition goes, and whether its offsets are proved to be contiguous from `starts` on (by
    log partition, else 0); reads the log once."""
    chunk = f"offset div {_CHUNK_EVENTS} as chunk"
    numbered = events.selectExpr(*OFFSET_COLUMNS, chunk, "offset - monotonically_increasing_id() as island")
    islands = numbered.groupBy("log_partition", "chunk", "island").agg(*aggregates(_OF_AN_ISLAND))
    placed = islands.selectExpr("*", f"coalesce({_REACHED_BEFORE} + 1, {begins(starts)}) as begins_at")
    rows = placed.groupBy("log_partition").agg(*aggregates(_OF_ALL)).collect()
    return {
        row.log_partition: Extent(row.events, row.end_offset, row.end_ms, row.reviewed_ms, row.contiguous)
        for row in rows
    }


_IN_A_CHUNK = f"partition by log_partition, offset div {_CHUNK_EVENTS} order by offset"
_NEIGHBOURS = {
    "before": f"lag(offset) over ({_IN_A_CHUNK})",
    "is_last": f"lead(offset) over ({_IN_A_CHUNK}) is null",
}
_EDGE_BEFORE = "lag(offset) over (partition by log_partition order by offset, is_last)"


def offset_violations(events: DataFrame, starts: Mapping[int, int] | None = None) -> DataFrame:
    """Each offset that does not follow the one before it; the first has to be that of `starts`."""
    stood = events.selectExpr("log_partition", "offset").selectExpr("*", *columns(_NEIGHBOURS))
    edges = stood.where("before is null or offset != before + 1 or is_last")
    placed = edges.selectExpr("*", f"coalesce(before + 1, {_EDGE_BEFORE} + 1, {begins(starts)}) as expected_offset")
    broken = placed.selectExpr(
        "log_partition", "'' as shard", "offset", "cast(null as string) as topic", f"{found(OFFSET_CHECKS)} as broken"
    )
    return violations(broken, "broken")
