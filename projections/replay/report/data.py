"""What a report shows, as numbers: counts over time, waits, refusals, loads of brokers, results of checks.

Numbers alone: `queries` gathers them, `figures` and `page` draw them.
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
"""How a request can end, in the order of the legend, with what that means."""

BUCKETS_MS = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(1000, 2000, 5000, 10_000, 30_000),
    *(60_000, 120_000, 300_000, 600_000, 1_800_000),
    *(3_600_000, 7_200_000, 21_600_000, 43_200_000),
    *(86_400_000, 604_800_000, 2_592_000_000),
)
"""The widths that a bar of the time axis can have."""
BUCKETS_MAX = 96  # bars of the time axis that a page has room for

WAIT_EDGES_MS = (
    *(0, 1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(1000, 2000, 5000, 10_000, 20_000, 60_000, 300_000, 3_600_000),
)
"""Where the bars of the histogram of waits begin; the last has no end."""


class Outcomes(msgspec.Struct, frozen=True):
    """How many requests ended in one way in one stretch of time that begins at `at_ms`."""

    at_ms: int
    outcome: str
    count: int


class WaitBin(msgspec.Struct, frozen=True):
    """Topics that were complete `low_ms` or more after their creation, and less than `high_ms` (None: no end)."""

    low_ms: int
    high_ms: int | None
    count: int


class Waits(msgspec.Struct, frozen=True):
    """How long topics took from their creation until they were complete; `never` were not, until they were deleted or
    the log ended. The percentiles are None where none was complete."""

    bins: tuple[WaitBin, ...]
    complete: int
    never: int
    median_ms: int | None = None
    p95_ms: int | None = None
    p99_ms: int | None = None
    max_ms: int | None = None


class Refusals(msgspec.Struct, frozen=True):
    """How many requests a rule refused, by Kafka's error."""

    rule: str
    error: str
    count: int


class BrokerLoad(msgspec.Struct, frozen=True):
    """What a broker holds at the end; one that is not registered any more may still be named by partitions."""

    broker_id: int
    status: str
    rack: str | None
    replicas: int
    leaders: int


class Held(msgspec.Struct, frozen=True):
    """What there is at the end, in all and by broker."""

    topics: int
    partitions: int
    placeholders: int
    leaderless: int
    brokers: tuple[BrokerLoad, ...]


class CheckResult(msgspec.Struct, frozen=True):
    """One invariant: its requirement, the number of violations, and a text of each of the first ones."""

    name: str
    demands: str
    violations: int
    examples: tuple[str, ...] = ()


class Report(msgspec.Struct, frozen=True):
    """Everything on the page. It shows the events before `ends` (by log partition), the last of them at `last_ms`."""

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
    checks: tuple[CheckResult, ...]

    @property
    def events(self) -> int:
        """How many events it shows."""
        return sum(self.ends.values())

    @property
    def violations(self) -> int:
        """How many violations the checks found."""
        return sum(check.violations for check in self.checks)

    def requests(self, *outcomes: str) -> int:
        """How many requests ended in one of these ways."""
        return sum(one.count for one in self.outcomes if one.outcome in outcomes)


def bucket_ms(span_ms: int) -> int:
    """The narrowest bar of the time axis with which a span needs BUCKETS_MAX bars at most."""
    return next((width for width in BUCKETS_MS if span_ms // width < BUCKETS_MAX), BUCKETS_MS[-1])


def wait_bins(counts: dict[int, int]) -> tuple[WaitBin, ...]:
    """The bars of the histogram from the first with a count to the last; `counts` are by the place of their edge."""
    if not counts:
        return ()
    ends = (*WAIT_EDGES_MS[1:], None)
    return tuple(
        WaitBin(WAIT_EDGES_MS[place], ends[place], counts.get(place, 0))
        for place in range(min(counts), max(counts) + 1)
    )
