"""Checks a log that has grown since its last check: only the new events, and what they need of the earlier ones.

The result of a check is stored in a DuckDB file in the export (a checkpoint): the ranges of offsets that were read
(runs), the violations, the view `carried_events`, and hashes of the ids of all create requests. The carried events are
a few that stand for all earlier ones. The next check reads those of the topics that have new events, and then replaces
them; it does not touch other topics, except for the partitions that may violate an invariant at the end of the log.

New events are checked after the carried ones. This finds each violation at least as a suspicion: a violation by which
the carried events may be misleading, a new event of an earlier request, or a topic that violated an invariant before.
If there is a suspicion, all topics with new events are checked again from their first event on.

A checkpoint of other invariants, or of another release of DuckDB, is ignored and replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from projections.replay.checks import rules
from projections.replay.checks.checking import FOUND, RUNS, SETTLE_MS, Result, Run, Save, result_of
from projections.replay.checks.history import COLUMNS, TABLES, create_views, history_of, text_of
from projections.replay.checks.rules import invariants
from projections.replay.log.columns import arrow_schema
from projections.replay.outcome import ReplayError
from projections.replay.runner import SHARD, Batches, Rows, Source

Shards = Mapping[int, set[str]]
"""Shard keys by log partition."""
FILE = "_checked.duckdb"
"""The checkpoint in an export."""
_BATCH_ROWS = 50_000
_SCHEMA = arrow_schema(COLUMNS)
_REQUESTS = """
hash(log_partition, shard, request_id) {} (from checked.requests)
  and type in ('CreateRequested', 'RulesObserved') and request_id is not null
"""
_SAVE = f"""
begin;
create table if not exists checked.carried as from carried_events limit 0;
create table if not exists checked.requests (request ubigint);
delete from checked.carried where (log_partition, shard) in (select (log_partition, shard) from log.events);
insert into checked.carried from carried_events;
insert into checked.requests
select distinct hash(log_partition, shard, request_id) from log.events where {_REQUESTS.format("not in")};
create or replace table checked.runs as from runs;
create or replace table checked.found as from found;
create or replace table checked.rules as select getvariable('rules') as rules;
commit
"""
_OTHER_PARTITIONS = """
insert into open_partitions by name
select log_partition, shard, "offset", topic, generate_subscripts(partitions, 1) - 1 as "partition",
       unnest(partitions, recursive := true)
from checked.carried anti join log.events using (log_partition, shard)
where type in ('TopicCreated', 'TopicDiscovered')
"""
_CONTINUED = f"""
insert into log.events by name
from checked.carried where shard = '' or (log_partition, shard) in (
  select ({", ".join(SHARD)}) from log.events
  union select ({", ".join(SHARD)}) from checked.carried where type = 'CreateRequested')
"""
"""The carried events of brokers and settings, of shards with new events, and of requests without an answer."""
_SUSPECTS = f"""
select log_partition, shard from log.events semi join checked.found using (log_partition, shard)
union
select log_partition, shard from log.events
anti join (from checked.carried where type = 'CreateRequested') using (log_partition, shard, request_id)
where {_REQUESTS.format("in")}
union
select e.log_partition, e.shard from last_events e
join log.events n on n.log_partition = e.log_partition and n."offset" = e."offset" + 1
where (n.at_ms, n.cause_command, n.cause_id) = (e.at_ms, e.cause_command, e.cause_id)
"""
"""Shards whose new events may violate an invariant in a way that only their earlier events show: they violated one
before, a request continues that was answered, or the earlier check ended in the middle of a decision. (Other events of
a request that was answered violate an invariant by themselves.)"""


class Checkpoint(NamedTuple):
    """The result of a check that the next check continues from: the offset ranges that it read (`runs`), and the
    violations that are final (`found`: those that later events do not resolve)."""

    runs: tuple[Run, ...]
    found: tuple[Mapping[str, Any], ...]


def rules_hash(cluster_id: str) -> str:
    """The hash of the views, the invariants, DuckDB's release and a log's cluster id. A checkpoint with another hash is
    ignored."""
    parts = (cluster_id, duckdb.__version__, text_of("views.sql"), text_of("invariants.sql"))
    return sha256("\n".join(parts).encode()).hexdigest()


def write_checkpoint(folder: str, rules: str, history: duckdb.DuckDBPyConnection, result: Result) -> None:
    """Write the result of a check by the rules with the hash `rules` to an export, or bring its checkpoint up to date:
    those shards are replaced that have events in `history`."""
    _attach(history, folder)
    Path(folder, FILE).chmod(0o600)
    history.execute("set checkpoint_threshold = '1B'")  # commit to the file itself, not to a second file
    found = [{**row, "times": 1} for row in result.rows if not row["at_end"]]
    history.register("runs", pa.Table.from_pylist(list(joined(result.runs)), RUNS))
    history.register("found", pa.Table.from_pylist(found, FOUND))
    history.execute("set variable rules = ?", [rules])
    history.execute(_SAVE)


def read_checkpoint(folder: str, rules: str) -> Checkpoint | None:
    """The checkpoint in an export; None if there is none, or it was written with other rules. Raises ReplayError."""
    if not Path(folder, FILE).exists():
        return None
    with duckdb.connect() as history:
        _attach(history, folder)
        with suppress(duckdb.CatalogException):  # its first check did not end
            if history.sql("from checked.rules").fetchall() == [(rules,)]:
                tables = (history.sql(f"from checked.{name}").to_arrow_table() for name in ("runs", "found"))
                return Checkpoint(*(tuple(table.to_pylist()) for table in tables))
    return None


def remove_checkpoint(folder: str) -> None:
    """Remove the checkpoint in an export, if there is one."""
    for name in (FILE, f"{FILE}.wal"):
        Path(folder, name).unlink(missing_ok=True)


def _attach(history: duckdb.DuckDBPyConnection, folder: str) -> None:
    path = str(Path(folder, FILE))
    try:
        history.execute("attach if not exists '{}' as checked".format(path.replace("'", "''")))
    except duckdb.Error as error:
        raise ReplayError(f"{path} cannot be opened, so remove it if no other check runs: {error}") from None


def ends_of_runs(runs: Iterable[Run]) -> dict[int, int]:
    """The offset after the last event, by log partition."""
    return {run["log_partition"]: run["last"] + 1 for run in sorted(runs, key=lambda run: run["last"])}


def joined(runs: Iterable[Run]) -> tuple[Run, ...]:
    """The runs in order; those without a gap between them are merged."""
    made: list[dict[str, Any]] = []
    for run in sorted(runs, key=lambda run: (run["log_partition"], run["first"], run["last"])):
        last = made[-1] if made and made[-1]["log_partition"] == run["log_partition"] else None
        if last is None or run["first"] != last["last"] + 1:
            made.append(dict(run))
            continue
        last["last"], last["events"] = run["last"], last["events"] + run["events"]
        last["kafka_brokers"] = last["kafka_brokers"] or run["kafka_brokers"]
        for name in ("end_ms", "reconciled_ms"):
            last[name] = max(last[name] or 0, run[name] or 0) or None
    return tuple(made)


def check_growth(folder: str, new: Source, whole: Source, last: Source, before: Checkpoint, save: Save) -> Result:
    """Check the events after the checkpoint in a folder, in this process. Raises ReplayError.

    `new` has these events, `whole` those before the checkpoint, and `last` the last of those in each log partition: all
    with COLUMNS, in files.
    """

    def earlier(shards: Shards) -> Batches:
        keys = [{"log_partition": one, "shard": shard} for one, some in shards.items() for shard in some]
        with duckdb.connect() as database:
            database.register("wanted", pa.Table.from_pylist(keys, arrow_schema(SHARD)))
            found = database.sql(f"from ({whole.rows()}) semi join wanted using ({', '.join(SHARD)})")
            yield from (batch.cast(_SCHEMA) for batch in found.to_arrow_reader(_BATCH_ROWS))

    with history_of(new.rows(), new.schema) as history:
        _attach(history, folder)
        history.execute(f"create view last_events as {last.rows()}")
        suspects = set(history.execute(_SUSPECTS).fetchall())
        ((read,),) = history.execute("select count(*) from log.events").fetchall()
        _begin_at(history, before.runs)
        history.execute(_CONTINUED)
        starts = {one: end - 1 for one, end in ends_of_runs(before.runs).items()}
        result = _check(history, SETTLE_MS, starts, others=True)
        suspects.update((row["log_partition"], row["shard"]) for row in result.rows)
        if not suspects:
            result = result._replace(rows=[dict(row) for row in before.found], read=read)
            save(history, result)
            return result
    return check_again(new.rows(), earlier, before, suspects, folder=folder, save=save)._replace(read=read)


def check_again(
    new: Rows,
    earlier: Callable[[Shards], Batches],
    before: Checkpoint,
    more: Iterable[tuple[int, str]] = (),
    settle_ms: int | None = SETTLE_MS,
    folder: str | None = None,
    save: Save | None = None,
) -> Result:
    """Check all events of the shards with new events, and of the shards `more`, in this process. Raises ReplayError.

    `new` has the events after a checkpoint, with COLUMNS. `earlier` returns the events of some shards before it.
    """
    with history_of(new, _SCHEMA) as history:
        shards = _begin_at(history, before.runs)
        for partition, shard in more:
            shards[partition].add(shard)
        history.register("earlier", pa.RecordBatchReader.from_batches(_SCHEMA, earlier(shards)))
        history.execute("insert into log.events by name from earlier")
        if folder is not None:
            _attach(history, folder)
        result = _check(history, settle_ms, others=folder is not None)
        found = [dict(row) for row in before.found if row["shard"] not in shards.get(row["log_partition"], ())]
        result = result._replace(rows=[*found, *result.rows])
        if save is not None:
            save(history, result)
    return result


def _check(
    history: duckdb.DuckDBPyConnection, settle_ms: int | None, starts: Mapping[int, int] | None = None, *, others: bool
) -> Result:
    """Check a history, from the offsets `starts` on; with the partitions of `others`, which are shards without events
    in it."""
    create_views(history, settle_ms=settle_ms, tables=TABLES, given=("offset_runs",))
    if others:
        history.execute(_OTHER_PARTITIONS)
    return result_of(history, rules.violations(history, invariants(), starts=starts))


def _begin_at(history: duckdb.DuckDBPyConnection, before: Iterable[Run]) -> dict[int, set[str]]:
    """Create the view `offset_runs` of the runs before and of the new events in `log.events`. Returns the shards that
    the new events concern, by log partition."""
    create_views(history, only=("offset_runs",))
    runs = (*before, *history.sql("from offset_runs").to_arrow_table().to_pylist())
    history.execute("drop view offset_runs")
    history.register("offset_runs", pa.Table.from_pylist(list(joined(runs)), RUNS))
    shards = {run["log_partition"]: {""} for run in runs}
    for partition, shard in history.execute("select distinct log_partition, shard from log.events").fetchall():
        shards[partition].add(shard)
    return shards
