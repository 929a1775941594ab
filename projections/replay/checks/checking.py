"""Checks the events of a log against invariants with DuckDB: in this process, or in one task for each bucket of shards.

A shard has all events of one shard key, and a bucket some of the shards. The state of one topic never depends on
another, so a bucket can be checked alone, given the few rows that concern every topic (the views `OF_THE_LOG`). With
buckets there are two passes over the events. In the first, each task summarizes its part of the log: ranges of offsets,
and the events that concern every topic. This process computes `OF_THE_LOG` from them. In the second, all events of a
shard go to one task, which checks its bucket with those views. This is the only shuffle, and an export needs none.

A checkpoint stores the result of a check, so that the next check reads only the shards with new events. The violations
of a topic without new events stay valid, and a topic with new events is checked again from its first event on. So a
checkpoint has the ranges of offsets that were read (runs), the violations of topics, and the partitions that existed at
its end, which the checks of the log's end need.

Memory: a task has the columns of one bucket, about 500 bytes an event. A shard is never divided.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from events.files import replacing
from projections.replay.checks import rules
from projections.replay.checks.history import COLUMNS, OF_THE_LOG, TABLES, create_views, history_of, text_of
from projections.replay.checks.rules import Invariant, invariants
from projections.replay.log.columns import arrow_schema
from projections.replay.runner import Batches, Runner, Source

Shards = Mapping[int, set[str]]
"""Shard keys by log partition."""
Run = Mapping[str, Any]
"""A row of the view `offset_runs`."""
OPEN = arrow_schema(("log_partition", "shard", "offset", "topic", "partition", "replicas", "leader", "isr"))
"""The columns of the view `open_partitions`."""
RUNS = pa.schema(
    [("log_partition", pa.int32()), ("first", pa.int64()), ("last", pa.int64()), ("events", pa.int64()),
     ("end_ms", pa.int64()), ("reconciled_ms", pa.int64()), ("kafka_brokers", pa.bool_())]
)  # fmt: skip
"""The columns of the view `offset_runs`."""
FOUND_MAX = 10_000
"""Maximum number of violations in a checkpoint."""
_ABOUT = b"topicwright"


class Checkpoint(NamedTuple):
    """The result of a check that the next check continues from: the offset ranges that it read (`runs`), the violations
    that are final (`found`: those of single topics, without those that later events may resolve), and the partitions
    that existed at its end."""

    runs: tuple[Run, ...]
    found: tuple[Mapping[str, Any], ...]
    partitions: pa.Table


def rules_hash(cluster_id: str) -> str:
    """The hash of the views, the invariants and a log's cluster id. A checkpoint with another hash is ignored."""
    return sha256("\n".join((cluster_id, text_of("views.sql"), text_of("invariants.sql"))).encode()).hexdigest()


def write_checkpoint(
    file: Path, rules: str, runs: Iterable[Run], rows: Iterable[Mapping[str, Any]], partitions: pa.Table
) -> None:
    """Write the checkpoint of a check by the rules with the hash `rules`. Remove it instead if the check found more
    than FOUND_MAX violations."""
    found = tuple({**row, "times": 1} for row in rows if row["shard"] and not row["at_end"])
    if len(found) > FOUND_MAX:
        file.unlink(missing_ok=True)
        return
    about = msgspec.json.encode((rules, joined(runs), found))
    with replacing(file) as new:
        pq.write_table(partitions.replace_schema_metadata({_ABOUT: about}), new)


def read_checkpoint(file: Path, rules: str) -> Checkpoint | None:
    """The checkpoint in a file; None if the file is missing or was written with other rules."""
    if not file.exists():
        return None
    partitions = pq.read_table(file)
    about = (partitions.schema.metadata or {})[_ABOUT]
    of_rules, runs, found = msgspec.json.decode(about, type=tuple[str, tuple[Run, ...], tuple[Mapping[str, Any], ...]])
    return Checkpoint(runs, found, partitions) if of_rules == rules else None


def complete(
    history: duckdb.DuckDBPyConnection,
    before: Iterable[Run],
    earlier: Callable[[Shards], Batches],
    more: Iterable[tuple[int, str]],
) -> Shards:
    """Insert the earlier events of all shards that have new events, and of the shards `more`, into `stored_events`, and
    create the view `offset_runs` of all events. Returns these shards."""
    create_views(history, only=("offset_runs",))
    runs = (*before, *history.sql("from offset_runs").to_arrow_table().to_pylist())
    history.execute("drop view offset_runs")
    shards: dict[int, set[str]] = {run["log_partition"]: {""} for run in runs}
    new = history.execute("select distinct log_partition, shard from stored_events").fetchall()
    for partition, shard in (*new, *more):
        shards[partition].add(shard)
    history.register("earlier", pa.RecordBatchReader.from_batches(arrow_schema(COLUMNS), earlier(shards)))
    history.execute("insert into stored_events by name from earlier")
    history.register("offset_runs", pa.Table.from_pylist(list(joined(runs)), RUNS))
    return shards


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
_FOUND = pa.unify_schemas(
    [OPEN, pa.schema([("check", pa.string()), ("seen", pa.string()), ("expected", pa.string()), ("times", pa.int64()),
                      ("at_end", pa.bool_())])]
)  # fmt: skip
"""The rows that a bucket returns: violations, and the partitions that exist at the end (`check` is null)."""
_OPEN = f"""select {", ".join(f'"{name}"' for name in OPEN.names)},
  {", ".join(f'null as "{name}"' for name in _FOUND.names[len(OPEN) :])} from open_partitions"""
_WHOLE = re.compile(rf"\b({'|'.join(OF_THE_LOG)})\b")


Events = Callable[[Sequence[str]], Source]
"""The events of a log, with some of their columns."""


class Result(NamedTuple):
    """The violations, the number of events, and the number of log partitions.

    `runs` and `partitions` are the rows of `offset_runs` and `open_partitions`, for a checkpoint. If the check began at
    a checkpoint, `read` is the number of events that were read.
    """

    rows: list[dict[str, Any]]
    events: int
    log_partitions: int
    runs: Sequence[Run]
    partitions: pa.Table
    read: int | None = None


def check(
    history: duckdb.DuckDBPyConnection,
    wanted: Iterable[Invariant] = (),
    limit: int | None = None,
    settle_ms: int | None = SETTLE_MS,
    given: Iterable[str] = (),
    others: pa.Table | None = None,
) -> Result:
    """Check the events in the table `stored_events`; returns at most `limit` violations of each query (None: all).

    The end of the log is checked after `settle_ms` without events of the reconciler; None: never. The views `given`
    exist already. `others` are the open partitions of an earlier check; those of shards without events here are added.
    Raises ReplayError.
    """
    create_views(history, settle_ms=settle_ms, tables=TABLES, given=given)
    if others is not None:
        history.register("others", others)
        untouched = "from others anti join stored_events using (log_partition, shard)"
        history.execute(f"insert into open_partitions by name {untouched}")
    rows = list(rules.violations(history, tuple(wanted) or invariants(), limit))
    runs, partitions = (history.sql(f"from {name}").to_arrow_table() for name in ("offset_runs", "open_partitions"))
    return Result(rows, *_extent(history), runs.to_pylist(), partitions.cast(OPEN))


def check_here(events: Events, wanted: Iterable[Invariant] = (), limit: int | None = None) -> Result:
    """Check events in this process. Raises ReplayError."""
    source = events(COLUMNS)
    with history_of(source.batches(), source.schema) as history:
        return check(history, wanted, limit)


def check_growth(
    new: Batches,
    earlier: Callable[[Shards], Batches],
    before: Checkpoint,
    last: Iterable[tuple[int, str]] = (),
    settle_ms: int | None = SETTLE_MS,
) -> Result:
    """Check the events after a checkpoint, in this process. Raises ReplayError.

    `new` has these events, with COLUMNS. `earlier` returns the events of some shards before the checkpoint. `last` are
    the shards of the newest events before it. They are checked again, because the earlier check may have ended in the
    middle of a decision.
    """
    with history_of(new, arrow_schema(COLUMNS)) as history:
        shards = complete(history, before.runs, earlier, last)
        result = check(history, settle_ms=settle_ms, given=("offset_runs",), others=before.partitions)
        ((read,),) = history.execute("select count(*) from stored_events").fetchall()
    found = [dict(row) for row in before.found if row["shard"] not in shards.get(row["log_partition"], ())]
    return result._replace(rows=[*found, *result.rows], read=read)


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
    whole = [one._replace(queries=tuple(query for query in one.queries if _WHOLE.search(query))) for one in every]
    rest = [one._replace(queries=tuple(query for query in one.queries if not _WHOLE.search(query))) for one in every]

    def of_the_log(history: duckdb.DuckDBPyConnection) -> Result:
        runs = history.sql("from offset_runs").to_arrow_table().to_pylist()
        return Result(list(rules.violations(history, whole, limit)), *_extent(history), runs, OPEN.empty_table())

    def checked(bucket: duckdb.DuckDBPyConnection) -> Batches:
        yield pa.RecordBatch.from_pylist(list(rules.violations(bucket, rest, limit)), schema=_FOUND)
        if keep:
            yield from bucket.sql(_OPEN).to_arrow_table().cast(_FOUND).to_batches()

    result, found = in_buckets(runner, events, of_the_log, checked, _FOUND)
    violated = found["check"].is_valid()
    rows = [*result.rows, *found.filter(violated).to_pylist()]
    return result._replace(rows=rows, partitions=found.filter(pc.invert(violated)).select(OPEN.names))


_T = TypeVar("_T")


def in_buckets(
    runner: Runner,
    events: Events,
    of_the_log: Callable[[duckdb.DuckDBPyConnection], _T],
    of_a_bucket: Callable[[duckdb.DuckDBPyConnection], Batches],
    schema: pa.Schema,
) -> tuple[_T, pa.Table]:
    """Run `of_the_log` in this process, on a database with the views OF_THE_LOG, and `of_a_bucket` in a task for each
    bucket of the shards, on a database with all views. Returns both results, the latter as rows with `schema`."""
    settle_ms, summary = SETTLE_MS, runner.fold(events(_CLUSTER.names), _summarized, _SUMMARIZED)
    with history_of(summary.filter(summary["type"].is_valid()).to_batches(), _SUMMARIZED) as history:
        history.register("offset_runs", summary.filter(summary["type"].is_null()).select(RUNS.names))
        create_views(history, settle_ms=settle_ms, tables=OF_THE_LOG[1:], given=OF_THE_LOG[:1], only=OF_THE_LOG)
        tables = {name: history.sql(f"from {name}").to_arrow_table() for name in OF_THE_LOG}
        here = of_the_log(history)
        count, _ = _extent(history)

    def in_task(batches: Batches) -> Batches:
        with history_of(batches, arrow_schema(COLUMNS), threads=1) as bucket:
            for name, table in tables.items():
                bucket.register(name, table)
            create_views(bucket, settle_ms=settle_ms, tables=TABLES - tables.keys(), given=tables)
            yield from of_a_bucket(bucket)

    return here, runner.fold(events(COLUMNS), in_task, schema, count // BUCKET_EVENTS + 1)


def _extent(history: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    ((events, log_partitions),) = history.execute(
        "select coalesce(sum(events), 0)::bigint, count(*) from log_extents"
    ).fetchall()
    return events, log_partitions


def _summarized(batches: Batches) -> Batches:
    """The ranges of offsets in some events, and the events that concern every topic."""
    with history_of(batches, _CLUSTER, threads=1) as part:
        create_views(part, only=("offset_runs",))
        found = part.sql(_SUMMARY).to_arrow_table()
    yield from found.select(_SUMMARIZED.names).cast(_SUMMARIZED).to_batches()
