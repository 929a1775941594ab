"""Checks the invariants continuously while a service writes: a violation becomes an alert within seconds.

So a fault of the controller, or of its disk, is reported when it happens. Alerts go to stdout, one line each.

Method. The watch polls a data directory, from its first event on. The checks are those of `invariants`: new events are
checked together with the earlier events of the topics that they concern, which the log's index finds, and with all
broker and settings events. A violation is reported once. Over Kafka, each folder of a partition of a gateway or worker
is such a directory.

Non-goals: checks of the end of a log, such as for placeholders of topics without new events; `invariants` has them. The
watch does not scale with the history of a single topic: each poll that finds events of the topic reads all of its
history again.
"""

import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
import pyarrow as pa

from events.codec import decode_event
from events.logs.log import read_one, shard_offsets
from events.names import ShardKey
from projections.replay.checks.checking import RUNS, check
from projections.replay.checks.growth import begin_at
from projections.replay.checks.history import COLUMNS, history_of
from projections.replay.checks.invariants import violation_line
from projections.replay.checks.rules import COLUMNS as VIOLATION
from projections.replay.log.columns import Columns, arrow_schema
from projections.replay.log.log_ref import RANGE_EVENTS, LogRef, Ref, ranges, read_range
from projections.replay.log.secondary import frozen_log
from projections.replay.outcome import Options, Outcome, ReplayError
from projections.replay.runner import Batches
from projections.text.wording import many

POLL_EVERY_S = 1.0
_SCHEMA = arrow_schema(COLUMNS)


class Watch:
    """Checks a data directory up to the events that the service has synced: so far those before `next_offset`."""

    def __init__(self, ref: LogRef) -> None:
        self._ref = ref
        self._runs = RUNS.empty_table()
        self.reported: set[tuple[Any, ...]] = set()
        self.next_offset = 0

    def poll(self) -> Iterator[Mapping[str, Any]]:
        """Check the events that came since the last call, and return the violations that are new. Raises ReplayError,
        LogError, EventDecodeError."""
        with frozen_log(self._ref.path) as log:
            end = log.durable_offset
        if end < self.next_offset:
            raise ReplayError(
                f"{self._ref.text} is not the log any more that the watch has read: it ends at offset {end}; start the "
                "watch again"
            )
        if end == self.next_offset:
            return
        wanted = ranges(self.next_offset, end, RANGE_EVENTS, self._ref.partition)
        new = (batch for each in wanted for batch in read_range(self._ref, each, COLUMNS))
        with history_of(new, _SCHEMA) as history:
            history.register("before", self._runs)
            begin_at(history, "before")
            shards = history.execute("select '' union select shard from log.events").fetchall()
            history.register("earlier", pa.RecordBatchReader.from_batches(_SCHEMA, self._earlier(shards)))
            history.execute("insert into log.events by name from earlier")
            checked = check(history, settle_ms=None, given=("offset_runs",))
        self._runs, self.next_offset = checked.runs, end
        for row in checked.rows:
            key = tuple(row[name] for name in ("check", "shard", "offset", "seen"))
            if key not in self.reported:
                self.reported.add(key)
                yield row

    def _earlier(self, shards: Iterable[tuple[str]]) -> Batches:
        columns = Columns(COLUMNS, self._ref.partition)
        with frozen_log(self._ref.path) as log:
            for (shard,) in shards:
                for offset in shard_offsets(log, ShardKey(shard), 0, self.next_offset):
                    value = read_one(log, offset)
                    columns.add(decode_event(offset, value), value)
        yield columns.batch()


def check_watch(ref: Ref, _: Options) -> None:
    """Check that the log is a data directory. Raises ReplayError."""
    if not isinstance(ref, LogRef):
        raise ReplayError(
            "watch follows a data directory: name the folder of a partition in the data folder of a gateway or worker, "
            "such as DIR/partition-00000"
        )


def run_watch(_: object, ref: Ref, options: Options) -> Outcome:
    """Run `topicwright replay watch`: check events as they are written, until SIGINT or SIGTERM; `found` is true if
    there was an alert.

    With `options.all_rows` alerts are lines of JSON. Raises ReplayError, LogError and EventDecodeError, for example if
    the log is damaged.
    """
    assert isinstance(ref, LogRef), "check_watch has checked it"
    watch, as_json = Watch(ref), options.all_rows
    with stopped_by_signals() as stop:
        _say(as_json, {"watching": ref.text}, f"watching {ref.text}")
        while not stop.is_set():
            for row in watch.poll():
                _say(as_json, {name: row[name] for name in VIOLATION}, f"ALERT {row['check']}: {violation_line(row)}")
            stop.wait(POLL_EVERY_S)
    found = many(len(watch.reported), "alert") if watch.reported else "all invariants held"
    line = f"watched up to offset {watch.next_offset - 1}: {found}" if watch.next_offset else "no event was checked yet"
    return Outcome([], bool(watch.reported), [] if as_json else [line])


def _say(as_json: bool, row: Mapping[str, Any], line: str) -> None:
    """Print without buffering: `row` as JSON, or `line`."""
    print(msgspec.json.encode(row).decode() if as_json else line, file=sys.stdout, flush=True)


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """A `threading.Event` that SIGINT and SIGTERM set while the context is open, in the main thread."""
    stop, numbers = threading.Event(), (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: stop.set()) for number in numbers]
    try:
        yield stop
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
