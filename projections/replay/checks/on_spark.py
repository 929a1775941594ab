"""Checks the invariants with Spark: DuckDB evaluates them in the tasks, each for a bucket of the shards.

Two passes over the events. In the first, each task summarizes its events: ranges of offsets, and the few events that
concern every topic. The driver makes the tables `OF_THE_LOG` of them. The second brings the events of each shard to one
task (the only shuffle), which judges its bucket given those tables.

Memory: a task has the columns of one bucket, about 500 bytes an event. A shard is never divided.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame

from projections.replay.checks import rules
from projections.replay.checks.history import OF_THE_LOG, TABLES, create_views, database, load
from projections.replay.checks.invariants import COLUMNS, RUN_COLUMNS, SETTLE_MS, Checked, offset_runs
from projections.replay.checks.rules import Invariant
from projections.replay.spark.columns import arrow_schema, ddl
from projections.replay.spark.mapping import map_in_arrow

BUCKET_EVENTS = 250_000
"""About how many events a task judges at once."""
Batches = Iterator[pa.RecordBatch]
_OF_CLUSTER = (
    "BrokerRegistered", "BrokerFenced", "BrokerLeaving", "BrokerUnfenced", "BrokerUnregistered", "LogDirsChanged",
    "SettingsChanged",
)  # fmt: skip
"""The events of which `broker_spans` and `cluster_spans` are made."""
_CLUSTER = (*RUN_COLUMNS, "broker_id", "broker_epoch", "cordoned", "settings")
_RUNS = pa.schema(
    [("log_partition", pa.int32()), ("first", pa.int64()), ("last", pa.int64()), ("events", pa.int64()),
     ("end_ms", pa.int64()), ("reconciled_ms", pa.int64()), ("kafka_brokers", pa.bool_())]
)  # fmt: skip
_FOUND = pa.schema(
    [("log_partition", pa.int32()), ("shard", pa.string()), ("offset", pa.int64()), ("topic", pa.string()),
     ("check", pa.string()), ("seen", pa.string()), ("expected", pa.string()), ("times", pa.int64())]
)  # fmt: skip
_WHOLE = re.compile(rf"\b({'|'.join(OF_THE_LOG)})\b")


def check_frame(
    events: DataFrame,
    wanted: Sequence[Invariant] = (),
    limit: int | None = None,
    settle_ms: int | None = SETTLE_MS,
    buckets: int | None = None,
) -> Checked:
    """Check the events in a frame, as `invariants.check` does, in so many buckets of the shards (default: by their
    number). A query of a view that a bucket does not have, such as `broker_spans`, runs on the driver. Raises
    ReplayError.
    """
    every = tuple(wanted) or rules.invariants()
    of_log, of_buckets = _divided(every)
    runs = map_in_arrow(events.select(*RUN_COLUMNS), _runs, ddl(_RUNS)).toArrow()
    cluster = events.where(f"type in {_OF_CLUSTER}").select(*_CLUSTER).toArrow()
    with database() as history:
        load(history, cluster.to_batches(), cluster.schema)
        history.register("offset_runs", runs)
        create_views(history, settle_ms=settle_ms, tables=OF_THE_LOG[1:], given=OF_THE_LOG[:1], only=OF_THE_LOG)
        tables = {name: history.sql(f"from {name}").to_arrow_table() for name in OF_THE_LOG}
        rows = list(rules.violations(history, of_log, limit))
        count, partitions = history.execute("select sum(events)::bigint, count(*) from log_extents").fetchone() or (
            0,
            0,
        )

    def judged(batches: Batches) -> Batches:
        with database(threads=1) as bucket:
            load(bucket, batches, arrow_schema(COLUMNS))
            for name, table in tables.items():
                bucket.register(name, table)
            create_views(bucket, settle_ms=settle_ms, tables=TABLES - tables.keys(), given=tables)
            found = list(rules.violations(bucket, of_buckets, limit))
        yield pa.RecordBatch.from_pylist(found, schema=_FOUND)

    divided = events.select(*COLUMNS).repartition(buckets or int(count) // BUCKET_EVENTS + 1, "log_partition", "shard")
    rows += map_in_arrow(divided, judged, ddl(_FOUND)).toArrow().to_pylist()
    return Checked(rules.together(rows, every, limit), int(count), partitions)


def _runs(batches: Batches) -> Batches:
    """The ranges of offsets in some events."""
    yield from offset_runs(batches, arrow_schema(RUN_COLUMNS)).cast(_RUNS).to_batches()


def _divided(every: Sequence[Invariant]) -> tuple[list[Invariant], list[Invariant]]:
    """The queries that the driver runs, and those that run in each bucket."""
    whole = [one._replace(queries=tuple(query for query in one.queries if _WHOLE.search(query))) for one in every]
    rest = [one._replace(queries=tuple(query for query in one.queries if not _WHOLE.search(query))) for one in every]
    return whole, rest
