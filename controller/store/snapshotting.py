"""Takes, rebuilds and removes snapshots of a log's state keys.

Purpose: a query on the past applies the events since the nearest snapshot, so it takes the same time however long the
log is.

Method. The writing thread calls `take_if_due` when everything written is durable. Every `interval_events` events it
freezes the state keys, which is quick, and another thread writes them. So a snapshot belongs to one offset, and a power
cut cannot revoke it. A snapshot takes some microseconds a topic, so a state of many topics has fewer snapshots. It has
the kinds of keys in SNAPSHOT_KINDS, from which all other keys follow; `with_views` adds keys for readers.

At most SNAPSHOTS_MAX snapshots are retained, evenly spaced: if there are more, every other one is removed. Missing and
damaged ones are rebuilt from the previous one and later events. A rebuilt snapshot has the very bytes that were
committed with the events. Rebuilding takes memory for the stored bytes of all topics and a bounded number of decoded
ones. If older events may be in the archive only, missing snapshots are not rebuilt: the worker that archives stores
its snapshots there too, from where others copy missing ones.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import pairwise

import structlog

from controller.machine.apply import apply
from controller.machine.state import ALL_TOPICS
from controller.store.keys import ACL, HELD, QUOTA, RULES, SCRAM, Puts
from controller.store.store import CLUSTER, WAITING, TopicStore, stored_counts
from controller.store.stored_topics import TOPIC, is_creation_key
from events.catalog import Cause
from events.codec import decode_event
from events.logs.archive.store import ArchiveStore
from events.logs.log import EventLog, LogError, MemoryKeys, StateKeys
from events.logs.rocksdb_log import RocksDbLog
from events.logs.snapshots import (
    SnapshotDamaged,
    SnapshotInfo,
    nearest_snapshot,
    open_snapshot,
    remove_snapshot,
    remove_unfinished,
    snapshot_info,
    snapshot_offsets,
    store_snapshot,
)

SNAPSHOTS_MAX = 64
"""A snapshot of a hundred thousand topics takes about six MiB."""
EVENTS_PER_TOPIC = 2
"""The least number of events between snapshots for each topic."""
PAIRS_PER_PAUSE = 250
"""State keys to write between two pauses."""
PAUSE_S = 0.0005

Pairs = Iterator[tuple[bytes, bytes]]


class Snapshotting:
    """The snapshots of one log. `begin`, `take_if_due` and `close` must be called on the writing thread."""

    def __init__(self, log: RocksDbLog, interval_events: int, with_views: Callable[[int, Pairs], Pairs]) -> None:
        """With `interval_events` 0 no snapshots are taken, rebuilt or copied. `with_views` adds the keys for readers to
        the state keys at an offset."""
        self._log, self._interval, self._with_views = log, interval_events, with_views
        self._lines = structlog.get_logger("topicwright")
        self.thread: Executor = ThreadPoolExecutor(1, thread_name_prefix="snapshot")
        self._stopped = threading.Event()
        self._busy = False
        self.next_at = 0
        """The offset from which on the next snapshot is due."""
        self.newest = 0
        """The offset of the newest snapshot, 0 without one."""

    def begin(self, *, rebuild: bool = False, archive: ArchiveStore | None = None) -> None:
        """Remove damaged snapshots, and rebuild missing ones if `rebuild`, or copy them from `archive`. Raises OSError
        if the folder cannot be read."""
        if self._interval:
            self.newest = max(snapshot_offsets(self._log), default=0)
            self.next_at = self.newest + self._interval
            self._start(self._repair if rebuild else self._remove_damaged)
            if archive is not None:
                self._start(partial(self._copy, archive))

    def close(self, *, wait: bool = False) -> None:
        """End the work in the thread, and with `wait` wait for its end. A snapshot is written in full or not at all."""
        self._stopped.set()
        self.thread.shutdown(wait=wait)

    def take_if_due(self) -> None:
        """Take a snapshot if one is due: the log is durable to its end. Raises LogError."""
        end = self._log.next_offset
        if not self._interval or end < self.next_at or self._busy or self._log.durable_offset != end:
            return
        topics = stored_counts(self._log, ALL_TOPICS).topics
        self.next_at = end + max(self._interval, topics * EVENTS_PER_TOPIC)
        about, frozen = snapshot_info(self._log, end), self._log.frozen_scan(SNAPSHOT_KINDS)
        self._start(lambda: self._take(about, frozen))

    # --- in the thread

    def _start(self, work: Callable[[], None]) -> None:
        self._busy = True
        self.thread.submit(self._guarded, work)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # snapshots are optional: deciding must go on
            if not self._stopped.is_set():
                self._lines.warning("no snapshot", why=f"{type(error).__name__}: {error}")
        finally:
            self._busy = False

    def _take(self, about: SnapshotInfo, frozen: Pairs) -> None:
        try:
            with closing(frozen):  # type: ignore[type-var]
                self._put(about, frozen)
        except SnapshotDamaged:  # the previous one is damaged
            self._repair()
        self._remove_surplus()

    def _put(self, about: SnapshotInfo, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        size = store_snapshot(self._log, about, self._with_views(about.offset, with_pauses(pairs, self._pause)))
        self.newest = max(self.newest, about.offset)
        self._lines.info("snapshot taken", offset=about.offset, bytes=size)

    def _pause(self) -> None:
        if self._stopped.wait(PAUSE_S):
            raise CancelledError

    def _remove_damaged(self) -> None:
        remove_unfinished(self._log)
        for offset in snapshot_offsets(self._log):
            self._pause()
            try:
                with open_snapshot(self._log, offset) as snapshot:
                    snapshot.check()
            except SnapshotDamaged as error:
                self._lines.warning("no snapshot", why=f"{error}; it was removed")
                remove_snapshot(self._log, offset)
        self._remove_surplus()

    def _repair(self) -> None:
        self._remove_damaged()
        end = self._log.durable_offset
        offsets = missing(snapshot_offsets(self._log), end, spacing(self._interval, end))
        if offsets:
            refold = StateRebuild(self._log, self._pause)
            for offset in offsets:
                at = refold.go_to(offset)
                self._put(snapshot_info(self._log, at), refold.pairs())

    def _remove_surplus(self) -> None:
        for offset in too_many(snapshot_offsets(self._log), self._interval):
            remove_snapshot(self._log, offset)

    def _copy(self, archive: ArchiveStore) -> None:
        from events.logs.archive.base import download_snapshots  # imports pyarrow

        try:
            copied = download_snapshots(archive, self._log, self._pause)
        except (LogError, OSError) as error:
            if not self._stopped.is_set():
                self._lines.warning("snapshots not copied", why=str(error))
        else:
            self._lines.info("snapshots copied", folder=str(self._log.path), count=copied)


def with_pauses(pairs: Iterable[tuple[bytes, bytes]], pause: Callable[[], None]) -> Pairs:
    """Yields the same pairs, and calls `pause` every PAIRS_PER_PAUSE of them."""
    for number, pair in enumerate(pairs):
        if number % PAIRS_PER_PAUSE == 0:
            pause()
        yield pair


def spacing(interval: int, end: int) -> int:
    """The number of events between snapshots of a log that ends at `end`: `interval`, doubled until at most
    SNAPSHOTS_MAX fit."""
    while end // interval > SNAPSHOTS_MAX:
        interval *= 2
    return interval


def too_many(offsets: Sequence[int], interval: int) -> list[int]:
    """The offsets of the snapshots to remove, never the newest."""
    newest = offsets[-1] if offsets else 0
    apart, kept = spacing(interval, newest), list(offsets)
    while len(kept) > SNAPSHOTS_MAX:
        kept, last = [], -apart
        for offset in offsets:
            if offset - last >= apart or offset == newest:
                kept.append(offset)
                last = offset
        apart *= 2
    return [offset for offset in offsets if offset not in set(kept)]


def missing(offsets: Sequence[int], end: int, apart: int) -> list[int]:
    """The offsets at which to rebuild snapshots so that gaps are at most twice `apart`."""
    return [at for start, stop in pairwise([0, *offsets, end]) for at in range(start + apart, stop - apart + 1, apart)]


SNAPSHOT_KINDS = tuple(sorted((ACL, CLUSTER, HELD, QUOTA, RULES, SCRAM, TOPIC, WAITING)))
"""The kinds of state keys in a snapshot, in order; all others can be derived."""
EVENTS_PER_COMMIT = 500
PARTITIONS_CACHED = 25_000


class StateRebuild:
    """Rebuilds the state keys of a log at increasing offsets. `pause` is called now and then, and may raise."""

    def __init__(self, log: EventLog, pause: Callable[[], None], *, from_scratch: bool = False) -> None:
        """With `from_scratch` no snapshot is used."""
        self._log = log
        self._from_scratch = from_scratch
        self._pause = pause
        self._at = -1

    def go_to(self, offset: int) -> int:
        """Go to an offset, not below the last one, or to the end of the command there; returns the offset reached.
        Raises LogError, SnapshotDamaged, CannotApply."""
        self._start_near(offset)
        cause: Cause | None = None
        for number, value in self._log.read(self._at):
            record = decode_event(number, value)
            if number >= offset and record.cause != cause:
                break
            apply(self._state, record)
            cause, self._at = record.cause, number + 1
            if self._at % EVENTS_PER_COMMIT == 0:
                self._commit()
        self._commit()
        return self._at

    def pairs(self) -> Iterator[tuple[bytes, bytes]]:
        """The state keys of a snapshot, in order."""
        return state_keys(self._keys)

    def _start_near(self, offset: int) -> None:
        snapshot = None if self._from_scratch else nearest_snapshot(self._log, offset)
        if snapshot is None:
            if self._at < 0:
                self._load({}, 0)
            return
        with snapshot:
            if snapshot.offset > self._at:
                self._load(dict(state_keys(snapshot)), snapshot.offset)

    def _load(self, keys: Puts, offset: int) -> None:
        self._keys = MemoryKeys()
        self._put(keys)
        self._store = TopicStore(self._keys, PARTITIONS_CACHED)
        self._state = self._store.state()
        self._at = offset

    def _commit(self) -> None:
        self._put(self._store.changes(self._state))
        self._store.became_durable(self._state)
        self._pause()

    def _put(self, changes: Puts) -> None:
        self._keys.put({key: changes[key] for key in changes if key[:1] in SNAPSHOT_KINDS})


def state_keys(keys: StateKeys) -> Iterator[tuple[bytes, bytes]]:
    """The state keys of a snapshot or log, in order, without a snapshot's keys for readers. Raises SnapshotDamaged."""
    return (pair for prefix in SNAPSHOT_KINDS for pair in keys.scan(prefix) if not is_creation_key(pair[0]))
