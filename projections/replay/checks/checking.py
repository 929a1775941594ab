"""Checks events against invariants with DuckDB: all in this process, or in buckets of the shards.

The state of one topic never depends on another, so a bucket can be checked alone, given the few rows that concern every
topic (the views `OF_THE_LOG`). With buckets there are two passes over the events. In the first, each task summarizes
its part: ranges of offsets, and the events that concern every topic. This process makes the views `OF_THE_LOG` of them.
The second brings the events of each shard to one task (the only shuffle), which checks its bucket given those views.

Memory: a task has the columns of one bucket, about 500 bytes an event. A shard is never divided.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import duckdb
import pyarrow as pa

from projections.replay.checks import rules
from projections.replay.checks.history import OF_THE_LOG, TABLES, create_views, database, load
from projections.replay.checks.rules import Found, Invariant, invariants
from projections.replay.log.columns import arrow_schema
from projections.replay.runner import Batches, Runner, Source

SETTLE_MS = 1000
"""The end of a log is checked only if `ReconcileTopics` wrote no event for this time (`log_ends` in views.sql)."""
BUCKET_EVENTS = 250_000
"""About how many events a task checks at once."""
COLUMNS = (
    "log_partition", "offset", "at_ms", "shard", "topic", "type", "cause_command", "cause_id", "request_id",
    "error_code", "message", "rule", "deadline_ms", "timeout_ms", "num_partitions", "replication_factor", "partition",
    "leader", "isr", "leader_epoch", "partition_epoch", "before", "broker_id", "broker_epoch", "brokers",
    "partitions", "first", "configs", "settings", "assignments", "acls", "entity", "quotas", "removed", "resource",
    "count", "user", "mechanism", "replicas", "elr", "cordoned",
)  # fmt: skip
"""The columns of events that the views read."""
_SUMMARY = """
from offset_runs
union all by name
select log_partition, "offset", at_ms, topic, type, cause_command, broker_id, broker_epoch, cordoned, settings
from stored_events
where type in ('BrokerRegistered', 'BrokerFenced', 'BrokerLeaving', 'BrokerUnfenced', 'BrokerUnregistered',
               'LogDirsChanged', 'SettingsChanged')
"""
_RUNS = pa.schema(
    [("log_partition", pa.int32()), ("first", pa.int64()), ("last", pa.int64()), ("events", pa.int64()),
     ("end_ms", pa.int64()), ("reconciled_ms", pa.int64()), ("kafka_brokers", pa.bool_())]
)  # fmt: skip
_CLUSTER = arrow_schema(
    ("log_partition", "offset", "at_ms", "topic", "type", "cause_command", "broker_id", "broker_epoch", "cordoned",
     "settings")
)  # fmt: skip
"""The columns of the events of which `broker_spans` and `cluster_spans` are made."""
_SUMMARIZED = pa.unify_schemas([_RUNS, _CLUSTER])
_FOUND = pa.schema(
    [("log_partition", pa.int32()), ("shard", pa.string()), ("offset", pa.int64()), ("topic", pa.string()),
     ("check", pa.string()), ("seen", pa.string()), ("expected", pa.string()), ("times", pa.int64())]
)  # fmt: skip
_WHOLE = re.compile(rf"\b({'|'.join(OF_THE_LOG)})\b")


Events = Callable[[Sequence[str]], Source]
"""The events of a log, with some of their columns."""


class Checked(NamedTuple):
    """The broken invariants, and how many events were checked in how many log partitions."""

    found: list[Found]
    events: int
    log_partitions: int


def check(
    history: duckdb.DuckDBPyConnection,
    wanted: Iterable[Invariant] = (),
    limit: int | None = None,
    settle_ms: int | None = SETTLE_MS,
    given: Iterable[str] = (),
) -> Checked:
    """Check the events in `stored_events` of a database; of each query the first `limit` violations (all for None).

    The end of the log is checked after `settle_ms` without events of the reconciler; None: never. The views `given`
    exist already. Raises ReplayError.
    """
    every = tuple(wanted) or invariants()
    create_views(history, settle_ms=settle_ms, tables=TABLES, given=given)
    return Checked(rules.together(rules.violations(history, every, limit), every, limit), *_extent(history))


def check_here(events: Events, wanted: Iterable[Invariant] = (), limit: int | None = None) -> Checked:
    """Check events in this process. Raises ReplayError."""
    source = events(COLUMNS)
    with database() as history:
        load(history, source.batches(), source.schema)
        return check(history, wanted, limit)


def check_in_buckets(
    runner: Runner,
    events: Events,
    wanted: Sequence[Invariant] = (),
    limit: int | None = None,
    settle_ms: int | None = SETTLE_MS,
    buckets: int | None = None,
) -> Checked:
    """The same in so many buckets of the shards (default: by the number of events). This process runs the queries of
    views that a bucket does not have, such as `broker_spans`. Raises ReplayError."""
    every = tuple(wanted) or invariants()
    whole = [one._replace(queries=tuple(query for query in one.queries if _WHOLE.search(query))) for one in every]
    rest = [one._replace(queries=tuple(query for query in one.queries if not _WHOLE.search(query))) for one in every]
    summary = runner.fold(events(_CLUSTER.names), _summarized, _SUMMARIZED)
    with database() as history:
        load(history, summary.filter(summary["type"].is_valid()).to_batches(), _SUMMARIZED)
        history.register("offset_runs", summary.filter(summary["type"].is_null()).select(_RUNS.names))
        create_views(history, settle_ms=settle_ms, tables=OF_THE_LOG[1:], given=OF_THE_LOG[:1], only=OF_THE_LOG)
        tables = {name: history.sql(f"from {name}").to_arrow_table() for name in OF_THE_LOG}
        rows = list(rules.violations(history, whole, limit))
        count, log_partitions = _extent(history)

    def checked(batches: Batches) -> Batches:
        with database(threads=1) as bucket:
            load(bucket, batches, arrow_schema(COLUMNS))
            for name, table in tables.items():
                bucket.register(name, table)
            create_views(bucket, settle_ms=settle_ms, tables=TABLES - tables.keys(), given=tables)
            yield pa.RecordBatch.from_pylist(list(rules.violations(bucket, rest, limit)), schema=_FOUND)

    by, buckets = ("log_partition", "shard"), buckets or count // BUCKET_EVENTS + 1
    found = runner.fold(events(COLUMNS), checked, _FOUND, by=by, buckets=buckets)
    return Checked(rules.together([*rows, *found.to_pylist()], every, limit), count, log_partitions)


def offset_runs(history: duckdb.DuckDBPyConnection) -> pa.Table:
    """The view of this name, of the events in `stored_events`; the database then has no views."""
    create_views(history, only=("offset_runs",))
    runs = history.sql("from offset_runs").to_arrow_table()
    history.execute("drop view offset_runs")
    return runs


def _extent(history: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    extents = history.execute("select coalesce(sum(events), 0)::bigint, count(*) from log_extents").fetchone()
    return extents or (0, 0)


def _summarized(batches: Batches) -> Batches:
    """The ranges of offsets in some events, and the events that concern every topic."""
    with database(threads=1) as part:
        load(part, batches, _CLUSTER)
        create_views(part, only=("offset_runs",))
        found = part.sql(_SUMMARY).to_arrow_table()
    yield from found.select(_SUMMARIZED.names).cast(_SUMMARIZED).to_batches()
