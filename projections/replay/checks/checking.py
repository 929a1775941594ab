"""Checks the events of a log against invariants with DuckDB: in this process, or in one task for each bucket of shards.

A shard has all events of one shard key, and a bucket some of the shards. The state of one topic never depends on
another, so a bucket can be checked alone, given the few rows that concern every topic (the views `OF_THE_LOG`). With
buckets there are two passes over the events. In the first, each task summarizes its part of the log: ranges of offsets,
and the events that concern every topic. This process computes `OF_THE_LOG` from them. In the second, all events of a
shard go to one task, which checks its bucket with those views. This is the only shuffle, and an export needs none.

A checkpoint stores the result of a check, so that the next check reads only new events. It has the ranges of offsets
that were read (runs), the violations, and the view `carried_events`: a few events that stand for all earlier ones. New
events are checked after those. This finds each violation at least as a suspicion: a violation by which the carried
events may be misleading, a new event of an earlier request, or a topic that violated an invariant before. If there is a
suspicion, all topics with new events are checked again from their first event on.

Memory: a task has the columns of one bucket, about 500 bytes an event. A shard is never divided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import filterfalse
from typing import Any, NamedTuple, TypeVar

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from events.logs.archive.store import open_store
from projections.replay.checks import rules
from projections.replay.checks.history import COLUMNS, OF_THE_LOG, TABLES, create_views, history_of, text_of
from projections.replay.checks.rules import Invariant, invariants
from projections.replay.log import columns as event_columns
from projections.replay.log.columns import arrow_schema
from projections.replay.runner import SHARD, Batches, Rows, Runner, Source

Shards = Mapping[int, set[str]]
"""Shard keys by log partition."""
Run = Mapping[str, Any]
"""A row of the view `offset_runs`."""
RUNS = pa.schema(
    [("log_partition", pa.int32()), ("first", pa.int64()), ("last", pa.int64()), ("events", pa.int64()),
     ("end_ms", pa.int64()), ("reconciled_ms", pa.int64()), ("kafka_brokers", pa.bool_())]
)  # fmt: skip
"""The columns of the view `offset_runs`."""
CHECKPOINT = "_checked.parquet"
"""The file in an export that holds the checkpoint of its last check."""
FOUND_MAX = 10_000
"""Maximum number of violations in a checkpoint."""
_ABOUT = b"topicwright"


class Checkpoint(NamedTuple):
    """The result of a check that the next check continues from: the offset ranges that it read (`runs`), the violations
    that are final (`found`: those that later events do not resolve), and the view `carried_events` (None: all topics
    with new events are checked again from their first event on)."""

    runs: tuple[Run, ...]
    found: tuple[Mapping[str, Any], ...]
    carried: pa.Table | None = None


def rules_hash(cluster_id: str) -> str:
    """The hash of the views, the invariants and a log's cluster id. A checkpoint with another hash is ignored."""
    return sha256("\n".join((cluster_id, text_of("views.sql"), text_of("invariants.sql"))).encode()).hexdigest()


def write_checkpoint(
    place: str, rules: str, runs: Iterable[Run], rows: Iterable[Mapping[str, Any]], carried: pa.Table
) -> None:
    """Write the checkpoint of a check by the rules with the hash `rules` to an export. Remove it instead if the check
    found more than FOUND_MAX violations."""
    found = tuple({**row, "times": 1} for row in rows if not row["at_end"])
    if len(found) > FOUND_MAX:
        open_store(place).remove(CHECKPOINT)
        return
    about = msgspec.json.encode((rules, joined(runs), found))
    pq.write_table(carried.replace_schema_metadata({_ABOUT: about}), out := pa.BufferOutputStream())
    open_store(place).write(CHECKPOINT, out.getvalue().to_pybytes())


def read_checkpoint(place: str, rules: str) -> Checkpoint | None:
    """The checkpoint in an export; None if there is none, or it was written with other rules."""
    content = open_store(place).read(CHECKPOINT)
    if content is None:
        return None
    carried = pq.ParquetFile(pa.BufferReader(content)).read()
    about = (carried.schema.metadata or {})[_ABOUT]
    of_rules, runs, found = msgspec.json.decode(about, type=tuple[str, tuple[Run, ...], tuple[Mapping[str, Any], ...]])
    return Checkpoint(runs, found, carried) if of_rules == rules else None


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


SETTLE_MS = 1000
"""The end of a log is checked only if `ReconcileTopics` wrote no event for this time (`log_ends` in views.sql)."""
BUCKET_EVENTS = 250_000
"""About how many events a task checks at once."""
_SUMMARY = """
from offset_runs
union all by name
select log_partition, "offset", at_ms, topic, type, cause_command, broker_id, broker_epoch, cordoned, settings
from stored_events
where type in ('BrokerRegistered', 'BrokerFenced', 'BrokerLeaving', 'BrokerUnfenced', 'BrokerUnregistered',
               'LogDirsChanged', 'SettingsChanged')
"""
_CLUSTER = arrow_schema(
    ("log_partition", "offset", "at_ms", "topic", "type", "cause_command", "broker_id", "broker_epoch", "cordoned",
     "settings")
)  # fmt: skip
"""The columns of the events of which `broker_spans` and `cluster_spans` are made."""
_SUMMARIZED = pa.unify_schemas([RUNS, _CLUSTER])
_BATCH_ROWS = 50_000
_SCHEMA = arrow_schema(COLUMNS)
_NO_EVENTS = pa.Table.from_batches([], _SCHEMA)
_NAMES = ", ".join(f'"{name}"' for name in COLUMNS)
_FOUND = pa.unify_schemas(
    [_SCHEMA, pa.schema([("check", pa.string()), ("seen", pa.string()), ("expected", pa.string()),
                                       ("times", pa.int64()), ("at_end", pa.bool_())])]
)  # fmt: skip
"""The rows that a bucket returns: violations, and `carried_events` (`check` is null)."""
_UNTOUCHED = "anti join stored_events using (log_partition, shard)"
_OTHER_PARTITIONS = f"""
insert into open_partitions by name
select log_partition, shard, "offset", topic, generate_subscripts(partitions, 1) - 1 as "partition",
       unnest(partitions, recursive := true)
from carried {_UNTOUCHED} where type in ('TopicCreated', 'TopicDiscovered')
"""
_CONTINUED = f"""
insert into stored_events by name
from carried where shard = '' or (log_partition, shard) in (
  select ({", ".join(SHARD)}) from stored_events
  union select ({", ".join(SHARD)}) from carried where type = 'CreateRequested')
"""
"""The carried events of brokers and settings, of shards with new events, and of requests without an answer."""
_SUSPECTS = """
select distinct log_partition, shard from stored_events semi join violated using (log_partition, shard)
union
select log_partition, shard from stored_events n
semi join earlier using (log_partition, shard, request_id)
anti join (from carried where type = 'CreateRequested') using (log_partition, shard, request_id)
where type in ('CreateRequested', 'CreateRejected', 'TopicCreated', 'CreateAnswered', 'RulesObserved')
union
select e.log_partition, e.shard from earlier e
join stored_events n on n.log_partition = e.log_partition and n."offset" = e."offset" + 1
where (n.at_ms, n.cause_command, n.cause_id) = (e.at_ms, e.cause_command, e.cause_id)
"""
"""Shards whose new events may violate an invariant in a way that only their earlier events show: they violated one
before, a request continues that was answered, or the earlier check ended in the middle of a decision."""


Events = Callable[[Sequence[str]], Source]
"""The events of a log, with some of their columns."""


class Result(NamedTuple):
    """The violations, the number of events, and the number of log partitions.

    `runs` and `carried` are the rows of `offset_runs` and `carried_events`, for a checkpoint. If the check began at a
    checkpoint, `read` is the number of events that were read.
    """

    rows: list[dict[str, Any]]
    events: int
    log_partitions: int
    runs: Sequence[Run]
    carried: pa.Table
    read: int | None = None


def check(
    history: duckdb.DuckDBPyConnection,
    wanted: Iterable[Invariant] = (),
    limit: int | None = None,
    settle_ms: int | None = SETTLE_MS,
    given: Iterable[str] = (),
    before: pa.Table | None = None,
    starts: Mapping[int, int] | None = None,
    keep: bool = False,
) -> Result:
    """Check the events in the table `stored_events`; returns at most `limit` violations of each query (None: all), from
    the offsets `starts` on.

    The end of the log is checked after `settle_ms` without events of the reconciler; None: never. The views `given`
    exist already. `before` are the carried events of an earlier check; the partitions of shards without events here
    come from them. With `keep` the result has the carried events. Raises ReplayError.
    """
    create_views(history, settle_ms=settle_ms, tables=TABLES, given=given)
    if before is not None:
        history.register("carried", before)
        history.execute(_OTHER_PARTITIONS)
    rows = list(rules.violations(history, tuple(wanted) or invariants(), limit, starts))
    runs, carried = history.sql("from offset_runs").to_arrow_table().to_pylist(), _NO_EVENTS
    if keep:
        others = "" if before is None else f"union all by name from carried {_UNTOUCHED}"
        carried = history.sql(f"select {_NAMES} from (from carried_events {others})").to_arrow_table().cast(_SCHEMA)
    return Result(rows, *_extent(history), runs, carried)


def check_here(
    events: Events, wanted: Sequence[Invariant] = (), limit: int | None = None, keep: bool = False
) -> Result:
    """Check events in this process. Raises ReplayError."""
    source = events(_columns(wanted))
    with history_of(source.rows(), source.schema) as history:
        return check(history, wanted, limit, keep=keep)


def check_growth(new: Source, whole: str, before: Checkpoint) -> Result:
    """Check the events after a checkpoint, in this process. Raises ReplayError.

    `new` has these events, with COLUMNS. `whole` is a query of the events before the checkpoint.
    """

    def earlier(shards: Shards) -> Batches:
        keys = [{"log_partition": one, "shard": shard} for one, some in shards.items() for shard in some]
        with duckdb.connect() as database:
            database.register("wanted", pa.Table.from_pylist(keys, arrow_schema(SHARD)))
            found = database.sql(f"from ({whole}) semi join wanted using ({', '.join(SHARD)})")
            yield from (batch.cast(_SCHEMA) for batch in found.to_arrow_reader(_BATCH_ROWS))

    assert before.carried is not None, "an export's checkpoint has carried events"
    ends = ends_of_runs(before.runs)
    with history_of(new.rows(), new.schema) as history:
        history.execute(f"create view earlier as {whole}")
        history.register("violated", pa.Table.from_pylist([dict(row) for row in before.found], _FOUND))
        history.register("carried", before.carried)
        suspects = set(history.execute(_SUSPECTS).fetchall())
        ((read,),) = history.execute("select count(*) from stored_events").fetchall()
        _begin_at(history, before.runs)
        history.execute(_CONTINUED)
        starts = {one: end - 1 for one, end in ends.items()}
        result = check(history, given=("offset_runs",), before=before.carried, starts=starts, keep=True)
    suspects.update((row["log_partition"], row["shard"]) for row in result.rows)
    rows = [dict(row) for row in before.found]
    if suspects:
        result = check_again(new.rows(), earlier, before, suspects)
        rows = result.rows
    return result._replace(rows=rows, read=read)


def check_again(
    new: Rows,
    earlier: Callable[[Shards], Batches],
    before: Checkpoint,
    more: Iterable[tuple[int, str]] = (),
    settle_ms: int | None = SETTLE_MS,
) -> Result:
    """Check all events of the shards with new events, and of the shards `more`, in this process. Raises ReplayError.

    `new` has the events after a checkpoint, with COLUMNS. `earlier` returns the events of some shards before it.
    """
    with history_of(new, arrow_schema(COLUMNS)) as history:
        shards = _begin_at(history, before.runs)
        for partition, shard in more:
            shards[partition].add(shard)
        history.register("earlier", pa.RecordBatchReader.from_batches(arrow_schema(COLUMNS), earlier(shards)))
        history.execute("insert into stored_events by name from earlier")
        carried, keep = before.carried, before.carried is not None
        result = check(history, settle_ms=settle_ms, given=("offset_runs",), before=carried, keep=keep)
    found = [dict(row) for row in before.found if row["shard"] not in shards.get(row["log_partition"], ())]
    return result._replace(rows=[*found, *result.rows])


def _begin_at(history: duckdb.DuckDBPyConnection, before: Iterable[Run]) -> dict[int, set[str]]:
    """Create the view `offset_runs` of the runs before and of the new events in `stored_events`. Returns the shards
    that the new events concern, by log partition."""
    create_views(history, only=("offset_runs",))
    runs = (*before, *history.sql("from offset_runs").to_arrow_table().to_pylist())
    history.execute("drop view offset_runs")
    history.register("offset_runs", pa.Table.from_pylist(list(joined(runs)), RUNS))
    shards = {run["log_partition"]: {""} for run in runs}
    for partition, shard in history.execute("select distinct log_partition, shard from stored_events").fetchall():
        shards[partition].add(shard)
    return shards


def check_in_buckets(
    runner: Runner,
    events: Events,
    wanted: Sequence[Invariant] = (),
    limit: int | None = None,
    keep: bool = False,
) -> Result:
    """Check events in buckets of the shards. This process runs the queries of views that need the whole log, such as
    `broker_spans`. Raises ReplayError."""
    every = tuple(wanted) or invariants()
    whole = [one._replace(queries=tuple(filter(rules.is_of_the_log, one.queries))) for one in every]
    rest = [one._replace(queries=tuple(filterfalse(rules.is_of_the_log, one.queries))) for one in every]

    def of_the_log(history: duckdb.DuckDBPyConnection) -> Result:
        runs = history.sql("from offset_runs").to_arrow_table().to_pylist()
        return Result(list(rules.violations(history, whole, limit)), *_extent(history), runs, _NO_EVENTS)

    def checked(bucket: duckdb.DuckDBPyConnection) -> Batches:
        yield pa.RecordBatch.from_pylist(list(rules.violations(bucket, rest, limit)), schema=_FOUND)
        if keep:
            kept = bucket.sql(f"select {_NAMES} from carried_events").to_arrow_table()
            yield from pa.concat_tables(
                [kept.cast(_SCHEMA), _FOUND.empty_table()], promote_options="default"
            ).to_batches()

    result, found = in_buckets(runner, events, of_the_log, checked, _FOUND, _columns(wanted))
    rows = [*result.rows, *found.filter(found["check"].is_valid()).to_pylist()]
    return result._replace(rows=rows, carried=found.filter(found["check"].is_null()).select(COLUMNS))


def _columns(wanted: Sequence[Invariant]) -> Sequence[str]:
    """The columns that checks may read: of users' checks all."""
    return COLUMNS if set(wanted) <= set(invariants()) else tuple(event_columns.COLUMNS)


_T = TypeVar("_T")


def in_buckets(
    runner: Runner,
    events: Events,
    of_the_log: Callable[[duckdb.DuckDBPyConnection], _T],
    of_a_bucket: Callable[[duckdb.DuckDBPyConnection], Batches],
    schema: pa.Schema,
    columns: Sequence[str] = COLUMNS,
) -> tuple[_T, pa.Table]:
    """Run `of_the_log` in this process, on a database with the views OF_THE_LOG, and `of_a_bucket` in a task for each
    bucket of the shards, on a database with all views and these columns of the events. Returns both results, the latter
    as rows with `schema`."""
    settle_ms, summary = SETTLE_MS, runner.fold(events(_CLUSTER.names), _summarized, _SUMMARIZED)
    with history_of(summary.filter(summary["type"].is_valid()).to_batches(), _SUMMARIZED) as history:
        history.register("offset_runs", summary.filter(summary["type"].is_null()).select(RUNS.names))
        create_views(history, settle_ms=settle_ms, tables=OF_THE_LOG[1:], given=OF_THE_LOG[:1], only=OF_THE_LOG)
        tables = {name: history.sql(f"from {name}").to_arrow_table() for name in OF_THE_LOG}
        here = of_the_log(history)
        count, _ = _extent(history)

    def in_task(rows: Rows) -> Batches:
        with history_of(rows, arrow_schema(columns), in_task=True) as bucket:
            for name, table in tables.items():
                bucket.register(name, table)
            create_views(bucket, settle_ms=settle_ms, tables=TABLES - tables.keys(), given=tables)
            yield from of_a_bucket(bucket)

    return here, runner.fold(events(columns), in_task, schema, count // BUCKET_EVENTS + 1)


def _extent(history: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    ((events, log_partitions),) = history.execute(
        "select coalesce(sum(events), 0)::bigint, count(*) from log_extents"
    ).fetchall()
    return events, log_partitions


def _summarized(rows: Rows) -> Batches:
    """The ranges of offsets in some events, and the events that concern every topic."""
    with history_of(rows, _CLUSTER, in_task=True) as part:
        create_views(part, only=("offset_runs",))
        found = part.sql(_SUMMARY).to_arrow_table()
    yield from found.select(_SUMMARIZED.names).cast(_SUMMARIZED).to_batches()
