"""Checks every log against the invariants, without the machine.

The checks are a second witness: `decide` and `apply` could share a mistake; the queries in invariants.sql share no
code with the machine, and so cannot hide it.

Method. DuckDB evaluates the queries, on the views in views.sql over the columns of the events (`checking`): in this
process for `--local`, and in the tasks of Spark for a bucket of the shards each.

Non-goals: whether a decision was the right one (`redecide` does that), and whether the live state is what the log says
(`compare`). Logs are judged from their first event on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from projections.replay.checks.checking import Checked, check_here, check_in_buckets
from projections.replay.checks.rules import Found, Invariant, invariants, read_invariants
from projections.replay.export.export import check_export, export_all, exported
from projections.replay.log.log_ref import Ref, ends_of
from projections.replay.outcome import Options, Outcome, Table
from projections.replay.runner import InProcess, Runner, events_of
from projections.text.wording import many

CHECKS: Mapping[str, str] = {one.name: one.demand for one in invariants()}
"""The invariants by name, with the requirement of each."""


def check_invariants(ref: Ref, options: Options) -> None:
    """Check, before Spark starts, that the export is of this log, and that the user's checks can be read. Raises
    ReplayError."""
    check_export(ref, options)
    _rules(options)


def run_invariants(runner: Runner, ref: Ref, options: Options) -> Outcome:
    """Run `topicwright replay invariants`: check the log up to a point in time. Violations are rows, and are found.
    Raises ReplayError.

    With `options.output` the checks run on the export in that folder, which is updated first: faster from the second
    time on. `options.more` may have `checks`, a file of more invariants.
    """
    wanted, limit = _rules(options), None if options.all_rows else options.limit
    ends = ends_of(ref, options.at)
    events = partial(events_of, ref, ends)
    if options.output is not None:
        export_all(runner, ref, Path(options.output), options.at)
        events = partial(exported, Path(options.output), ends)
    if isinstance(runner, InProcess):
        checked = check_here(events, wanted, limit)
    else:
        checked = check_in_buckets(runner, events, wanted, limit)
    rows = [row for one in checked.found for row in one.violations]
    about = {"events": checked.events, "violations": {one.check: one.times for one in checked.found}}
    lines = list(_lines(checked, len(wanted)))
    return Outcome(rows, bool(checked.found), lines, about, _table(checked.found, wanted))


def _rules(options: Options) -> tuple[Invariant, ...]:
    file = options.more.get("checks")
    return (*invariants(), *(read_invariants(Path(file)) if file else ()))


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
