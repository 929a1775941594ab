"""SQL queries about a log: rows, files, and rejected queries. docs/invariants.md matches the SQL files."""

import io
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from events.catalog import CreateRequested, Recorded
from projections.replay.checks.history import views
from projections.replay.checks.rules import page
from projections.replay.checks.sql import check_sql, check_views, opened, run_shell, run_sql, run_views
from projections.replay.log.log_ref import LogRef
from projections.replay.outcome import Options, ReplayError
from projections.replay.runner import InProcess
from projections.views.requests import RequestView, request_view
from tests.machine.audit.planted import clean
from tests.machine.rig import fold
from tests.replay.written import records_of, written
from tests.support.tools import ROOT


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> LogRef:
    """The clean log in a folder."""
    return written(tmp_path_factory.mktemp("sql") / "data", clean())


def test_sql_queries_events_and_views(log: LogRef) -> None:
    query = """select topic, until - since as events from topic_lives where topic = 'hand' order by since"""
    outcome = run_sql(None, log, Options(subject=query))
    assert [row["topic"] for row in outcome.rows] == ["hand", "hand"]
    assert outcome.table is not None
    assert outcome.table.header == ("topic", "events")
    (counted,) = run_sql(None, log, Options(subject="select count(*) as n from events", at="9")).rows
    assert counted == {"n": 10}
    tables = {row["name"] for row in run_sql(None, log, Options(subject="show tables")).rows}
    assert tables == {"events", *(view.name for view in views() if view.name is not None)}


def test_broker_spans_and_requests_equal_the_state_at_each_point_in_time(log: LogRef) -> None:
    records = records_of(log)
    for at in range(0, len(records), 9):
        with opened(log, Options(at=str(at))) as history:
            ((end,),) = history.execute('select max("offset") + 1 from events').fetchall()
            brokers = "select broker_id, live from broker_spans where until = forever() and registered order by 1"
            spans = history.execute(brokers).fetchall()
            requests = history.execute("select request_id, topic, answered_with from requests").fetchall()
        state = fold(records[:end])
        assert spans == [(one, not broker.fenced) for one, broker in sorted(state.cluster.brokers.items())], end
        ids = {record.event.request_id for record in records[:end] if isinstance(record.event, CreateRequested)}
        views = [view_of_request(records[:end], one) for one in ids]
        known = {(view.request_id, topic.topic, topic.code) for view in views for topic in view.topics}
        assert {one for one in requests if one[0] in ids} == known, end


def view_of_request(records: list[Recorded], request_id: str) -> RequestView:
    view = request_view(one for one in records if getattr(one.event, "request_id", None) == request_id)
    assert view is not None
    return view


def test_every_view_can_be_queried_and_is_exported_as_parquet(log: LogRef, tmp_path: Path) -> None:
    run_views(InProcess(), log, Options(to=str(tmp_path / "views")))
    with opened(log) as history:
        for view in views():
            if view.name not in (None, "causes", "carried_events"):
                ((count,),) = history.execute(f"select count(*) from {view.name}").fetchall()
                assert len(pq.read_table(tmp_path / "views" / str(view.name))) == count, view.name
    with pytest.raises(ReplayError, match="already exists: name a new folder"):
        check_views(log, Options(to=str(tmp_path / "views")))


def test_sql_shell_continues_after_an_error(
    log: LogRef, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("select nam\nfrom events;\nselect count(*) as n from broker_spans"))
    assert run_shell(None, log, Options()).lines == []
    said = capsys.readouterr().out
    assert 'Candidate bindings: "' in said
    assert "int64" in said.partition("Binder Error")[2]


def test_on_call_notebook_queries_return_rows(history: LogRef, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPICWRIGHT_LOG", history.text)
    notebook = json.loads((ROOT / "examples/notebook/on_call.ipynb").read_text())
    cells = ["".join(one["source"]) for one in notebook["cells"] if one["cell_type"] == "code"]
    answers: list[int] = []
    names: dict[str, Any] = {"display": lambda shown: answers.append(len(shown.fetchall()))}
    for cell in cells:
        exec(cell, names)
    assert [count > 0 for count in answers] == [True, True, True, False, True, True, True], "all replicas are in sync"


def test_query_result_is_written_to_a_file(log: LogRef, tmp_path: Path) -> None:
    file = tmp_path / "types.parquet"
    outcome = run_sql(None, log, Options(subject="select distinct type from events;", to=str(file)))
    assert outcome.lines == [f"{len(pq.read_table(file))} rows written to {file}"]


def test_an_invalid_sql_query_reports_its_position(log: LogRef) -> None:
    with pytest.raises(ReplayError, match=r"(?s)Binder Error.*nam.*LINE 1"):
        run_sql(None, log, Options(subject="select nam from events"))
    with pytest.raises(ReplayError, match=r"must end in .parquet, .csv, .json"):
        check_sql(log, Options(subject="select 1", to="rows.xml"))
    for empty in ("", " ; ", "-- nothing"):
        with pytest.raises(ReplayError, match="QUERY is empty"):
            check_sql(log, Options(subject=empty))


def test_invariants_page_matches_the_sql_files() -> None:
    assert (ROOT / "docs/invariants.md").read_text() == page(), "python -m projections.replay.checks.rules > docs/…"
