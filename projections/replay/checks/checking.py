"""Checks the events of a log against invariants with DuckDB: in this process, or in one task for each bucket of shards.

A shard has all events of one shard key, and a bucket some of the shards. The state of one topic never depends on
another, so a bucket can be checked alone, given the few rows that concern every topic (the views `OF_THE_LOG`). With
buckets there are two passes over the events. In the first, each task summarizes its part of the log: ranges of offsets,
and the events that concern every topic. This process computes `OF_THE_LOG` from them. In the second, all events of a
shard go to one task, which checks its bucket with those views. This is the only shuffle, and an export needs none.

Memory: a task has the columns of one bucket, about 500 bytes an event. A shard is never divided.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import filterfalse
from secrets import token_hex  # noqa: TID251 - for the name of a file
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import duckdb
import pyarrow as pa

from projections.replay.checks import rules
from projections.replay.checks.history import COLUMNS, OF_THE_LOG, TABLES, create_views, history_of
from projections.replay.checks.rules import Invariant, invariants
from projections.replay.log import columns as event_columns
from projections.replay.log.columns import arrow_schema
from projections.replay.runner import Batches, Rows, Runner, Source

RUNS = pa.schema(
    [("log_partition", pa.int32()), ("first", pa.int64()), ("last", pa.int64()), ("events", pa.int64()),
     ("end_ms", pa.int64()), ("reconciled_ms", pa.int64()), ("kafka_brokers", pa.bool_())]
)  # fmt: skip
"""The columns of the view `offset_runs`."""
SETTLE_MS = 1000
"""The end of a log is checked only if `ReconcileTopics` wrote no event for this time (`log_ends` in views.sql)."""
BUCKET_EVENTS = 250_000
"""About how many events a task checks at once."""
_SUMMARY = """
from offset_runs
union all by name
select log_partition, "offset", at_ms, topic, type, cause_command, broker_id, broker_epoch, cordoned, settings
from log.events
where of_a_broker(type) or type = 'SettingsChanged'
"""
_CLUSTER = arrow_schema(
    ("log_partition", "offset", "at_ms", "topic", "type", "cause_command", "broker_id", "broker_epoch", "cordoned",
     "settings")
)  # fmt: skip
"""The columns of the events of which `broker_spans` and `cluster_spans` are made."""
_SUMMARIZED = pa.unify_schemas([RUNS, _CLUSTER])
_SCHEMA = arrow_schema(COLUMNS)
FOUND = arrow_schema(
    (*rules.COLUMNS, "times", "at_end"), check=pa.string(), seen=pa.string(), expected=pa.string(), times=pa.int64(),
    at_end=pa.bool_(),
)  # fmt: skip
"""A violation."""
_OF_BUCKET = FOUND.append(pa.field("carried", pa.string()))
"""The rows that a bucket returns: violations, and one with the file of its `carried_events`."""
Events = Callable[[Sequence[str]], Source]
"""The events of a log, with some of their columns."""


class Result(NamedTuple):
    """The violations, the number of events, the number of log partitions, and the rows of `offset_runs`.

    If the check began at a checkpoint, `read` is the number of events that were read.
    """

    rows: list[dict[str, Any]]
    events: int
    log_partitions: int
    runs: pa.Table
    read: int | None = None


class Save(NamedTuple):
    """Stores the result of a check in a folder: `write` gets the database, with `log.events`, `offset_runs` and
    `carried_events`."""

    folder: str
    write: Callable[[duckdb.DuckDBPyConnection, Result], None]


def check(
    history: duckdb.DuckDBPyConnection,
    wanted: Iterable[Invariant] = (),
    limit: int | None = None,
    settle_ms: int | None = SETTLE_MS,
    given: Iterable[str] = (),
    starts: Mapping[int, int] | None = None,
    more: str = "",
) -> Result:
    """Check the events in the table `log.events`; returns at most `limit` violations of each query (None: all), from
    the offsets `starts` on.

    The end of the log is checked after `settle_ms` without events of the reconciler; None: never. The views `given`
    exist already. The SQL `more` runs after the others were created. Raises ReplayError.
    """
    create_views(history, settle_ms=settle_ms, tables=TABLES, given=given)
    history.execute(more)
    return _result(history, rules.violations(history, tuple(wanted) or invariants(), limit, starts))


def _result(history: duckdb.DuckDBPyConnection, rows: Iterable[dict[str, Any]]) -> Result:
    return Result(list(rows), *_extent(history), history.sql("from offset_runs").to_arrow_table())


def check_here(
    events: Events, wanted: Sequence[Invariant] = (), limit: int | None = None, save: Save | None = None
) -> Result:
    """Check events in this process. Raises ReplayError."""
    source = events(_columns(wanted))
    with history_of(source.rows(), source.schema) as history:
        result = check(history, wanted, limit)
        if save is not None:
            save.write(history, result)
    return result


def check_in_buckets(
    runner: Runner, events: Events, wanted: Sequence[Invariant] = (), limit: int | None = None, save: Save | None = None
) -> Result:
    """Check events in buckets of the shards. This process runs the queries of views that need the whole log, such as
    `broker_spans`. Each task writes its `carried_events` to a file, because Java is slow with rows of lists. Raises
    ReplayError."""
    every = tuple(wanted) or invariants()
    whole = [one._replace(queries=tuple(filter(rules.is_of_the_log, one.queries))) for one in every]
    rest = [one._replace(queries=tuple(filterfalse(rules.is_of_the_log, one.queries))) for one in every]

    def of_the_log(history: duckdb.DuckDBPyConnection) -> Result:
        return _result(history, rules.violations(history, whole, limit))

    def checked(bucket: duckdb.DuckDBPyConnection) -> Batches:
        rows = list(rules.violations(bucket, rest, limit))
        if save is not None:
            rows.append({"carried": f"{place}/{token_hex(8)}.parquet"})
            bucket.execute("copy (from carried_events) to ? (format parquet)", [rows[-1]["carried"]])
        yield pa.RecordBatch.from_pylist(rows, schema=_OF_BUCKET)

    with TemporaryDirectory(prefix="_carried-", dir=None if save is None else save.folder) as place:
        result, found = in_buckets(runner, events, of_the_log, checked, _OF_BUCKET, _columns(wanted))
        rows = found.to_pylist()
        result = result._replace(rows=[*result.rows, *(row for row in rows if row["carried"] is None)])
        if save is not None:
            with history_of([], _SCHEMA) as history:
                history.register("offset_runs", result.runs)
                history.read_parquet([row["carried"] for row in rows if row["carried"]]).create_view("carried_events")
                history.execute(f"drop table log.events; create view log.events as {events(COLUMNS).rows()}")
                save.write(history, result)
    return result


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
