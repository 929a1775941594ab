"""What every log must be like, checked without the machine.

What it is for: a second witness. The machine's `decide` and `apply` could share a mistake; these checks are run on
the columns of the events, share no code with the machine, and so cannot hide it. Each has a name (CHECKS) and its
exact meaning in docs/invariants.md. What breaks one is a row: shard, offset, topic, check, what was seen and what was
expected.

Method. Two passes over the columns that each needs:
1. `checks_offsets` and `checks_timeline`: whether offsets are contiguous, how far the log goes, and the brokers and
   settings of every moment. Workers report what there is, the driver puts it together.
2. `checks_packs` brings the columns of each share of the shards to one worker, and checks single events on the way
   (`checks_rows`). There `checks_topics` (topics' lives and create requests) and `checks_partitions` (replicas,
   leaders, epochs and placeholders) go through the events of all its shards at once, as arrays (`checks_arrays`,
   `checks_share`).

What it does not do: it does not say whether a decision was the right one (`redecide` does), nor whether the live state
is what the log says (`compare` does). It judges logs from their first event on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from projections.replay.checks.check import VIOLATION_COLUMNS, VIOLATIONS, Violation, found
from projections.replay.checks.offsets import Extent, broken, offset_violations
from projections.replay.checks.packs import (
    LOOK_COLUMNS,
    PACK_COLUMNS,
    Batches,
    Events,
    ExportEvents,
    FrameEvents,
    LogEvents,
    Stretch,
    packs,
    stretches,
    unpacked,
)
from projections.replay.checks.partitions import Settled, partition_violations
from projections.replay.checks.requests import REQUEST_CHECKS, Requests
from projections.replay.checks.share import Share
from projections.replay.checks.timeline import Span, Timeline, timeline
from projections.replay.checks.topics import LIFE_CHECKS, Lives
from projections.replay.export.export import check_export, export_all, exported_files
from projections.replay.log.log_ref import Ref, ends_of
from projections.replay.outcome import Options, Outcome, Table
from projections.replay.spark.columns import ddl
from projections.replay.spark.folding import as_batches
from projections.replay.spark.local_frame import LocalFrame
from projections.replay.spark.mapping import map_in_arrow
from projections.text.wording import many

CHECKS: Mapping[str, str] = {
    "offsets-contiguous": "offsets are contiguous, from 0 on",
    "settings-first": "the first event is SettingsChanged",
    "one-creation-per-life": "a topic is created once before it is deleted, and no other stands under its shard key",
    "topic-exists": "no event concerns a topic or partition that does not exist",
    "one-answer": "each create request is answered exactly once for each of its topics, unless it still waits",
    "none-after-ready": "NONE is answered only after TopicReady",
    "timeout-when-due": "REQUEST_TIMED_OUT is answered only at or after the deadline",
    "replicas-distinct": "no partition has a replica twice",
    "leader-in-isr": "the leader is in the in-sync set, the set within the replicas, no placeholder in either",
    "replicas-live": "replicas are placed on live brokers not cordoned, and assigned by hand to registered ones",
    "epochs-never-go-back": "each change raises the partition epoch by one, and the leader epoch if the leader changes",
    "partitions-never-fall": "partitions are appended after the last one",
    "placeholders-allowed": "placeholders come only while allowed, and with enough live brokers",
    "placeholders-filled": "placeholders are filled by live brokers that are not cordoned, and as soon as one could",
    "created-as-asked": "no topic comes of a request that was rejected, or that is not recorded",
    "as-asked": "partitions, factor and replicas are the requested ones, or the defaults",
    "rejected-with-rule": "what is rejected names an error and the rule that decided",
    "leaders-unfenced": "leaders are elected among live brokers",
    "led-when-possible": "no partition is left without a live leader while a member of its in-sync set is live",
    "ready-is-true": "a topic becomes ready once, with live leaders, and known to every live broker",
    "cause-exists": "each event is caused by a command that leads to it, and that of a create by a recorded request",
}
"""The requirement of each check, by its name."""

SHARE_EVENTS = 250_000
"""About how many events a task checks at once."""
SETTLE_MS = 1000
"""How long a sweep through the topics may leave no event and still be under way."""

COLUMNS = tuple(dict.fromkeys((*LOOK_COLUMNS, *PACK_COLUMNS)))
"""The columns of events that the checks read."""


def check_invariants(ref: Ref, options: Options) -> None:
    """See, without Spark, that the export is one of this log. Raises ReplayError."""
    check_export(ref, options)


def run_invariants(session: SparkSession, ref: Ref, options: Options) -> Outcome:
    """The sub-command: every check on the log up to a moment; violations are rows, and what is found.

    With `options.output` the checks run on the export in that folder, which is brought up to date first: faster from
    the second time on. Raises ReplayError.
    """
    log = look(_events(session, ref, options))
    found = first_violations(violations(session, log), None if options.all_rows else options.limit)
    count = sum(one.events for one in log.extents.values())
    rows = [row for one in found for row in one.violations]
    about = {"events": count, "violations": {one.check: one.times for one in found}}
    return Outcome(rows, bool(found), list(_lines(found, count, len(log.extents) > 1)), about, _table(found))


def _events(session: SparkSession, ref: Ref, options: Options) -> Events:
    """The events to check: of an export, or of the log itself."""
    if options.output is None:
        return LogEvents(session, ref, options.at)
    export_all(session, ref, Path(options.output), options.at)
    return ExportEvents(session, exported_files(Path(options.output)), ends_of(ref, options.at))


class Found(NamedTuple):
    """How often a check was broken, with the first of its violations, in the order of the log."""

    check: str
    times: int
    violations: tuple[dict[str, Any], ...]


def first_violations(every: DataFrame, limit: int | None) -> list[Found]:
    """The checks that are broken, in the order of CHECKS, each with its first violations (all for None)."""
    rows = _counted_here(every, limit) if isinstance(every, LocalFrame) else _counted(every, limit)
    by_check: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_check.setdefault(row["check"], []).append(row)
    return [
        Found(check, by_check[check][0]["times"], tuple(_violation(row) for row in by_check[check]))
        for check in CHECKS
        if check in by_check
    ]


def _counted(every: DataFrame, limit: int | None) -> list[Mapping[str, Any]]:
    """The first violations of each check in order, each with how `times` many that check has."""
    in_order = "partition by check order by log_partition, offset, seen"
    numbered = every.selectExpr(
        "*", f"row_number() over ({in_order}) as place", "count(*) over (partition by check) as times"
    )
    first = numbered if limit is None else numbered.where(f"place <= {max(1, limit)}")
    return [row.asDict() for row in first.orderBy("check", "place").collect()]


def _counted_here(every: LocalFrame, limit: int | None) -> list[Mapping[str, Any]]:
    """The same without Spark."""
    rows = sorted(every.collect(), key=itemgetter("check", "log_partition", "offset", "seen"))
    counted: list[Mapping[str, Any]] = []
    for _, run in groupby(rows, key=itemgetter("check")):
        of_check = list(run)
        first = of_check if limit is None else of_check[: max(1, limit)]
        counted += ({**row, "times": len(of_check)} for row in first)
    return counted


def _violation(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in VIOLATION_COLUMNS}


def _table(found: Sequence[Found]) -> Table:
    counts = {one.check: many(one.times, "violation") for one in found}
    rows = [(check, counts.get(check, "ok"), demands) for check, demands in CHECKS.items()]
    return Table(("CHECK", "FOUND", "REQUIREMENT"), rows)


def _lines(found: Sequence[Found], events: int, several: bool) -> Iterator[str]:
    for one in found:
        yield f"{one.check}: {many(one.times, 'violation')}" + (
            "" if len(one.violations) == one.times else f", the first {len(one.violations)}"
        )
        yield from (f"  {violation_line(row, several)}" for row in one.violations)
        yield ""
    broken = f"{len(found)} of {len(CHECKS)} invariants are broken" if found else f"all {len(CHECKS)} invariants hold"
    yield f"{broken}, on {many(events, 'event')}"


def violation_line(row: Mapping[str, Any], several: bool = False) -> str:
    """A violation in one line; it names the log partition where there are `several`."""
    named = several or row["log_partition"]
    where = f"offset {row['offset']}" + (f" of partition {row['log_partition']}" if named else "")
    topic = f", topic {row['topic']}" if row["topic"] is not None else ""
    return f"{where}{topic}: {row['seen']}; expected: {row['expected']}"


class Log(NamedTuple):
    """A log with what every part needs to know of all of it."""

    events: Events
    extents: Mapping[int, Extent]
    timeline: Timeline


def look(events: DataFrame | Events) -> Log:
    """Read what every part needs to know: how far the log goes, and its brokers and settings."""
    read = FrameEvents(events) if isinstance(events, DataFrame) else events
    read_stretches = stretches(read)
    return Log(read, extents(read_stretches), timeline_of(read_stretches))


def timeline_of(read_stretches: Iterable[Stretch]) -> Timeline:
    """The brokers and settings of every moment."""
    return timeline(sorted(event for one in read_stretches for event in one.cluster))


def extents(read_stretches: Iterable[Stretch], starts: Mapping[int, int] = MappingProxyType({})) -> dict[int, Extent]:
    """How far each log partition goes, and whether its offsets are contiguous from `starts` on (by log partition, else
    0)."""
    by_partition: dict[int, list[Stretch]] = {}
    for one in read_stretches:
        by_partition.setdefault(one.log_partition, []).append(one)
    return {partition: _extent(some, starts.get(partition, 0)) for partition, some in sorted(by_partition.items())}


def _extent(read_stretches: Sequence[Stretch], start: int) -> Extent:
    runs = [run for one in read_stretches for run in one.runs]
    return Extent(
        sum(one.events for one in read_stretches),
        max(last for _, last in runs),
        max(one.end_ms for one in read_stretches),
        max((one.reviewed_ms for one in read_stretches if one.reviewed_ms is not None), default=None),
        tuple(broken((run for run in runs if run[1] >= start), start)),
    )


def violations(
    session: SparkSession, log: Log, settle_ms: int | None = SETTLE_MS, shares: int | None = None
) -> DataFrame:
    """All violations of a log, one row each; nothing more is read until they are asked for.

    `settle_ms` says when a log's end is judged for placeholders that nobody filled and leaders that nobody elected,
    None never; `shares` into how many parts the shards are divided, if not by the number of events.
    """
    ends = {partition: one.end_offset for partition, one in log.extents.items()}
    settled = _settled(log, settle_ms) if settle_ms is not None else {}
    spans = log.timeline.spans

    def checked(batches: Batches) -> Batches:
        return as_batches(_of_share(batches, spans, ends, settled), VIOLATIONS)

    events = sum(one.events for one in log.extents.values())
    found = map_in_arrow(packs(log.events, shares or events // SHARE_EVENTS + 1), checked, ddl(VIOLATIONS))
    disorder = offset_violations(log.extents)
    if not disorder:
        return found
    rows = pa.Table.from_pylist([dict(zip(VIOLATION_COLUMNS, row, strict=True)) for row in disorder], schema=VIOLATIONS)
    return found.unionByName(session.createDataFrame(rows))


def _of_share(
    batches: Batches, spans: Sequence[Span], ends: Mapping[int, int], settled: Mapping[int, Settled]
) -> Iterator[Violation]:
    """What is wrong with the events of one share of the shards."""
    of_share = list(unpacked(batches))
    if not of_share:
        return
    for pack in of_share:
        yield from pack.broken
    share = Share(of_share, spans)
    lives = Lives(share)
    yield from found(LIFE_CHECKS, lives)
    yield from found(REQUEST_CHECKS, Requests(lives, ends))
    yield from partition_violations(share, settled)


def _settled(log: Log, settle_ms: int) -> dict[int, Settled]:
    """The brokers that partitions are judged by at the end of each log partition, where that has settled.

    A sweep through the topics follows each broker event, in slices. It is over when no review has left an event for
    `settle_ms`; what became of a broker within that time is not judged.
    """
    settled = {}
    for log_partition, extent in log.extents.items():
        at_end = log.timeline.at_end.get(log_partition)
        if at_end is not None and extent.end_ms - (extent.reviewed_ms or 0) >= settle_ms:
            live = at_end.live_for(extent.end_ms, settle_ms)
            usable = at_end.usable_for(extent.end_ms, settle_ms)
            fill = usable if log_partition in log.timeline.ever_enabled else ()
            led = at_end.not_gone_for(extent.end_ms, settle_ms)
            settled[log_partition] = Settled(fill, live, led, at_end.elects)
    return settled
