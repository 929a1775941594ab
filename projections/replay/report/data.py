"""The numbers of a report: counts over time, waits, refusals, loads of brokers, results of checks.

`report` computes and `figures` draws them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

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


class Outcomes(msgspec.Struct, frozen=True):
    """The number of requests with one outcome in the bar that begins at `at_ms`."""

    at_ms: int
    outcome: str
    count: int


class WaitBin(msgspec.Struct, frozen=True):
    """Topics that became complete between `low_ms` and `high_ms` (None: unbounded) after their creation."""

    low_ms: int
    high_ms: int | None
    count: int


class Waits(msgspec.Struct, frozen=True):
    """The times from creation until a topic was complete.

    `never` is the number of topics that were not complete before they were deleted or the log ended. The percentiles
    are None if no topic was complete.
    """

    bins: tuple[WaitBin, ...]
    complete: int
    never: int
    median_ms: int | None = None
    p95_ms: int | None = None
    p99_ms: int | None = None
    max_ms: int | None = None


class Refusals(msgspec.Struct, frozen=True):
    """The number of requests that a rule refused, by Kafka's error."""

    rule: str
    error: str
    count: int


class BrokerLoad(msgspec.Struct, frozen=True):
    """The load of a broker at the end. A broker that is not registered may still be named by partitions."""

    broker_id: int
    status: str
    rack: str | None
    replicas: int
    leaders: int


class Held(msgspec.Struct, frozen=True):
    """The totals at the end, and the load of each broker."""

    topics: int
    partitions: int
    placeholders: int
    leaderless: int
    brokers: tuple[BrokerLoad, ...]


class Lane(msgspec.Struct, frozen=True):
    """A range of time in which the status of a broker does not change."""

    broker_id: int
    since_ms: int
    until_ms: int
    status: str


class Health(msgspec.Struct, frozen=True):
    """The highest numbers of partitions in the bar that begins at `at_ms`: all, and those with each problem."""

    at_ms: int
    partitions: int
    leaderless: int
    under_replicated: int
    placeholders: int


class CheckResult(msgspec.Struct, frozen=True):
    """The result of an invariant: its requirement, the number of violations, and the first ones as text."""

    name: str
    demands: str
    violations: int
    examples: tuple[str, ...] = ()


class Report(msgspec.Struct, frozen=True):
    """All numbers of the page, as of `ends` (by log partition). The last event is at `last_ms`."""

    log: str
    ends: Mapping[int, int]
    first_ms: int
    last_ms: int
    releases: tuple[str, ...]
    bucket_ms: int
    outcomes: tuple[Outcomes, ...]
    events_by_type: tuple[tuple[str, int], ...]
    waits: Waits
    refusals: tuple[Refusals, ...]
    held: Held
    lanes: tuple[Lane, ...]
    health: tuple[Health, ...]
    creators: tuple[tuple[str, int, int], ...]
    """By principal: topics created, and requests refused; the most frequent first."""
    changes: tuple[tuple[str, str, str, str], ...]
    """The newest changes: time, principal, topic and what was changed."""
    checks: tuple[CheckResult, ...]

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


def wait_bins(counts: dict[int, int]) -> tuple[WaitBin, ...]:
    """The bars from the first to the last that is not empty; `counts` are by index of their edge."""
    if not counts:
        return ()
    ends = (*WAIT_EDGES_MS[1:], None)
    return tuple(
        WaitBin(WAIT_EDGES_MS[place], ends[place], counts.get(place, 0))
        for place in range(min(counts), max(counts) + 1)
    )
