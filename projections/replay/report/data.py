"""The numbers of a report: counts over time, waits, refusals, loads of brokers, results of checks.

`report` computes these numbers, and `figures` draws them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace

Row = SimpleNamespace
"""A row of a query of `report`, with its columns as attributes."""
Rows = Sequence[Row]
Report = SimpleNamespace
"""All numbers of the page: the time of the first and the last event, `ends` by log partition, the width of a bar.

Rows: `outcomes` (requests by outcome in the bar that begins at `at_ms`), `wait_bins` (topics that became complete so
long after their creation), `refusals` by rule, `brokers` (the load at the end, also of unregistered brokers with
replicas), `lanes` (ranges of time in which the status of a broker does not change), `health` (the highest numbers of
partitions in a bar) and `checks`. One row each: `waits` (`never`: not complete before they were deleted or the log
ended) and `held`, the totals at the end. `creators` and `changes` are tuples, in the form that the page renders.
"""

OUTCOMES: dict[str, str] = {
    "created": "created and complete in time",
    "timed-out": "created, answered before it was complete",
    "refused": "refused",
    "failed": "created, gone before it was complete",
    "changed": "partitions added, configs changed or deleted",
    "change-refused": "change refused",
}
"""The outcomes of requests in the order of the legend, with their meaning."""

BUCKETS_MS = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(1000, 2000, 5000, 10_000, 30_000),
    *(60_000, 120_000, 300_000, 600_000, 1_800_000),
    *(3_600_000, 7_200_000, 21_600_000, 43_200_000),
    *(86_400_000, 604_800_000, 2_592_000_000),
)
"""The possible widths of a bar on the time axis."""
BUCKETS_MAX = 96  # bars of the time axis that a page has room for

WAIT_EDGES_MS = (
    *(0, 1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(1000, 2000, 5000, 10_000, 20_000, 60_000, 300_000, 3_600_000),
)
"""The lower edges of the bars in the histogram of waits; the last bar is unbounded."""


def requests(report: Report, *outcomes: str) -> int:
    """The number of requests with one of these outcomes."""
    return sum(one.count for one in report.outcomes if one.outcome in outcomes)


def bucket_ms(span_ms: int) -> int:
    """The narrowest width of a bar with which a span has at most BUCKETS_MAX bars."""
    return next((width for width in BUCKETS_MS if span_ms // width < BUCKETS_MAX), BUCKETS_MS[-1])


def wait_bins(counts: Mapping[int, int]) -> list[Row]:
    """The bars of the histogram from the first to the last that is not empty; `counts` has the count by index of
    WAIT_EDGES_MS."""
    ends = (*WAIT_EDGES_MS[1:], None)
    return [
        Row(low_ms=WAIT_EDGES_MS[place], high_ms=ends[place], count=counts.get(place, 0))
        for place in range(min(counts, default=0), max(counts, default=-1) + 1)
    ]
