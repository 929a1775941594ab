"""Logs with their live state, made of the machine's own records, for the tests of what is read from them."""

from __future__ import annotations

from collections.abc import Iterable

from controller.machine.apply import apply
from events.catalog import Recorded
from events.codec import encode_event
from events.external_decision import request_of
from events.logs.log import Commit, Entry
from events.logs.memory_log import InMemoryLog
from projections.queries.query import Query, Questions
from projections.store.store import TopicStore
from tests.machine.rig import Rig
from tests.machine.tables import command, given


def kept(records: Iterable[Recorded]) -> tuple[InMemoryLog, TopicStore]:
    """A log that holds these records, and its live store."""
    log = InMemoryLog("kept")
    store = TopicStore(log)
    state = store.state()
    for record in records:
        key = apply(state, record)
        value = encode_event(record.at_ms, record.cause, record.event)
        entry = Entry(value, key, request_of(record))
        log.write(Commit((entry,), store.changes(state)))
        log.flush()
        store.became_durable(state)
    return log, store


def query_of(records: Iterable[Recorded]) -> Query:
    """Queries on a log of these records."""
    log, store = kept(records)
    return Query(log, lambda: store)


def questions_of(records: Iterable[Recorded]) -> Questions:
    """Queries on a service whose only log has these records."""
    return Questions([query_of(records)])


def story(text: str) -> Rig:
    """What comes of a line of what is given and of steps, one a line, in the language of `tests.machine.tables`."""
    first, *steps = (line.strip() for line in text.strip().splitlines())
    rig = given(first)
    for step in steps:
        rig.put(command(rig, step))
    return rig
