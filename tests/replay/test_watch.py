"""The continuous check: it alerts once to each new violation of an invariant, on stdout."""

import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from events.catalog import CreateAnswered, Recorded
from events.codec import EventDecodeError, encode_event
from events.logs.log import Commit, Entry, read_one
from events.logs.rocksdb_log import RocksDbLog
from events.names import Offset, shard_key
from projections.replay.checks.invariants import violation_line
from projections.replay.log.log_ref import LogRef
from projections.replay.outcome import ReplayError
from projections.replay.watch import Watch, stopped_by_signals
from tests.machine.audit.planted import at, clean, without
from tests.replay.history import open_log
from tests.support.processes import Process
from tests.support.topicwright import COMMAND

WITHIN_S = 600.0
"""After this time a watch must be stuck."""


def write(log: RocksDbLog, records: Sequence[Recorded]) -> None:
    """Append records and sync them."""
    for record in records:
        topic = getattr(record.event, "topic", None)
        value = encode_event(record.at_ms, record.cause, record.event)
        log.write(Commit((Entry(value, "" if topic is None else shard_key(topic)),)))
    log.flush()


def test_watch_checks_new_events_with_the_earlier_ones(tmp_path: Path) -> None:
    records = clean()
    log = open_log(tmp_path / "data")
    try:
        write(log, records)
        watch = Watch(LogRef("data", tmp_path / "data"))
        assert list(watch.poll()) == []
        assert watch.next_offset == len(records)
        answered = records[at(records, CreateAnswered, topic="a_b")]
        write(log, [replace(answered, offset=Offset(len(records)), at_ms=records[-1].at_ms)])
        (row,) = watch.poll()
    finally:
        log.close()
    line = violation_line(row)
    assert row["check"] == "one-answer"
    assert line.startswith(f"offset {len(records)}, topic a_b: answered again")
    assert len(watch.reported) == 1


def test_watch_reports_a_violation_once(tmp_path: Path) -> None:
    records = clean()
    broken = without(records, at(records, CreateAnswered, topic="a_b"))
    cut = len(broken) // 2
    log = open_log(tmp_path / "data")
    try:
        watch, found = Watch(LogRef("data", tmp_path / "data")), []
        for part in (broken[:cut], broken[cut:-1], broken[-1:]):
            write(log, part)
            found += [row["check"] for row in watch.poll()]
    finally:
        log.close()
    assert found == ["one-answer"]


def test_watch_fails_on_a_damaged_event(tmp_path: Path) -> None:
    log = open_log(tmp_path / "data")
    try:
        write(log, clean()[:3])
        log.write(Commit((Entry(b"no event"),)))
        log.flush()
        with pytest.raises(EventDecodeError, match="offset 3"):
            list(Watch(LogRef("data", tmp_path / "data")).poll())
    finally:
        log.close()


def test_watch_reads_synced_events_and_fails_on_a_replaced_log(tmp_path: Path) -> None:
    log = open_log(tmp_path / "data")
    write(log, clean()[:5])
    watch = Watch(LogRef("data", tmp_path / "data"))
    assert list(watch.poll()) == []
    assert watch.next_offset == 5
    log.write(Commit((Entry(read_one(log, 1)),)))
    list(watch.poll())
    assert watch.next_offset == 5
    log.flush()
    list(watch.poll())
    assert watch.next_offset == 6
    log.close()
    shutil.rmtree(tmp_path / "data")
    shorter = open_log(tmp_path / "data")
    write(shorter, clean()[:3])
    shorter.close()
    with pytest.raises(ReplayError, match="not the log any more that the watch has read: it ends at offset 3"):
        list(watch.poll())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_sigint_and_sigterm_set_the_stop_event(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stopped_by_signals() as stop:
        os.kill(os.getpid(), number)
        assert stop.wait(10)
    assert signal.getsignal(number) == before


@pytest.mark.timeout(WITHIN_S)
def test_watch_prints_alerts_and_ends_on_a_signal(tmp_path: Path) -> None:
    records = clean()
    log = open_log(tmp_path / "data")
    write(log, without(records, at(records, CreateAnswered, topic="a_b")))
    log.close()
    with Process([COMMAND, "replay", "watch", tmp_path / "data"], cwd=tmp_path) as watching:
        watching.wait_for_line(r"ALERT one-answer: offset \d+, topic a_b: never answered", within_s=WITHIN_S)
        assert watching.stop() == 1
    assert f"watched up to offset {len(records) - 2}: 1 alert" in watching.output
