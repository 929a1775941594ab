"""The continuous check: it alerts once to each new violation of an invariant, on stdout and over HTTP."""

from __future__ import annotations

import io
import json
import os
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
from projections.replay.checks.invariants import CHECKS
from projections.replay.log.log_ref import Ref, open_ref
from projections.replay.outcome import ReplayError
from projections.replay.watch import Alerts, follow, followed, serving, stopped_by_signals
from tests.machine.audit.planted import at, clean, without
from tests.replay.history import open_log
from tests.support.processes import Process
from tests.support.topicwright import COMMAND, fetch

WITHIN_S = 600.0
"""After this time a watch must be stuck. A poll takes some tenths of a second, more on a busy machine."""
VIOLATION = {
    "log_partition": 0, "shard": "a", "offset": 7, "topic": "a", "check": "topic-exists", "seen": "x", "expected": "y"
}  # fmt: skip


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
        alerts, out = Alerts(CHECKS), io.StringIO()
        ref = open_ref(str(tmp_path / "data"))
        with serving("127.0.0.1:0", alerts) as http, following(ref, alerts, out) as checked:
            checked(len(records))
            assert alerts.count == 0, out.getvalue()
            answered = records[at(records, CreateAnswered, topic="a_b")]
            write(log, [replace(answered, offset=Offset(len(records)), at_ms=records[-1].at_ms)])
            checked(len(records) + 1)
            shown = json.loads(fetch(str(http), "/alerts")[1])
            metrics = fetch(str(http), "/metrics")[1]
    finally:
        log.close()
    assert [(one["check"], one["offset"], one["topic"]) for one in shown["alerts"]] == [
        ("one-answer", len(records), "a_b")
    ]
    (line,) = out.getvalue().splitlines()
    assert line.startswith(f"ALERT one-answer: offset {len(records)}, topic a_b: answered again")
    assert 'topicwright_invariant_violations_total{check="one-answer"} 1.0' in metrics
    assert f"topicwright_watched_offset {len(records) + 1}.0" in metrics


@pytest.mark.timeout(WITHIN_S)
def test_watch_reports_a_violation_once(tmp_path: Path) -> None:
    records = clean()
    broken = without(records, at(records, CreateAnswered, topic="a_b"))
    cut = len(broken) // 2
    log = open_log(tmp_path / "data")
    try:
        write(log, broken[:cut])
        alerts, out = Alerts(CHECKS), io.StringIO()
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
            follow(ref, Alerts(CHECKS), io.StringIO(), 0.1, threading.Event())
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


def test_alerts_are_counted_once_and_the_newest_are_listed() -> None:
    alerts = Alerts(CHECKS)
    assert alerts.add(VIOLATION)
    assert not alerts.add(VIOLATION)
    assert alerts.add({**VIOLATION, "offset": 8})
    assert alerts.count == 2
    assert [one["offset"] for one in json.loads(alerts.as_json())["alerts"]] == [7, 8]


def test_watch_http_returns_404_for_unknown_paths() -> None:
    with serving("127.0.0.1:0", Alerts(CHECKS)) as http:
        assert fetch(str(http), "/secrets")[0] == 404


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:http", "127.0.0.1:99999", "no.such.host.invalid:80"])
def test_an_invalid_watch_address_is_reported(address: str) -> None:
    with pytest.raises(ReplayError), serving(address, Alerts(CHECKS)):
        pass


def test_a_watch_address_in_use_is_reported() -> None:
    with (
        serving("127.0.0.1:0", Alerts(CHECKS)) as http,
        pytest.raises(ReplayError, match="cannot listen"),
        serving(http, Alerts(CHECKS)),
    ):
        pass


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
    argv: list[str | Path] = [COMMAND, "replay", "watch", tmp_path / "data", "--http", "127.0.0.1:0", "--every", "0.1"]
    with Process(argv, cwd=tmp_path) as watching:
        http = watching.wait_for_line(r"http=(\S+)", within_s=WITHIN_S)[1]
        until(
            lambda: json.loads(fetch(str(http), "/alerts")[1])["next_offset"] == len(records),
            lambda: watching.popen.poll() is None,
        )
        assert watching.stop() == 0
    assert f"watched up to offset {len(records) - 1}: all invariants held" in watching.output
