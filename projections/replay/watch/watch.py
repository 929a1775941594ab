"""A continuous check of the invariants while a service writes: what breaks one becomes an alert within seconds.

What it is for: to hear of a fault of the controller, or of its disk, when it happens. Alerts go to stdout, one line
each; `--http` serves the newest of them at `/alerts` and counts for Prometheus at `/metrics`.

Method. `readStream` follows the log in micro-batches, from its first event on. The checks are those of `invariants`:
each batch is checked together with the earlier events of the topics that it concerns, which the log's own index finds,
and with all broker and settings events. What was reported once is not reported again.

What it does not do: judge what can only be said of a log that has ended (placeholders of topics that no event
concerns); `invariants` does. It does not scale with the history of a single topic: that is read again with each batch
that concerns it.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any, TextIO

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from events.codec import decode_event
from events.names import CLUSTER_SHARD, ShardKey
from projections.replay.checks import invariants
from projections.replay.checks.history import database, load
from projections.replay.errors import ReplayError, message_of
from projections.replay.log.log_ref import KafkaRef, Ref, as_of, has_partitions
from projections.replay.outcome import Options, Outcome
from projections.replay.spark.column_batches import Columns
from projections.replay.spark.columns import arrow_schema
from projections.replay.spark.connect import is_connect
from projections.replay.spark.source import FOLLOWED, FORMAT, TopicwrightSource, kafka_options
from projections.replay.watch.earlier import EarlierEvents, earlier_events
from projections.replay.watch.watch_http import Alerts, serving
from projections.text.wording import many

LOOK_EVERY_S = 1.0  # so late, at most, is a violation shown
BATCH_EVENTS = 100_000
"""Of a topic's partition at most so many events are checked at once."""
_WAIT_S = 0.1


def check_watch(ref: Ref, options: Options) -> None:
    """See, without Spark, that there is something to serve on. Raises ReplayError."""
    with serving(options.more.get("http"), Alerts(invariants.CHECKS)):
        pass


def run_watch(session: SparkSession, ref: Ref, options: Options) -> Outcome:
    """The sub-command: check events as they are written until SIGINT or SIGTERM; found if there was an alert.

    `options.more` may have `http` (HOST:PORT to serve on) and `every` (seconds between looks at the log). With
    `options.all_rows` alerts are lines of JSON. Raises ReplayError: the log is damaged, the address is taken.
    """
    if is_connect(session):
        raise ReplayError("watch follows the log in this process: use local[*] or a master, not Spark Connect")
    alerts = Alerts(invariants.CHECKS)
    watching = LogWatch(session, ref, alerts, sys.stdout, as_json=options.all_rows)
    every_s = float(options.more.get("every") or LOOK_EVERY_S)
    with stopped_by_signals() as stop, serving(options.more.get("http"), alerts) as http:
        where = f" http={http}" if http else ""
        watching.say({"watching": ref.text, "http": http}, f"watching {ref.text}{where}")
        watching.follow(every_s, stop)
    return Outcome([], alerts.count > 0, [] if options.all_rows else [_watched(alerts)])


def _watched(alerts: Alerts) -> str:
    if not alerts.next_offset:
        return "no event was checked yet"
    found = many(alerts.count, "alert") if alerts.count else "all invariants held"
    return f"watched up to {as_of(alerts.next_offsets)}: {found}"


class LogWatch:
    """Follows one log and reports what breaks a check. `follow` once."""

    def __init__(self, session: SparkSession, ref: Ref, alerts: Alerts, out: TextIO, *, as_json: bool = False) -> None:
        self._session = session
        self._ref = ref
        self._alerts = alerts
        self._out = out
        self._as_json = as_json
        self._ends: dict[int, int] = {}
        self._failure: BaseException | None = None

    def follow(self, every_s: float, stop: threading.Event) -> None:
        """Check what is there and what comes, until stopped. Raises ReplayError when the log cannot be read on."""
        with TemporaryDirectory(prefix="topicwright-watch-") as checkpoint, earlier_events(self._ref) as earlier:
            stream = self._stream().writeStream
            writer = stream.foreachBatch(lambda batch, _: self._check(batch, earlier))
            writer = writer.option("checkpointLocation", checkpoint).trigger(processingTime=f"{every_s} seconds")
            query = writer.start()
            try:
                try:
                    self._wait(query, stop)
                finally:
                    query.stop()
            except Py4JError:
                if not stop.is_set():
                    raise  # else Java was stopped too, as a terminal or a supervisor does

    def _stream(self) -> DataFrame:
        self._session.dataSource.register(TopicwrightSource)
        reader = self._session.readStream.format(FORMAT)
        if isinstance(self._ref, KafkaRef):
            reader = reader.options(**kafka_options(self._ref)).option("maxeventspertrigger", BATCH_EVENTS)
            reader = reader.option(FOLLOWED, "true").option("columns", ",".join((*invariants.COLUMNS, "value")))
        else:
            reader = reader.option("columns", ",".join(invariants.COLUMNS))
        return reader.load(self._ref.location)

    def _wait(self, query: StreamingQuery, stop: threading.Event) -> None:
        while query.isActive and not stop.wait(_WAIT_S):
            pass
        failed = query.exception()
        if failed is not None and not stop.is_set():
            raise ReplayError(message_of(self._failure or failed)) from failed

    def say(self, row: Mapping[str, Any], line: str) -> None:
        """One line on the output, at once."""
        print(msgspec.json.encode(row).decode() if self._as_json else line, file=self._out, flush=True)

    def _check(self, batch: DataFrame, earlier: EarlierEvents) -> None:
        """Check the events of one micro-batch, with the earlier ones that they refer to."""
        events = batch.persist()
        try:
            new = events.select(*invariants.COLUMNS).toArrow()
            if len(new):
                earlier.keep(events)
                self._check_events(new, earlier)
        except Exception as error:
            self._failure = error
            raise
        finally:
            events.unpersist()

    def _check_events(self, new: pa.Table, earlier: EarlierEvents) -> None:
        runs = invariants.offset_runs(new.to_batches(), new.schema).to_pylist()
        starts = {run["log_partition"]: self._ends.get(run["log_partition"], 0) for run in runs}
        before = [
            {"log_partition": partition, "first": 0, "last": start - 1, "events": start}
            for partition, start in starts.items()
            if start
        ]
        with database() as history:
            load(history, self._earlier(new, starts, earlier), arrow_schema(invariants.COLUMNS))
            history.register("new", new)
            history.execute("insert into stored_events by name from new")
            history.register("offset_runs", pa.Table.from_pylist([*runs, *before]))
            checked = invariants.check(history, settle_ms=None, given=("offset_runs",))
        for found in checked.found:
            for row in found.violations:
                if self._alerts.add(row):
                    line = invariants.violation_line(row, has_partitions(self._ref))
                    self.say(row, f"ALERT {row['check']}: {line}")
        for run in runs:
            self._ends[run["log_partition"]] = max(self._ends.get(run["log_partition"], 0), run["last"] + 1)
        self._alerts.reached(len(new), self._ends)

    def _earlier(self, new: pa.Table, starts: Mapping[int, int], earlier: EarlierEvents) -> Iterator[pa.RecordBatch]:
        """The earlier events of the topics that a batch concerns, and all of brokers and settings."""
        shards: dict[int, set[ShardKey]] = {partition: {CLUSTER_SHARD} for partition in starts}
        for row in new.group_by(["log_partition", "shard"]).aggregate([]).to_pylist():
            shards[row["log_partition"]].add(ShardKey(row["shard"]))
        for partition, start in starts.items():
            made = Columns(invariants.COLUMNS, partition)
            for offset, value in earlier.before(partition, start, sorted(shards[partition])):
                made.add(decode_event(offset, value), value)
            yield made.batch()


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set, in place of what they do otherwise."""
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
