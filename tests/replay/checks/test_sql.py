"""Queries in SQL about a log: rows, files, and what is refused. docs/invariants.md is as the SQL files say."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from projections.replay.checks.history import views
from projections.replay.checks.rules import page
from projections.replay.checks.sql import check_sql, run_sql
from projections.replay.log.log_ref import LogRef
from projections.replay.outcome import Options, ReplayError
from tests.machine.audit.planted import clean
from tests.replay.written import written
from tests.support.tools import ROOT


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> LogRef:
    """The clean log in a folder."""
    return written(tmp_path_factory.mktemp("sql") / "data", clean())


def test_a_query_of_events_and_views(log: LogRef) -> None:
    query = """select topic, until - since as events from topic_lives where topic = 'hand' order by since"""
    outcome = run_sql(None, log, Options(subject=query))
    assert [row["topic"] for row in outcome.rows] == ["hand", "hand"]
    assert outcome.table is not None
    assert outcome.table.header == ("topic", "events")
    (counted,) = run_sql(None, log, Options(subject="select count(*) as n from events", at="9")).rows
    assert counted == {"n": 10}


@pytest.mark.parametrize("name", [view.name for view in views() if view.name])
def test_every_view_can_be_queried(log: LogRef, name: str) -> None:
    assert run_sql(None, log, Options(subject=f"select count(*) as n from {name}")).rows[0]["n"] >= 0


def test_rows_go_to_a_file(log: LogRef, tmp_path: Path) -> None:
    file = tmp_path / "types.parquet"
    outcome = run_sql(None, log, Options(subject="select distinct type from events", output=str(file)))
    assert outcome.lines == [f"{len(pq.read_table(file))} rows written to {file}"]


def test_invalid_sql_names_its_position(log: LogRef) -> None:
    with pytest.raises(ReplayError, match=r"(?s)Binder Error.*nam.*LINE 1"):
        run_sql(None, log, Options(subject="select nam from events"))
    with pytest.raises(ReplayError, match=r"must end in .parquet, .csv, .json"):
        check_sql(log, Options(subject="select 1", output="rows.xml"))


def test_the_page_is_as_the_files_say() -> None:
    assert (ROOT / "docs/invariants.md").read_text() == page(), "python -m projections.replay.checks.rules > docs/…"
