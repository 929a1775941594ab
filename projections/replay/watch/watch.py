"""Checks the invariants continuously while a service writes: a violation becomes an alert within seconds.

So a fault of the controller, or of its disk, is reported when it happens. Alerts go to stdout, one line each; `--http`
serves the newest alerts at `/alerts` and counts for Prometheus at `/metrics`.

Method. The watch polls the log (`followed`), from its first event on. The checks are those of `invariants`: new events
are checked together with the earlier events of the topics that they concern, and with all broker and settings events.
A violation is reported once.

Non-goals: checks of the end of a log, such as for placeholders of topics without new events; `invariants` has them. The
watch does not scale with the history of a single topic: each poll that finds events of the topic reads all of its
history again.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, TextIO

import duckdb
import msgspec

from events.codec import decode_event
from events.names import ShardKey
from projections.replay.checks.checking import check
from projections.replay.checks.growth import Run, Shards, complete, ends_of_runs, joined
from projections.replay.checks.history import COLUMNS, database, load
from projections.replay.checks.invariants import CHECKS, violation_line
from projections.replay.checks.rules import COLUMNS as VIOLATION
from projections.replay.log.columns import Columns, arrow_schema
from projections.replay.log.log_ref import Ref, as_of, has_partitions
from projections.replay.outcome import Options, Outcome
from projections.replay.runner import Batches
from projections.replay.watch.followed import Followed, followed
from projections.replay.watch.watch_http import Alerts, serving
from projections.text.wording import many

POLL_EVERY_S = 1.0


def check_watch(ref: Ref, options: Options) -> None:
    """Check that the watch can listen on its address. Raises ReplayError."""
    with serving(options.more.get("http"), Alerts(CHECKS)):
        pass


def run_watch(_: object, ref: Ref, options: Options) -> Outcome:
    """Run `topicwright replay watch`: check events as they are written, until SIGINT or SIGTERM; `found` is true if
    there was an alert.

    `options.more` may have `http` (HOST:PORT to serve on) and `every` (seconds between polls). With `options.all_rows`
    alerts are lines of JSON. Raises ReplayError, LogError and EventDecodeError, for example if the log is damaged or
    the address is in use.
    """
    alerts = Alerts(CHECKS)
    watching = LogWatch(ref, alerts, sys.stdout, as_json=options.all_rows)
    every_s = float(options.more.get("every") or POLL_EVERY_S)
    with stopped_by_signals() as stop, serving(options.more.get("http"), alerts) as http:
        where = f" http={http}" if http else ""
        watching.say({"watching": ref.text, "http": http}, f"watching {ref.text}{where}")
        watching.follow(every_s, stop)
    found = many(alerts.count, "alert") if alerts.count else "all invariants held"
    line = f"watched up to {as_of(alerts.next_offsets)}: {found}" if alerts.next_offset else "no event was checked yet"
    return Outcome([], alerts.count > 0, [] if options.all_rows else [line])


class LogWatch:
    """Follows one log and reports violations. Call `follow` once."""

    def __init__(self, ref: Ref, alerts: Alerts, out: TextIO, *, as_json: bool = False) -> None:
        self._ref = ref
        self._alerts = alerts
        self._out = out
        self._as_json = as_json
        self._runs: Sequence[Run] = ()

    def follow(self, every_s: float, stop: threading.Event) -> None:
        """Check the existing and the new events until stopped. Raises ReplayError, LogError and EventDecodeError."""
        with followed(self._ref) as log:
            while True:
                new = log.new()
                first = next(new, None)
                if first is not None:
                    with database() as history:
                        load(history, chain([first], new), arrow_schema(COLUMNS))
                        self._check(history, log)
                if stop.wait(every_s):
                    return

    def say(self, row: Mapping[str, Any], line: str) -> None:
        """Print an alert without buffering: `row` as JSON if alerts are JSON, else `line`."""
        print(msgspec.json.encode(row).decode() if self._as_json else line, file=self._out, flush=True)

    def _check(self, history: duckdb.DuckDBPyConnection, log: Followed) -> None:
        """Check the new events in a database, with the earlier ones of their topics."""
        events = sum(run["events"] for run in self._runs)
        complete(history, self._runs, lambda shards: self._earlier(log, shards))
        checked = check(history, settle_ms=None, given=("offset_runs",), keep=True)
        for row in checked.rows:
            if self._alerts.add(row):
                shown = {name: row[name] for name in VIOLATION}
                self.say(shown, f"ALERT {row['check']}: {violation_line(row, has_partitions(self._ref))}")
        self._runs = joined(checked.runs)
        self._alerts.reached(checked.events - events, ends_of_runs(self._runs))

    def _earlier(self, log: Followed, shards: Shards) -> Batches:
        for partition, start in ends_of_runs(self._runs).items():
            made = Columns(COLUMNS, partition)
            for offset, value in log.before(partition, start, map(ShardKey, sorted(shards.get(partition, ())))):
                made.add(decode_event(offset, value), value)
            yield made.batch()


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """A `threading.Event` that SIGINT and SIGTERM set while the context is open."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    numbers: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: stop.set()) for number in numbers]
    try:
        yield stop
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
