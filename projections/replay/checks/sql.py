"""Answers queries in SQL about a log: of `events`, one row each, and of the views in views.sql. Spark is not needed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb

from projections.replay.checks.checking import SETTLE_MS
from projections.replay.checks.history import create_views, database, load
from projections.replay.log.columns import COLUMNS
from projections.replay.log.log_ref import Ref, ends_of
from projections.replay.outcome import Options, Outcome, ReplayError, Table
from projections.replay.runner import events_of
from projections.text.wording import many

FILES = (".parquet", ".csv", ".json")
"""The kinds of files that --output may name."""


def check_sql(_: Ref, options: Options) -> None:
    """Check that the output file has a known extension. Raises ReplayError."""
    if options.output is not None and not options.output.endswith(FILES):
        raise ReplayError(f"--output {options.output} must end in {', '.join(FILES)}")


@contextmanager
def opened(ref: Ref, at: str | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database with the events and the views of a log up to a point in time. Raises ReplayError."""
    source = events_of(ref, ends_of(ref, at), tuple(COLUMNS))
    with database() as history:
        load(history, source.batches(), source.schema)
        create_views(history, settle_ms=SETTLE_MS)
        yield history


def run_shell(_: object, ref: Ref, options: Options) -> Outcome:
    """Run `topicwright replay shell`: print the rows of each query on standard input; a query ends with a semicolon."""
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        import readline  # noqa: F401 - `input` then edits lines and remembers them
    with opened(ref, options.at) as history:
        text = ""
        while True:
            try:
                text += input(("sql> " if not text.strip() else "...> ") if is_terminal else "") + "\n"
            except EOFError:
                return Outcome([], False, [])
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
    with opened(ref, options.at) as history:
        try:
            if options.output is not None:
                rows: Any = history.execute(f"copy ({options.subject}) to ?", [options.output]).fetchall()
                return Outcome([], False, [f"{many(rows[0][0], 'row')} written to {options.output}"])
            answer = history.execute(options.subject or "")
            header = tuple(column[0] for column in answer.description or ())
            rows = answer.fetchall()
        except duckdb.Error as error:
            raise ReplayError(str(error)) from None
    return Outcome(
        [dict(zip(header, row, strict=True)) for row in rows],
        False,
        [many(len(rows), "row")],
        table=Table(header, [[_text(one) for one in row] for row in rows]),
    )


def _text(one: object) -> str:
    return "-" if one is None else str(one)
