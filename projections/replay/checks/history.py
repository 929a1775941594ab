"""Loads the events of a log into a DuckDB database (a history), and creates the views of views.sql over them.

DuckDB runs in this process and spills to disk if memory does not suffice. A Spark task uses the same code for a bucket
of the shards.

Non-goal: reading logs. `history_of` gets the events as Arrow batches from its caller.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from itertools import chain
from tempfile import TemporaryDirectory
from typing import NamedTuple

import duckdb
import pyarrow as pa

from projections.replay.outcome import ReplayError

COLUMNS = (
    "log_partition", "offset", "at_ms", "shard", "topic", "type", "cause_command", "cause_id", "request_id",
    "error_code", "message", "rule", "deadline_ms", "timeout_ms", "num_partitions", "replication_factor", "partition",
    "leader", "isr", "leader_epoch", "partition_epoch", "before", "broker_id", "broker_epoch", "brokers",
    "partitions", "first", "configs", "settings", "assignments", "acls", "entity", "quotas", "removed", "resource",
    "count", "user", "mechanism", "replicas", "elr", "cordoned",
)  # fmt: skip
"""The columns of events that the views read."""
TABLES = frozenset(
    {"broker_spans", "cluster_spans", "offset_runs", "log_extents", "cluster_blocks", "log_ends", "topic_events",
     "topic_lives", "ready_topics", "requests", "partition_steps", "open_partitions"}
)  # fmt: skip
"""The views that are computed once if all invariants are checked, because several queries read them."""
OF_THE_LOG = ("offset_runs", "broker_spans", "cluster_spans", "log_extents", "cluster_blocks", "log_ends")
"""The views that need the events of the whole log. Checks of one bucket get them as tables."""
_EVENTS = """
create or replace view events as
select *, cause_command in ('AdoptMetadata', 'FollowController') as external,
       cause_command = 'ReconcileTopics' as reconciled
from log.events;
create or replace view log.shard_events as from main.events where topic is not null
"""
TASK_MEMORY = "512MB"
"""With this, a task whose bucket has a topic of a million events stays below 1 GiB."""
_VIEW = re.compile(r"create view (\w+) as")


class View(NamedTuple):
    """A statement of views.sql: the view that it creates (None for a macro), and its comment."""

    name: str | None
    about: str
    sql: str


def statements(text: str) -> Iterator[tuple[str, str, bool]]:
    """The statements in a text, each with the comment before it; true if it is a query, which changes nothing. Raises
    ReplayError for invalid SQL."""
    try:
        found = duckdb.extract_statements(text)
    except duckdb.Error as error:
        raise ReplayError(str(error)) from None
    for one in found:
        lines = one.query.strip().splitlines()
        first = next((n for n, line in enumerate(lines) if line.strip() and not line.startswith("--")), len(lines))
        comment = "\n".join(line.removeprefix("--").removeprefix(" ") for line in lines[:first])
        sql, is_query = "\n".join(lines[first:]).rstrip("; \n"), one.type == duckdb.StatementType.SELECT
        yield comment.strip(), sql, is_query


@cache
def views() -> tuple[View, ...]:
    """The views, in the order in which they are created."""
    found = statements(text_of("views.sql"))
    return tuple(View(named[1] if (named := _VIEW.match(sql)) else None, about, sql) for about, sql, _ in found)


def text_of(name: str) -> str:
    """A file of this package, which may be in a zip that Spark sent to a worker."""
    return files("projections.replay.checks").joinpath(name).read_text()


@contextmanager
def history_of(
    events: Iterable[pa.RecordBatch] | str, schema: pa.Schema, in_task: bool = False
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A new database in memory, which spills to a temporary folder, with the events in a table `log.events`. They come
    as batches, or from a query. Without any batch the table is empty, with `schema`. A task uses one thread, and
    TASK_MEMORY before it spills; otherwise DuckDB takes up to 80 % of the machine's memory.

    Raises ReplayError for an event that DuckDB cannot store, because a map has a duplicate key, and errors of reading.
    """
    with TemporaryDirectory(prefix="topicwright-replay-") as folder, duckdb.connect() as history:
        history.execute("set temp_directory = ?", [folder])
        history.execute("set preserve_insertion_order = false; set checkpoint_threshold = '1TB'")
        if in_task:
            history.execute(f"set threads = 1; set memory_limit = '{TASK_MEMORY}'")
        query, failures = events if isinstance(events, str) else "from read", list[Exception]()
        if not isinstance(events, str):
            left: Iterator[pa.RecordBatch] = iter(events)
            first = next(left, pa.RecordBatch.from_pylist([], schema=schema))
            batches = _recorded(chain([first], left), failures)
            history.register("read", pa.RecordBatchReader.from_batches(first.schema, batches))
        try:
            history.execute(f"create schema log; create table log.events as {query}")
        except duckdb.InvalidInputException as error:
            if failures:
                raise failures[0] from None
            raise ReplayError(f"an event is damaged, and DuckDB cannot load it: {error}") from None
        history.unregister("read")  # `show tables` would list it
        yield history


def _recorded(batches: Iterator[pa.RecordBatch], failures: list[Exception]) -> Iterator[pa.RecordBatch]:
    """Record an error of reading, because DuckDB raises another one with a stack trace in its text."""
    try:
        yield from batches
    except Exception as error:
        failures.append(error)
        raise


def create_views(
    history: duckdb.DuckDBPyConnection,
    settle_ms: int | None = None,
    tables: Iterable[str] = (),
    given: Iterable[str] = (),
    only: Iterable[str] | None = None,
) -> None:
    """Create the views over `log.events`. The views in `tables` are computed now and stored as tables. Those in
    `given` exist already.

    The end of a log is checked only if the reconciler wrote nothing for `settle_ms` (None: never). With `only`, no
    other view is created.
    """
    history.execute(f"set variable settle_ms = {'null::bigint' if settle_ms is None else settle_ms}")
    history.execute(_EVENTS)
    computed, existing, wanted = frozenset(tables), frozenset(given), None if only is None else frozenset(only)
    for view in views():
        if view.name in existing or (view.name is not None and wanted is not None and view.name not in wanted):
            continue
        kind = "table" if view.name in computed else "view"
        history.execute(view.sql.replace("create view", f"create or replace {kind}", 1))
