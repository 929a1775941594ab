"""Golden logs are read as they always were; those that must fail do."""

from __future__ import annotations

import re

import pytest

from events.catalog import EVENT_TYPES, Recorded
from events.codec import EventDecodeError, decode_event, encode_event
from tests.events.golden import ADOPTED, BAD, FOLDER, FOLLOWED, HISTORIES, OLDER, hash_of, lines_of, state_hash
from tests.machine.audit.auditor import audit
from tests.machine.audit.lifecycle import Lives
from tests.machine.audit.real_auditor import RealAuditor

good = pytest.mark.parametrize("name", [*HISTORIES, ADOPTED, FOLLOWED])


def _read(name: str) -> list[Recorded]:
    return [decode_event(offset, value) for offset, value in enumerate(lines_of(name))]


@good
def test_it_folds_to_the_recorded_state(name: str) -> None:
    assert state_hash(_read(name)) == hash_of(name)


@good
def test_its_bytes_are_canonical(name: str) -> None:
    assert [encode_event(r.at_ms, r.cause, r.event) for r in _read(name)] == lines_of(name)


@pytest.mark.parametrize("name", OLDER)
def test_what_an_older_release_wrote_is_the_same_history(name: str) -> None:
    assert _read(f"{name}-0.1") == _read(name)


@pytest.mark.parametrize("name", [*HISTORIES, FOLLOWED])
def test_it_passes_the_audit_and_the_life_cycles(name: str) -> None:
    records = _read(name)
    assert audit(records, of=RealAuditor) == []
    Lives().see_all(records)


def test_every_type_of_event_is_in_some_golden_log() -> None:
    found = {type(record.event) for name in (*HISTORIES, ADOPTED, FOLLOWED) for record in _read(name)}
    assert found == set(EVENT_TYPES)


MUST_FAIL = {
    "unknown-event": "event at offset 3: unknown event type 'TopicRenamed'",
    "newer-version": "event at offset 3: written in event version 2; this release reads up to 1",
    "newer-field": "event at offset 3: malformed event of type 'BrokerRegistered': Expected `array` of at most",
    "cut": "event at offset 3: not an event: Input data was truncated",
}


@pytest.mark.parametrize("name", BAD)
def test_it_must_not_be_read(name: str) -> None:
    lines = lines_of(name)
    for offset, value in enumerate(lines[:-1]):
        decode_event(offset, value)
    with pytest.raises(EventDecodeError, match=re.escape(MUST_FAIL[name])):
        decode_event(len(lines) - 1, lines[-1])


def test_every_file_is_tested() -> None:
    assert {path.stem for path in FOLDER.glob("*.log")} == {
        *HISTORIES,
        ADOPTED,
        FOLLOWED,
        *(f"{name}-0.1" for name in OLDER),
        *BAD,
    }
