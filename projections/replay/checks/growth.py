"""Checks a log that has grown since its last check: only the new events, and what they need of the earlier ones.

The result of a check is stored in a DuckDB file in the export (a checkpoint): the ranges of offsets that were read
(`runs`), the violations that later events do not resolve (`found`), the view `carried_events` (`carried`), and hashes
of the ids of all create requests (`requests`). The carried events are a few that stand for all earlier ones. The next
check reads and replaces those of topics that have new events. Of other topics it reads only the partitions, which may
violate an invariant at the end of the log.

New events are checked after the carried ones. This finds each violation at least as a suspicion: a violation by which
the carried events may be misleading, a new event of an earlier request, or a topic that violated an invariant before.
If there is a suspicion, all topics with new events are checked again from their first event on.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import duckdb
import pyarrow as pa

from projections.replay.checks.checking import FOUND, Result, check
from projections.replay.checks.history import COLUMNS, create_views, history_of, text_of
from projections.replay.export import exported
from projections.replay.log.columns import arrow_schema
from projections.replay.log.log_ref import Ends
from projections.replay.outcome import ReplayError
from projections.replay.runner import SHARD

FILE = "_checked.duckdb"
"""The checkpoint in an export."""
_REQUESTS = """
type in ('CreateRequested', 'RulesObserved') and request_id is not null
  and hash(log_partition, shard, request_id) {} (from checked.requests)
"""
_JOINED = """
select log_partition, min(first) as first, max(last) as last, sum(events)::bigint as events, max(end_ms) as end_ms,
       max(reconciled_ms) as reconciled_ms, bool_or(kafka_brokers) as kafka_brokers
from (select *, sum(begins::int) over (partition by log_partition order by first, last, begins
                                       rows unbounded preceding) as range
      from (select *, first is distinct from lag(last) over (partition by log_partition order by first, last) + 1
                        as begins from {}))
group by log_partition, range
"""
"""The ranges of offsets in `offset_runs`; those without a gap between them are one."""
_SAVE = f"""
begin;
create table if not exists checked.carried as from carried_events limit 0;
create table if not exists checked.requests (request ubigint);
delete from checked.carried where (log_partition, shard) in (select (log_partition, shard) from log.events);
insert into checked.carried from carried_events;
insert into checked.requests
select distinct hash(log_partition, shard, request_id) from log.events where {_REQUESTS.format("not in")};
create or replace table checked.runs as {_JOINED.format("offset_runs")};
create or replace table checked.found as from found;
create or replace table checked.rules as select getvariable('rules') as rules;
commit
"""
_OTHER_PARTITIONS = """
insert into open_partitions by name
select log_partition, shard, "offset", topic, generate_subscripts(partitions, 1) - 1 as "partition",
       unnest(partitions, recursive := true)
from checked.carried semi join (from log_ends where settled) using (log_partition)
anti join log.events using (log_partition, shard)
where begins_topic(type)
"""
_CONTINUED = """
insert into log.events by name
from checked.carried where shard = '' or (log_partition, shard) in (
  select (log_partition, shard) from log.events
  union select (log_partition, shard) from checked.carried where type = 'CreateRequested')
"""
"""The carried events of brokers and settings, of shards with new events, and of requests without an answer."""
_SUSPECTS = f"""
select log_partition, shard from log.events semi join checked.found using (log_partition, shard)
union
select log_partition, shard from log.events
anti join (from checked.carried where type = 'CreateRequested') using (log_partition, shard, request_id)
where {_REQUESTS.format("in")}
union
select e.log_partition, e.shard from ({{last}}) e
join log.events n on n.log_partition = e.log_partition and n."offset" = e."offset" + 1
where (n.at_ms, n.cause_command, n.cause_id) = (e.at_ms, e.cause_command, e.cause_id)
"""
"""Shards whose new events may violate an invariant in a way that only their earlier events show: they violated one
before, a request continues that was answered, or the earlier check ended in the middle of a decision. (Other events of
a request that was answered violate an invariant by themselves.)"""
_AGAIN = """
reset threads;
create table again as
from suspects union select log_partition, shard from log.events union select log_partition, '' from offset_runs;
create or replace table log.events as from ({events}) semi join again using (log_partition, shard)
"""


def rules_hash(cluster_id: str) -> str:
    """The hash of the views, the invariants, DuckDB's release and a log's cluster id. A checkpoint with another hash is
    ignored."""
    parts = (cluster_id, duckdb.__version__, text_of("views.sql"), text_of("invariants.sql"))
    return sha256("\n".join(parts).encode()).hexdigest()


def write_checkpoint(folder: str, rules: str, history: duckdb.DuckDBPyConnection, result: Result) -> None:
    """Write the result of a check by the rules with the hash `rules` to an export. In an existing checkpoint, those
    shards are replaced that have events in `history`. Raises ReplayError."""
    found = [{**row, "times": 1} for row in result.rows if not row["at_end"]]
    with _attached(history, folder) as file:
        file.chmod(0o600)
        history.execute("set checkpoint_threshold = '1B'")  # commit to the file itself, not to a second file
        history.register("found", pa.Table.from_pylist(found, FOUND))
        history.execute("set variable rules = ?", [rules])
        history.execute(_SAVE)


def check_growth(folder: str, ends: Ends, rules: str) -> Result | None:
    """Check the events before `ends` that an export has got since its checkpoint, in this process, and update the
    checkpoint. If it is of other rules or of later events, it is removed; None if there is none. Raises ReplayError."""
    if not Path(folder, FILE).exists():
        return None
    with history_of([], arrow_schema(COLUMNS)) as history, _attached(history, folder):
        history.execute("set threads = 1")  # the events are few
        starts = _starts(history, rules)
        if starts and all(end <= ends.get(partition, 0) for partition, end in starts.items()):
            result = _check_growth(history, folder, starts, ends)
            write_checkpoint(folder, rules, history, result)
            return result
    for name in (FILE, f"{FILE}.wal"):
        Path(folder, name).unlink(missing_ok=True)
    return None


def _check_growth(history: duckdb.DuckDBPyConnection, folder: str, starts: Ends, ends: Ends) -> Result:
    last = {partition: end - 1 for partition, end in starts.items()}
    history.execute(f"insert into log.events by name {exported(folder, ends, COLUMNS, starts).rows()}")
    suspects = history.sql(_SUSPECTS.format(last=exported(folder, starts, COLUMNS, last).rows())).to_arrow_table()
    ((read,),) = history.execute("select count(*) from log.events").fetchall()
    begin_at(history, "checked.runs")
    history.execute(_CONTINUED)
    result = check(history, given=("offset_runs",), starts=last, more=_OTHER_PARTITIONS)
    found = "from checked.found"
    if len(suspects) or result.rows:
        shards = [{name: row[name] for name in SHARD} for row in (*suspects.to_pylist(), *result.rows)]
        history.register("suspects", pa.Table.from_pylist(shards, arrow_schema(SHARD)))
        history.execute(_AGAIN.format(events=exported(folder, ends, COLUMNS).rows()))
        result = check(history, given=("offset_runs",), more=_OTHER_PARTITIONS)
        found += " anti join again using (log_partition, shard)"
    return result._replace(rows=[*history.sql(found).to_arrow_table().to_pylist(), *result.rows], read=read)


@contextmanager
def _attached(history: duckdb.DuckDBPyConnection, folder: str) -> Iterator[Path]:
    """Attach the checkpoint as `checked`. Raises ReplayError if it cannot be read or written."""
    file = Path(folder, FILE)
    try:
        history.execute("attach if not exists '{}' as checked".format(str(file).replace("'", "''")))
        yield file
    except duckdb.Error as error:
        raise ReplayError(f"{file} of the last check cannot be used: {error}; if no check runs, remove it") from None


def _starts(history: duckdb.DuckDBPyConnection, rules: str) -> Ends:
    """The offset after the last event of the checkpoint, by log partition; empty if it has other rules."""
    try:
        if history.sql("from checked.rules").fetchall() != [(rules,)]:
            return {}
    except duckdb.CatalogException:  # the check that created the file did not end
        return {}
    return dict(history.sql("select log_partition, max(last) + 1 from checked.runs group by all").fetchall())


def begin_at(history: duckdb.DuckDBPyConnection, before: str) -> None:
    """Create the table `offset_runs` of the earlier runs in the table `before`, and of the new events in
    `log.events`."""
    create_views(history, only=("offset_runs",))
    runs = _JOINED.format(f"(from {before} union all by name from offset_runs)")
    history.execute(f"create table joined as {runs}; drop view offset_runs; alter table joined rename to offset_runs")
