"""The continuous check: it alerts once to each new violation of an invariant, on stdout."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import pytest
from msgspec.structs import replace

from events.catalog import CreateAnswered, Recorded
from events.codec import EventDecodeError, encode_event
from events.logs.log import Commit, Entry, read_one
from events.logs.rocksdb_log import RocksDbLog
from events.names import Offset, shard_key
from projections.replay.log.log_ref import Ref, open_ref
from projections.replay.outcome import ReplayError
from projections.replay.watch import Alerts, follow, followed, stopped_by_signals
from tests.machine.audit.planted import at, clean, without
from tests.replay.history import open_log
from tests.support.processes import Process
from tests.support.topicwright import COMMAND

WITHIN_S = 600.0
"""After this time a watch must be stuck. A poll takes some tenths of a second, more on a busy machine."""


def write(log: RocksDbLog, records: Sequence[Recorded]) -> None:
    """Append records and sync them."""
    for record in records:
        topic = getattr(record.event, "topic", None)
        value = encode_event(record.at_ms, record.cause, record.event)
        log.write(Commit((Entry(value, "" if topic is None else shard_key(topic)),)))
    log.flush()


def until(holds: Callable[[], bool], goes_on: Callable[[], bool]) -> None:
    """Wait until `holds`; fail when `goes_on` is no longer true."""
    end = time.monotonic() + WITHIN_S
    while not holds():
        assert goes_on() or holds(), "the watch has ended"
        assert time.monotonic() < end, "the condition was never met"
        time.sleep(0.05)


@contextmanager
def following(ref: Ref, alerts: Alerts, out: TextIO, *, as_json: bool = False) -> Iterator[Callable[[int], None]]:
    """Follow a log in another thread during the block. The yielded function waits until the events before an offset are
    checked; it raises the error that ended the watch."""
    stop = threading.Event()

    def checked(offset: int) -> None:
        until(lambda: ended.done() or alerts.next_offset >= offset, lambda: not ended.done())
        if alerts.next_offset < offset:
            ended.result()
        assert alerts.next_offset == offset

    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(follow, ref, alerts, out, 0.1, stop, as_json=as_json)
        try:
            yield checked
        finally:
            stop.set()
        ended.result()


@pytest.mark.timeout(WITHIN_S)
def test_watch_checks_new_events_with_the_earlier_ones(tmp_path: Path) -> None:
    records = clean()
    log = open_log(tmp_path / "data")
    try:
        write(log, records)
        alerts, out = Alerts(), io.StringIO()
        ref = open_ref(str(tmp_path / "data"))
        with following(ref, alerts, out) as checked:
            checked(len(records))
            assert alerts.count == 0, out.getvalue()
            answered = records[at(records, CreateAnswered, topic="a_b")]
            write(log, [replace(answered, offset=Offset(len(records)), at_ms=records[-1].at_ms)])
            checked(len(records) + 1)
    finally:
        log.close()
    (line,) = out.getvalue().splitlines()
    assert line.startswith(f"ALERT one-answer: offset {len(records)}, topic a_b: answered again")


@pytest.mark.timeout(WITHIN_S)
def test_watch_reports_a_violation_once(tmp_path: Path) -> None:
    records = clean()
    broken = without(records, at(records, CreateAnswered, topic="a_b"))
    cut = len(broken) // 2
    log = open_log(tmp_path / "data")
    try:
        write(log, broken[:cut])
        alerts, out = Alerts(), io.StringIO()
        with following(open_ref(str(tmp_path / "data")), alerts, out, as_json=True) as checked:
            checked(cut)
            write(log, broken[cut:])
            checked(len(broken))
    finally:
        log.close()
    (line,) = out.getvalue().splitlines()
    assert json.loads(line)["check"] == "one-answer"


def test_watch_fails_on_a_damaged_event(tmp_path: Path) -> None:
    log = open_log(tmp_path / "data")
    try:
        write(log, clean()[:3])
        log.write(Commit((Entry(b"no event"),)))
        log.flush()
        ref = open_ref(str(tmp_path / "data"))
        with pytest.raises(EventDecodeError, match="offset 3"):
            follow(ref, Alerts(), io.StringIO(), 0.1, threading.Event())
    finally:
        log.close()


def test_watch_follows_synced_events_and_fails_on_a_replaced_log(tmp_path: Path) -> None:
    log = open_log(tmp_path / "data")
    try:
        write(log, clean()[:5])
        with followed(open_ref(str(tmp_path / "data"))) as follows:

            def new() -> list[int]:
                return [offset for batch in follows.new() for offset in batch["offset"].to_pylist()]

            assert new() == [0, 1, 2, 3, 4]
            log.write(Commit((Entry(read_one(log, 1)),)))
            assert new() == []
            log.flush()
            assert new() == [5]
            shorter = open_log(tmp_path / "other")
            write(shorter, clean()[:3])
            shorter.close()
            follows._ref = open_ref(str(tmp_path / "other"))
            with pytest.raises(ReplayError, match="not the log any more that the watch has read: it ends at offset 3"):
                new()
    finally:
        log.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_sigint_and_sigterm_set_the_stop_event(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stopped_by_signals() as stop:
        os.kill(os.getpid(), number)
        assert stop.wait(10)
    assert signal.getsignal(number) == before


@pytest.mark.timeout(WITHIN_S)
def test_watch_ends_on_a_signal_and_removes_its_files(tmp_path: Path) -> None:
    records = clean()[:20]
    log = open_log(tmp_path / "data")
    write(log, records)
    log.close()
    argv: list[str | Path] = [COMMAND, "replay", "watch", tmp_path / "data", "--every", "0.1"]
    with Process(argv, cwd=tmp_path) as watching:
        watching.wait_for_line(r"watching ", within_s=WITHIN_S)
        assert watching.stop() == 0
    assert re.search(r"watched up to offset \d+: all invariants held|no event was checked yet", watching.output)
