"""Checks the invariants continuously while a service writes: a violation becomes an alert within seconds.

So a fault of the controller, or of its disk, is reported when it happens. Alerts go to stdout, one line each.

Method. The watch polls the log (`followed`), from its first event on. The checks are those of `invariants`: new events
are checked together with the earlier events of the topics that they concern, and with all broker and settings events.
A violation is reported once.

A data directory has an index, which finds earlier events. A topic in Kafka has no index, so its events are stored in a
log with an index for each partition, in a temporary folder. This folder takes as much disk as the events.

Non-goals: checks of the end of a log, such as for placeholders of topics without new events; `invariants` has them. The
watch does not scale with the history of a single topic: each poll that finds events of the topic reads all of its
history again.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TextIO

import msgspec

from events.codec import decode_event
from events.logs.events_topic import PartitionReader
from events.logs.log import Commit, Entry, EventLog, read_one, shard_offsets
from events.logs.rocksdb_log import RocksDbLog
from events.names import ShardKey
from projections.replay.checks.checking import Checkpoint, Shards, check_again, ends_of_runs, joined
from projections.replay.checks.history import COLUMNS
from projections.replay.checks.invariants import violation_line
from projections.replay.checks.rules import COLUMNS as VIOLATION
from projections.replay.log.columns import Columns, shard_of
from projections.replay.log.kafka_ref import TopicReader
from projections.replay.log.kafka_scan import KafkaRef, check_begins, decoded, folded
from projections.replay.log.log_ref import RANGE_EVENTS, Ends, LogRef, Ref, as_of, has_partitions, ranges, read_range
from projections.replay.log.secondary import frozen_log
from projections.replay.outcome import Options, Outcome, ReplayError
from projections.replay.runner import Batches
from projections.text.wording import many

_EVENTS_PER_WRITE = 1000  # one batch of RocksDB
_CACHE_BYTES = 8 << 20


class _Folder:
    """Follows a data directory, up to the events that the service has synced."""

    def __init__(self, ref: LogRef) -> None:
        self._ref = ref
        self._next = 0

    def new(self) -> Batches:
        """The events that came since the last call, as columns. Raises ReplayError, LogError, EventDecodeError."""
        with frozen_log(self._ref.path) as log:
            end = log.durable_offset
        if end < self._next:
            raise _other(self._ref, f"it ends at offset {end}")
        for wanted in ranges(self._next, end, RANGE_EVENTS, self._ref.partition):
            yield from read_range(self._ref, wanted, COLUMNS)
        self._next = end

    def before(self, ends: Ends, shards: Shards) -> Batches:
        """The events of some shards before `ends`, as columns."""
        with frozen_log(self._ref.path) as log:
            yield from _of_shards({self._ref.partition: log}, ends, shards)


class _Topic:
    """Follows an events topic in Kafka; the methods are those of `_Folder`."""

    def __init__(self, ref: KafkaRef, kafka: TopicReader, folder: Path) -> None:
        self._ref = ref
        self._kafka = kafka
        self._readers = {one.partition: PartitionReader(one.partition) for one in ref.partitions}
        self._logs = {partition: _stored_in(folder / str(partition)) for partition in self._readers}

    def new(self) -> Batches:
        ranges = self._kafka.current_ranges().ranges
        if ranges.keys() != self._readers.keys():
            raise _other(self._ref, f"it has {len(ranges)} partitions")
        for partition, (first, end) in ranges.items():
            check_begins(self._ref.topic, partition, first)
            if end < self._readers[partition].kafka_offset:
                raise _other(self._ref, f"partition {partition} ends at record {end}")
            yield from self._of_partition(partition, end)

    def before(self, ends: Ends, shards: Shards) -> Batches:
        return _of_shards(self._logs, ends, shards)

    def close(self) -> None:
        for log in self._logs.values():
            log.close()

    def _of_partition(self, partition: int, end: int) -> Batches:
        reader, log, columns, entries = self._readers[partition], self._logs[partition], Columns(COLUMNS, partition), []
        for events in folded(self._ref.topic, reader, self._kafka.records(partition, reader.kafka_offset, end)):
            for number, value in events:
                recorded = decoded(self._ref.topic, partition, number, value)
                columns.add(recorded, value)
                entries.append(Entry(value, shard_of(recorded.event)))
            if len(entries) >= _EVENTS_PER_WRITE:
                log.write(Commit(entries))
                entries = []
                yield columns.batch()
        if entries:
            log.write(Commit(entries))
            yield columns.batch()


def _of_shards(logs: Mapping[int, EventLog], ends: Ends, shards: Shards) -> Batches:
    for partition, end in ends.items():
        log, columns = logs[partition], Columns(COLUMNS, partition)
        for shard in sorted(shards.get(partition, ())):
            for offset in shard_offsets(log, ShardKey(shard), 0, end):
                value = read_one(log, offset)
                columns.add(decode_event(offset, value), value)
        yield columns.batch()


def _other(ref: Ref, why: str) -> ReplayError:
    return ReplayError(f"{ref.text} is not the log any more that the watch has read: {why}; start the watch again")


def _stored_in(folder: Path) -> RocksDbLog:
    return RocksDbLog(
        folder,
        cluster_id="watched",
        new_cluster_id=lambda: "watched",
        cache_bytes=_CACHE_BYTES,
    )


@contextmanager
def followed(ref: Ref) -> Iterator[_Folder | _Topic]:
    """Open a log to follow from its first event on, until the `with` block ends. Raises ReplayError."""
    if isinstance(ref, LogRef):
        yield _Folder(ref)
        return
    with (
        TemporaryDirectory(prefix="topicwright-watched-") as folder,
        closing(TopicReader(ref.topic)) as kafka,
        closing(_Topic(ref, kafka, Path(folder))) as topic,
    ):
        yield topic


class Alerts:
    """The alerts so far, and the offsets checked."""

    def __init__(self) -> None:
        self._reported: set[tuple[Any, ...]] = set()
        self.next_offsets: Mapping[int, int] = {}

    def add(self, violation: Mapping[str, Any]) -> bool:
        """Add a violation; False if it was added before."""
        before = len(self._reported)
        self._reported.add(tuple(violation[name] for name in ("check", "log_partition", "shard", "offset", "seen")))
        return len(self._reported) > before

    @property
    def next_offset(self) -> int:
        """The offset up to which events were checked; for several partitions, the number of checked events."""
        return sum(self.next_offsets.values())

    @property
    def count(self) -> int:
        return len(self._reported)


POLL_EVERY_S = 1.0


def run_watch(_: object, ref: Ref, options: Options) -> Outcome:
    """Run `topicwright replay watch`: check events as they are written, until SIGINT or SIGTERM; `found` is true if
    there was an alert.

    `options.more` may have `every` (seconds between polls). With `options.all_rows` alerts are lines of JSON. Raises
    ReplayError, LogError and EventDecodeError, for example if the log is damaged.
    """
    alerts, as_json = Alerts(), options.all_rows
    every_s = float(options.more.get("every") or POLL_EVERY_S)
    with stopped_by_signals() as stop:
        _say(sys.stdout, as_json, {"watching": ref.text}, f"watching {ref.text}")
        follow(ref, alerts, sys.stdout, every_s, stop, as_json=as_json)
    found = many(alerts.count, "alert") if alerts.count else "all invariants held"
    line = f"watched up to {as_of(alerts.next_offsets)}: {found}" if alerts.next_offset else "no event was checked yet"
    return Outcome([], alerts.count > 0, [] if as_json else [line])


def follow(
    ref: Ref, alerts: Alerts, out: TextIO, every_s: float, stop: threading.Event, *, as_json: bool = False
) -> None:
    """Check the existing and the new events until stopped. Raises ReplayError, LogError and EventDecodeError."""
    before = Checkpoint((), ())
    with followed(ref) as log:
        while True:
            new = log.new()
            first = next(new, None)
            if first is not None:
                ends = ends_of_runs(before.runs)
                checked = check_again(chain([first], new), partial(log.before, ends), before, settle_ms=None)
                for row in checked.rows:
                    if alerts.add(row):
                        line = f"ALERT {row['check']}: {violation_line(row, has_partitions(ref))}"
                        _say(out, as_json, {name: row[name] for name in VIOLATION}, line)
                before = before._replace(runs=joined(checked.runs))
                alerts.next_offsets = ends_of_runs(before.runs)
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
