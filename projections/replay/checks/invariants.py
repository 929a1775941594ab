"""Checks the events of a log against the invariants (`topicwright replay invariants`).

The checks are independent of the state machine, whose `decide` and `apply` could share a mistake. The queries in
invariants.sql share no code with the machine, so they can find such a mistake.

Method. DuckDB evaluates the queries, on the views in views.sql over the columns of the events (`checking`): with
`--local` in this process, else in Spark tasks, each for one bucket of the shards.

Non-goals: checking that decisions were right (`redecide`), and that the live state equals the state rebuilt from the
log (`compare`). Logs are checked from their first event on.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from events.logs.archive.store import Folder, open_store
from projections.replay.checks.checking import Result, Save, check_here, check_in_buckets
from projections.replay.checks.growth import check_growth, rules_hash, write_checkpoint
from projections.replay.checks.rules import Found, Invariant, check_queries, invariants, read_invariants, together
from projections.replay.export import check_export, events_from, export, exported
from projections.replay.log.log_ref import Ref, ends_of
from projections.replay.outcome import Options, Outcome, Table
from projections.replay.runner import InProcess, Runner
from projections.text.wording import many

CHECKS: Mapping[str, str] = {one.name: one.demand for one in invariants()}
"""The invariants by name, with the requirement of each."""


def check_invariants(ref: Ref, options: Options) -> None:
    """Check, before Spark starts, that the export is of this log, and that the user's checks can run. Raises
    ReplayError."""
    check_export(ref, options)
    own = _rules(options)[len(CHECKS) :]
    if own:
        check_queries(own, in_buckets=not options.local)


def run_invariants(runner: Runner, ref: Ref, options: Options) -> Outcome:
    """Run `topicwright replay invariants`: check the log up to a point in time. Each violation is a row; `found` is
    true if there is one. Raises ReplayError.

    An export in `options.export` is updated first, and the checks run on it. From the second run on, only topics with
    new events are checked; but all topics with `options.checks`, a file of more invariants.
    """
    wanted, limit = _rules(options), None if options.all_rows else options.limit
    ends = ends_of(ref, options.at)
    check = check_here if isinstance(runner, InProcess) else partial(check_in_buckets, runner)
    place = open_store(options.export) if options.export else None
    if not isinstance(place, Folder) or options.checks:
        checked = check(events_from(runner, ref, ends, options), wanted, limit)
    else:
        folder = place.url
        notes = export(runner, ref, folder, ends).values()
        rules = rules_hash(",".join(note.cluster_id for _, note in notes))
        checked = check_growth(folder, ends, rules) or check(
            partial(exported, folder, ends), save=Save(folder, partial(write_checkpoint, folder, rules))
        )
    found = together(checked.rows, wanted, limit)
    about = {"events": checked.events, "violations": {one.check: one.times for one in found}}
    lines = list(_lines(found, checked, len(wanted)))
    return Outcome([row for one in found for row in one.violations], bool(found), lines, about, _table(found, wanted))


def _rules(options: Options) -> tuple[Invariant, ...]:
    return (*invariants(), *(read_invariants(options.checks) if options.checks else ()))


def _table(found: Sequence[Found], wanted: Sequence[Invariant]) -> Table:
    counts = {one.check: many(one.times, "violation") for one in found}
    rows = [(one.name, counts.get(one.name, "ok"), one.demand) for one in wanted]
    return Table(("CHECK", "FOUND", "REQUIREMENT"), rows)


def _lines(found: Sequence[Found], checked: Result, count: int) -> Iterator[str]:
    for one in found:
        yield f"{one.check}: {many(one.times, 'violation')}" + (
            "" if len(one.violations) == one.times else f", the first {len(one.violations)}"
        )
        yield from (f"  {violation_line(row, checked.log_partitions > 1)}" for row in one.violations)
        yield ""
    broken = f"{len(found)} of {count} invariants are violated" if found else f"all {count} invariants hold"
    again = f", of which {many(checked.read, 'event')} are new" if checked.read is not None else ""
    yield f"{broken}, on {many(checked.events, 'event')}{again}"
    yield "`topicwright verify` also finds altered bytes that do not change the decoded events"


def violation_line(row: Mapping[str, Any], several: bool = False) -> str:
    """A violation in one line, which names the log partition if there are `several`."""
    places = [f"offset {row['offset']}"] if row["offset"] is not None else []
    places += [f"partition {row['log_partition']}"] if several or row["log_partition"] else []
    topics = [f"topic {row['topic']}"] if row["topic"] is not None else []
    where = ", ".join((*([" of ".join(places)] if places else ()), *topics))
    return f"{where}{': ' if where else ''}{row['seen']}; expected: {row['expected']}"
