"""Stores the result of a check as a checkpoint, so that the next check reads only the shards with new events.

The state of one topic never depends on another. So the violations of a topic without new events stay valid, and a topic
with new events is checked again from its first event on. All events that concern every topic are read too; there are
few. A checkpoint has the other inputs of the next check: the ranges of offsets (runs), the violations of topics, and
the partitions that existed, which the checks of the log's end need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from events.files import replacing
from projections.replay.checks.history import COLUMNS, create_views, text_of
from projections.replay.log.columns import arrow_schema
from projections.replay.runner import Batches

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
