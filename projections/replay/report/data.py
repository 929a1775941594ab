"""The numbers of a report: counts over time, waits, refusals, loads of brokers, results of checks.

`report` computes and `figures` draws them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import msgspec

Row = SimpleNamespace
"""A row of a query of `report`, with its columns as attributes."""
Rows = Sequence[Row]

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


class Report(msgspec.Struct, frozen=True):
    """All numbers of the page, as of `ends` (by log partition). The last event is at `last_ms`."""

    log: str
    ends: Mapping[int, int]
    first_ms: int
    last_ms: int
    releases: tuple[str, ...]
    bucket_ms: int
    outcomes: Rows
    """The number of requests (`count`) with one `outcome` in the bar that begins at `at_ms`."""
    events_by_type: Sequence[tuple[str, int]]
    waits: Row
    """The times from creation until a topic was complete: the number of topics that were (`complete`) and that were not
    before they were deleted or the log ended (`never`), percentiles (None if none was complete)."""
    wait_bins: Rows
    """Topics (`count`) that became complete between `low_ms` and `high_ms` (None: unbounded) after their creation."""
    refusals: Rows
    """The number of requests that a `rule` refused, by Kafka's `error`."""
    held: Row
    """The totals at the end: topics, partitions, placeholders, and partitions that are leaderless."""
    brokers: Rows
    """The load of each broker at the end. A broker that is not registered may still be named by partitions."""
    lanes: Rows
    """A range of time in which the status of a broker does not change, from `since_ms` to `until_ms`."""
    health: Rows
    """The highest numbers of partitions in the bar that begins at `at_ms`: all, and those with each problem."""
    creators: Sequence[tuple[str, int, int]]
    """By principal: topics created, and requests refused; the most frequent first."""
    changes: Sequence[tuple[str, str, str, str]]
    """The newest changes: time, principal, topic and what was changed."""
    checks: Rows
    """The result of each invariant: its requirement (`demands`), the number of violations, and the first ones as text
    (`examples`)."""

    @property
    def events(self) -> int:
        """The number of events."""
        return sum(self.ends.values())

    @property
    def violations(self) -> int:
        """The number of violations."""
        return sum(check.violations for check in self.checks)

    def requests(self, *outcomes: str) -> int:
        """The number of requests with one of these outcomes."""
        return sum(one.count for one in self.outcomes if one.outcome in outcomes)


def bucket_ms(span_ms: int) -> int:
    """The narrowest width of a bar with which a span has at most BUCKETS_MAX bars."""
    return next((width for width in BUCKETS_MS if span_ms // width < BUCKETS_MAX), BUCKETS_MS[-1])


def wait_bins(counts: Mapping[int, int]) -> list[Row]:
    """The bars from the first to the last that is not empty; `counts` are by index of their edge."""
    ends = (*WAIT_EDGES_MS[1:], None)
    return [
        Row(low_ms=WAIT_EDGES_MS[place], high_ms=ends[place], count=counts.get(place, 0))
        for place in range(min(counts, default=0), max(counts, default=-1) + 1)
    ]
