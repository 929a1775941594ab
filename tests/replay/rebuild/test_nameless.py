"""A request for a topic without a name: its shard key equals that of events that concern every topic."""

import asyncio
from collections.abc import Callable

import pytest

from controller.store.store import TopicStore
from projections.queries.query import Query
from projections.replay.checks.invariants import run_invariants
from projections.replay.checks.sql import run_sql
from projections.replay.log.log_ref import LogRef
from projections.replay.log.secondary import frozen_log
from projections.replay.outcome import Options, Outcome
from projections.replay.rebuild.compare import run_compare
from projections.replay.redecide.redecide import run_redecide
from projections.replay.runner import InProcess, Runner
from tests.replay.history import Day, open_log

Run = Callable[[Runner, LogRef, Options], Outcome]


@pytest.fixture(scope="module")
def nameless(tmp_path_factory: pytest.TempPathFactory) -> LogRef:
    """A log with a request for a topic without a name."""
    folder = tmp_path_factory.mktemp("nameless") / "data"

    async def day() -> None:
        log = open_log(folder)
        day = await Day(log).start()
        try:
            await day.create("", "pay.orders")
            await day.settled()
        finally:
            await day.controller.stop()
            log.close()

    asyncio.run(day())
    return LogRef(str(folder), folder)


@pytest.mark.parametrize("run", [run_compare, run_invariants, run_redecide])
def test_replays_accept_a_rejected_create_with_an_empty_topic_name(nameless: LogRef, run: Run) -> None:
    outcome = run(InProcess(), nameless, Options())
    assert not outcome.found, outcome.lines


def test_a_rejected_create_with_an_empty_topic_name_is_listed(nameless: LogRef) -> None:
    requests = "select topic, rejected_at is null as done from requests order by requested_at"
    rows = run_sql(None, nameless, Options(subject=requests)).rows
    assert [(row["topic"], row["done"]) for row in rows] == [("", False), ("pay.orders", True)]
    with frozen_log(nameless.path) as log:
        store = TopicStore(log)
        query = Query(log, lambda: store)
        assert len(query.cluster_at(log.next_offset).brokers) == 3
        assert all(not hasattr(one.event, "topic") for one in query.events_of(None, 0, query.end()))
