"""In-memory logs and stores for tests of queries."""

from collections.abc import Sequence
from contextlib import suppress

from controller.store.recorder import Recorder
from controller.store.store import TopicStore
from events.catalog import Recorded
from events.codec import encode_event
from projections.queries.explain import explain_request, explain_topic
from projections.queries.query import NoTopic, Queries, Query
from projections.views.events import ExplanationView
from projections.views.rows import TopicRow
from tests.machine.rig import Rig
from tests.machine.tables import command, given
from tests.support.memory_log import InMemoryLog


def explain(query: Queries, subject: str, at: str | None = None) -> ExplanationView:
    """Returns the chain of the topic of this name or, if there is no event of that name, of the request."""
    with suppress(NoTopic):
        return explain_topic(query, subject, at)
    return explain_request(query, subject, at)


def kept(records: Sequence[Recorded], at_once: int = 1, *, restarts: bool = False) -> tuple[InMemoryLog, TopicStore]:
    """Returns a log with these records and its live store. A commit holds `at_once` records. With `restarts`, a new
    recorder writes each commit, as a new process would."""
    log = InMemoryLog("kept")
    recorder = Recorder(log, TopicStore(log))
    for number, record in enumerate(records, 1):
        recorder.record_encoded([record], [encode_event(record.at_ms, record.cause, record.event)])
        if number % at_once == 0 or number == len(records):
            recorder.commit()
            log.flush()
            recorder.store.became_durable(recorder.state)
            recorder = Recorder(log, recorder.store) if restarts else recorder
    return log, recorder.store


def listed(query: Query, end: int, limit: int) -> list[TopicRow]:
    """Lists all topics at a point in time, page by page."""
    rows: list[TopicRow] = []
    after = ""
    while True:
        page = query.topics_at(end, after, limit)
        assert len(page.rows) <= limit
        rows += page.rows
        if page.reached is None:
            return rows
        after = page.reached


def query_of(records: Sequence[Recorded]) -> Query:
    """Returns a query on a log of these records."""
    log, store = kept(records)
    return Query(log, lambda: store)


def questions_of(records: Sequence[Recorded]) -> Queries:
    """Returns queries on a service whose only log has these records."""
    return Queries([query_of(records)])


def story(text: str) -> Rig:
    """Runs a scenario: the first line is the initial state, each further line a command (see
    `tests.machine.tables`)."""
    first, *steps = (line.strip() for line in text.strip().splitlines())
    rig = given(first)
    for step in steps:
        rig.put(command(rig, step))
    return rig
