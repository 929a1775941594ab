"""Checks every log against the invariants, without the machine.

The checks are a second witness: `decide` and `apply` could share a mistake; the queries in invariants.sql share no
code with the machine, and so cannot hide it.

Method. DuckDB evaluates the queries, on the views in views.sql over the columns of the events: in this process for
`--local`, and in the tasks of Spark for a bucket of the shards each. The state of one topic never depends on another,
so a bucket can be judged alone, given the few rows that concern every topic (`OF_THE_LOG`), which the driver computes
once.

Non-goals: whether a decision was the right one (`redecide` does that), and whether the live state is what the log says
(`compare`). Logs are judged from their first event on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from projections.replay.checks import rules
from projections.replay.checks.history import TABLES, create_views, database, load
from projections.replay.checks.rules import Found, Invariant, invariants, read_invariants
from projections.replay.log.log_ref import Ends, Ref, ends_of, log_of
from projections.replay.log.ranges import ranges_of
from projections.replay.outcome import Options, Outcome, Table
from projections.replay.spark.columns import arrow_schema
from projections.replay.spark.options import RANGE_EVENTS, read_range
from projections.text.wording import many

CHECKS: Mapping[str, str] = {one.name: one.demand for one in invariants()}
"""The invariants by name, with the requirement of each."""
SETTLE_MS = 1000
"""How long the reconciler may write no event while it still works through the topics."""
COLUMNS = (
    "log_partition", "offset", "at_ms", "shard", "topic", "type", "cause_command", "cause_id", "request_id",
    "error_code", "message", "rule", "deadline_ms", "timeout_ms", "num_partitions", "replication_factor", "partition",
    "leader", "isr", "leader_epoch", "partition_epoch", "placeholder", "broker_id", "broker_epoch", "brokers",
    "partitions", "first", "configs", "settings", "assignments", "acls", "entity", "quotas", "removed", "resource",
    "count", "user", "mechanism", "replicas", "cordoned",
)  # fmt: skip
"""The columns of events that the views read."""

RUN_COLUMNS = ("log_partition", "offset", "at_ms", "topic", "type", "cause_command")
"""The columns that `offset_runs` reads."""


class Checked(NamedTuple):
    """The broken invariants, and how many events were checked in how many log partitions."""

    found: list[Found]
    events: int
    log_partitions: int


def check_invariants(ref: Ref, options: Options) -> None:
    """See, without Spark, that the export is of this log, and the user's checks can be read. Raises ReplayError."""
    from projections.replay.export.export import check_export

    check_export(ref, options)
    _rules(options)


def run_invariants(session: Any, ref: Ref, options: Options) -> Outcome:
    """The sub-command: check the log up to a point in time; violations are rows, and what is found. Raises ReplayError.

    With `options.output` the checks run on the export in that folder, which is brought up to date first: faster from
    the second time on. `options.more` may have `checks`, a file of more invariants.
    """
    wanted, limit = _rules(options), None if options.all_rows else options.limit
    checked = _checked(session, ref, options, wanted, limit)
    rows = [row for one in checked.found for row in one.violations]
    about = {"events": checked.events, "violations": {one.check: one.times for one in checked.found}}
    lines = list(_lines(checked, len(wanted)))
    return Outcome(rows, bool(checked.found), lines, about, _table(checked.found, wanted))


def _rules(options: Options) -> tuple[Invariant, ...]:
    file = options.more.get("checks")
    return (*invariants(), *(read_invariants(Path(file)) if file else ()))


def _checked(session: Any, ref: Ref, options: Options, wanted: Sequence[Invariant], limit: int | None) -> Checked:
    from projections.replay.export.export import export_all, exported, exported_files
    from projections.replay.spark.local import LocalSession

    ends = ends_of(ref, options.at)
    if options.output is not None:
        export_all(session, ref, Path(options.output), options.at)
    if isinstance(session, LocalSession):
        with database() as history:
            if options.output is None:
                load(history, events_of(ref, ends), arrow_schema(COLUMNS))
            else:
                history.execute(f"create view stored_events as {_of_files(exported_files(Path(options.output)), ends)}")
            return check(history, wanted, limit)
    from projections.replay.checks.on_spark import check_frame
    from projections.replay.spark.source import events_frame

    if options.output is None:
        return check_frame(events_frame(session, ref, end=ends, columns=COLUMNS), wanted, limit)
    return check_frame(exported(session, Path(options.output)).where(_before(ends, "`")), wanted, limit)


def events_of(ref: Ref, ends: Ends, columns: Sequence[str] = COLUMNS) -> Iterator[pa.RecordBatch]:
    """The events of a log before its `ends`, read in this process. Raises ReplayError, LogError."""
    log = log_of(ref)
    for wanted in ranges_of(ref, 0, ends, RANGE_EVENTS):
        yield from read_range(log, wanted, columns, None)


def _of_files(files: Sequence[str], ends: Ends) -> str:
    return f"from read_parquet({list(files)!r}, hive_partitioning = false) where {_before(ends, chr(34))}"


def _before(ends: Ends, quote: str) -> str:
    """The SQL condition for the events before `ends`; `quote` is that of names."""
    each = (f"log_partition = {partition} and {quote}offset{quote} < {end}" for partition, end in ends.items())
    return " or ".join(f"({one})" for one in each)


def check(
    history: duckdb.DuckDBPyConnection,
    wanted: Iterable[Invariant] = (),
    limit: int | None = None,
    settle_ms: int | None = SETTLE_MS,
    given: Iterable[str] = (),
) -> Checked:
    """Check the events in `stored_events` of a database; of each query the first `limit` violations (all for None).

    The end of the log is judged after `settle_ms` without events of the reconciler; None: never. The views `given`
    exist already. Raises ReplayError.
    """
    every = tuple(wanted) or invariants()
    create_views(history, settle_ms=settle_ms, tables=TABLES, given=given)
    found = rules.together(rules.violations(history, every, limit), every, limit)
    extents = history.execute("select coalesce(sum(events), 0)::bigint, count(*) from log_extents").fetchone()
    return Checked(found, *(extents or (0, 0)))


def offset_runs(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """The view of this name, of some of the events of a log, which have at least RUN_COLUMNS."""
    with database(threads=1) as part:
        load(part, batches, schema)
        create_views(part, only=("offset_runs",))
        return part.sql("from offset_runs").to_arrow_table()


def _table(found: Sequence[Found], wanted: Sequence[Invariant]) -> Table:
    counts = {one.check: many(one.times, "violation") for one in found}
    rows = [(one.name, counts.get(one.name, "ok"), one.demand) for one in wanted]
    return Table(("CHECK", "FOUND", "REQUIREMENT"), rows)


def _lines(checked: Checked, count: int) -> Iterator[str]:
    found = checked.found
    for one in found:
        yield f"{one.check}: {many(one.times, 'violation')}" + (
            "" if len(one.violations) == one.times else f", the first {len(one.violations)}"
        )
        yield from (f"  {violation_line(row, checked.log_partitions > 1)}" for row in one.violations)
        yield ""
    broken = f"{len(found)} of {count} invariants are broken" if found else f"all {count} invariants hold"
    yield f"{broken}, on {many(checked.events, 'event')}"


def violation_line(row: Mapping[str, Any], several: bool = False) -> str:
    """A violation in one line; it names the log partition where there are `several`."""
    named = several or row["log_partition"]
    where = f"offset {row['offset']}" + (f" of partition {row['log_partition']}" if named else "")
    topic = f", topic {row['topic']}" if row["topic"] is not None else ""
    return f"{where}{topic}: {row['seen']}; expected: {row['expected']}"
