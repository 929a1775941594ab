"""Runs `topicwright replay sql`, `shell` and `views`: SQL on the events of a log and on the views in views.sql."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from secrets import token_hex  # noqa: TID251 - for the names of files
from typing import Any

import duckdb
import pyarrow as pa

from projections.replay.checks.checking import SETTLE_MS, in_buckets
from projections.replay.checks.history import OF_THE_LOG, create_views, history_of, statements, views
from projections.replay.export import check_export, events_from
from projections.replay.log.columns import COLUMNS
from projections.replay.log.log_ref import Ref, as_of, ends_of, offsets_row
from projections.replay.outcome import Options, Outcome, ReplayError, Table
from projections.replay.runner import WRITTEN, Batches, InProcess, Runner, check_new, new_folder
from projections.text.wording import many

FILES = (".parquet", ".csv", ".json")
"""The kinds of files that --to may name."""
_TO_THE_END = Options()


def check_sql(ref: Ref, options: Options) -> None:
    """Check that there is a query, that the output file has a known extension, and the export. Raises ReplayError."""
    if not [*statements(options.subject or "")]:
        raise ReplayError("QUERY is empty: write a SELECT, or `show tables`, or `describe TABLE`")
    if options.to is not None and not options.to.endswith(FILES):
        raise ReplayError(f"--to {options.to} must end in {', '.join(FILES)}")
    check_export(ref, options)


check_shell = check_export


@contextmanager
def opened(ref: Ref, options: Options = _TO_THE_END) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database with the events and the views of a log up to a point in time. Raises ReplayError."""
    source = events_from(InProcess(), ref, ends_of(ref, options.at), options)(tuple(COLUMNS))
    with history_of(source.rows(), source.schema) as history:
        create_views(history, settle_ms=SETTLE_MS)
        yield history


def run_shell(_: object, ref: Ref, options: Options) -> Outcome:
    """Run `topicwright replay shell`: print the rows of each query on standard input; a query ends with a semicolon."""
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        import readline  # noqa: F401 - `input` then edits lines and remembers them
    with opened(ref, options) as history:
        text = ""
        while True:
            try:
                text += input(("sql> " if not text.strip() else "...> ") if is_terminal else "") + "\n"
            except EOFError:
                if not text.strip():
                    return Outcome([], False, [])
                text += ";"
            if text.rstrip().endswith(";"):
                try:
                    found = history.sql(text)
                    print("" if found is None else found)
                except duckdb.Error as error:
                    print(error)
                text = ""


def run_sql(_: object, ref: Ref, options: Options) -> Outcome:
    """Run `topicwright replay sql`: the rows of the query `options.subject`, or the written file. Raises ReplayError
    for a query that fails, with the position that DuckDB names."""
    query = (options.subject or "").rstrip("; \n")
    with opened(ref, options) as history:
        try:
            if options.to is not None:
                rows: Any = history.execute(f"copy ({query}) to ?", [options.to]).fetchall()
                return Outcome([], False, [f"{many(rows[0][0], 'row')} written to {options.to}"])
            answer = history.execute(query)
            header = tuple(column[0] for column in answer.description or ())
            rows = answer.fetchall()
        except duckdb.Error as error:
            raise ReplayError(str(error)) from None
    return Outcome(
        [dict(zip(header, row, strict=True)) for row in rows],
        False,
        [many(len(rows), "row")],
        table=Table(header, [["-" if one is None else str(one) for one in row] for row in rows]),
    )


# --- the views as files


def check_views(ref: Ref, options: Options) -> None:
    """Check that the output folder is new, and the export. Raises ReplayError."""
    check_new(ref, options)
    check_export(ref, options)


def run_views(runner: Runner, ref: Ref, options: Options) -> Outcome:
    """Run `topicwright replay views`: write all views up to a point in time to `options.to`, as Parquet in a folder
    for each. A task writes the views of its bucket, this process those of the whole log. Raises ReplayError."""
    ends, folder = ends_of(ref, options.at), Path(options.to or "").absolute()
    names = [view.name for view in views() if view.name not in (None, "causes", "carried_events")]
    of_buckets = [name for name in names if name not in OF_THE_LOG]

    def of_a_bucket(bucket: duckdb.DuckDBPyConnection) -> Batches:
        yield pa.RecordBatch.from_pydict({"file": _write(folder, of_buckets, bucket)}, schema=WRITTEN)

    with new_folder(folder) as files:
        for name in names:
            (folder / name).mkdir()
        of_the_log = partial(_write, folder, OF_THE_LOG)
        events = events_from(runner, ref, ends, options)
        here, there = in_buckets(runner, events, of_the_log, of_a_bucket, WRITTEN)
        files |= {*here, *there["file"].to_pylist()}
    row = {"output": str(folder), **offsets_row(ends), "views": names}
    return Outcome([row], False, [f"{len(names)} views as of {as_of(ends)} are in {folder}"])


def _write(folder: Path, names: Sequence[str], history: duckdb.DuckDBPyConnection) -> list[str]:
    files = [f"{name}/part-{token_hex(8)}.parquet" for name in names]
    for name, file in zip(names, files, strict=True):
        history.execute(f"copy (from {name}) to ? (format parquet)", [str(folder / file)]).fetchall()
    return files
