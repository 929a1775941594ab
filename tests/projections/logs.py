"""Logs and stores of the machine's records, for tests of queries."""

from __future__ import annotations

from collections.abc import Iterable

from events.catalog import Recorded
from events.codec import encode_event
from events.logs.memory_log import InMemoryLog
from projections.queries.query import Queries, Query
from projections.store.recorder import Recorder
from projections.store.store import TopicStore
from tests.machine.rig import Rig
from tests.machine.tables import command, given


def kept(records: Iterable[Recorded]) -> tuple[InMemoryLog, TopicStore]:
    """A log that holds these records, and its live store."""
    log = InMemoryLog("kept")
    recorder = Recorder(log, TopicStore(log))
    for record in records:
        recorder.take(record, encode_event(record.at_ms, record.cause, record.event))
        recorder.commit()
        log.flush()
        recorder.store.became_durable(recorder.state)
    return log, recorder.store


def query_of(records: Iterable[Recorded]) -> Query:
    """Queries on a log of these records."""
    log, store = kept(records)
    return Query(log, lambda: store)


def questions_of(records: Iterable[Recorded]) -> Queries:
    """Queries on a service whose only log has these records."""
    return Queries([query_of(records)])


def story(text: str) -> Rig:
    """What comes of a line of what is given and of steps, one a line, in the language of `tests.machine.tables`."""
    first, *steps = (line.strip() for line in text.strip().splitlines())
    rig = given(first)
    for step in steps:
        rig.put(command(rig, step))
    return rig
