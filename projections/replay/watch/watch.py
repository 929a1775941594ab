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
from functools import partial
from itertools import chain
from typing import Any, TextIO

import msgspec

from projections.replay.checks.checking import check_growth
from projections.replay.checks.growth import OPEN, Checkpoint, ends_of_runs, joined
from projections.replay.checks.invariants import CHECKS, violation_line
from projections.replay.checks.rules import COLUMNS as VIOLATION
from projections.replay.log.log_ref import Ref, as_of, has_partitions
from projections.replay.outcome import Options, Outcome
from projections.replay.watch.followed import followed
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
    alerts, as_json = Alerts(CHECKS), options.all_rows
    every_s = float(options.more.get("every") or POLL_EVERY_S)
    with stopped_by_signals() as stop, serving(options.more.get("http"), alerts) as http:
        where = f" http={http}" if http else ""
        _say(sys.stdout, as_json, {"watching": ref.text, "http": http}, f"watching {ref.text}{where}")
        follow(ref, alerts, sys.stdout, every_s, stop, as_json=as_json)
    found = many(alerts.count, "alert") if alerts.count else "all invariants held"
    line = f"watched up to {as_of(alerts.next_offsets)}: {found}" if alerts.next_offset else "no event was checked yet"
    return Outcome([], alerts.count > 0, [] if as_json else [line])


def follow(
    ref: Ref, alerts: Alerts, out: TextIO, every_s: float, stop: threading.Event, *, as_json: bool = False
) -> None:
    """Check the existing and the new events until stopped. Raises ReplayError, LogError and EventDecodeError."""
    before = Checkpoint((), (), OPEN.empty_table())
    with followed(ref) as log:
        while True:
            new = log.new()
            first = next(new, None)
            if first is not None:
                ends = ends_of_runs(before.runs)
                checked = check_growth(chain([first], new), partial(log.before, ends), before, settle_ms=None)
                for row in checked.rows:
                    if alerts.add(row):
                        line = f"ALERT {row['check']}: {violation_line(row, has_partitions(ref))}"
                        _say(out, as_json, {name: row[name] for name in VIOLATION}, line)
                events = sum(run["events"] for run in before.runs)
                before = before._replace(runs=joined(checked.runs))
                alerts.reached(checked.events - events, ends_of_runs(before.runs))
            if stop.wait(every_s):
                return


def _say(out: TextIO, as_json: bool, row: Mapping[str, Any], line: str) -> None:
    """Print without buffering: `row` as JSON, or `line`."""
    print(msgspec.json.encode(row).decode() if as_json else line, file=out, flush=True)


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
