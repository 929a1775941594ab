"""When snapshots are taken, what is in them, and which are kept.

What they are for: the state of any moment is the nearest snapshot before it and the events between the two, so what a
question about the past takes does not grow with the log.

Method. `reached` is called, on the thread that writes, whenever all that was written is durable. Every so many events
it freezes the log's state keys, which takes a moment, and has them written beside deciding. So a snapshot is of one
offset, and of nothing that a power cut could take back. Of a state with many topics it is taken more rarely: it costs
some microseconds a topic, and may cost no more than a small part of the events that it stands for.

In it are the state keys that say something of their own (KEPT); the others follow from them. `with_views` puts in, at
their places, what readers want beside them.

Kept are at most KEPT_MAX, evenly over the log: when there are more, every other one goes. Those that are missing, as of
a log of an earlier release, or damaged, are made anew from the one before and the events since
(`projections.store.refolding`).

What it does not do: read clocks, choose threads (`run` has work done in one, one piece at a time), or write log lines.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from typing import Protocol

from events.logs.log import EventLog
from events.logs.snapshots import (
    SnapshotDamaged,
    SnapshotInfo,
    open_snapshot,
    remove_snapshot,
    remove_unfinished,
    snapshot_info,
    snapshot_offsets,
    store_snapshot,
)
from projections.store.refolding import KEPT, Refold

KEPT_MAX = 64
"""Of a hundred thousand topics each takes about six MiB."""
EVENTS_PER_TOPIC = 2
"""A snapshot stands for at least so many events for each of its topics."""
PAIRS_PER_STRETCH = 250
"""How many state keys are written between two rests."""
REST_S = 0.0005

Pairs = Iterator[tuple[bytes, bytes]]


class FreezableLog(EventLog, Protocol):
    """A log whose state keys can be read as they are now while it is written."""

    def frozen_scan(self, prefixes: Sequence[bytes]) -> Pairs:
        """The state keys under some prefixes, all as they are now; the iterator is to be closed."""
        ...


class Reports(Protocol):
    """Who wants to know."""

    def snapshot_taken(self, offset: int, size: int) -> None:
        """There is one more, of so many bytes."""
        ...

    def snapshot_failed(self, why: str) -> None:
        """One could not be taken, or had to be thrown away; it is tried again later."""
        ...


class _Stopped(Exception):
    """Nothing more is to be written."""


class Snapshotting:
    """Takes the snapshots of one log. `begin`, `reached` and `close` are called on the thread that writes."""

    def __init__(
        self,
        log: FreezableLog,
        interval_events: int,
        run: Callable[[Callable[[], None]], object],
        with_views: Callable[[int, Pairs], Pairs],
        reports: Reports,
    ) -> None:
        """`interval_events` 0 takes none."""
        self._log = log
        self._interval = interval_events
        self._run = run
        self._with_views = with_views
        self._reports = reports
        self._stopped = threading.Event()
        self._busy = False
        self.next_at = 0
        """The offset from which on the next one is taken."""
        self.newest = 0
        """The offset of the newest snapshot, 0 without one."""

    def begin(self, *, anew: bool = True) -> None:
        """Throw away what is of no use, make `anew` what is missing. Raises OSError for a folder that cannot be
        read."""
        if self._interval:
            self.newest = max(snapshot_offsets(self._log), default=0)
            self.next_at = self.newest + self._interval
            self._start(self._tidy if anew else self._throw_away)

    def close(self) -> None:
        """Let what is at work in the other thread end, with nothing half done."""
        self._stopped.set()

    def reached(self, topics: int) -> None:
        """The log is durable to its end, with so many topics: take a snapshot if it is time. Raises LogError."""
        end = self._log.next_offset
        if not self._interval or end < self.next_at or self._busy or self._log.durable_offset != end:
            return
        self.next_at = end + max(self._interval, topics * EVENTS_PER_TOPIC)
        about, frozen = snapshot_info(self._log, end), self._log.frozen_scan(KEPT)
        self._start(lambda: self._take(about, frozen))

    # --- in the other thread

    def _start(self, work: Callable[[], None]) -> None:
        self._busy = True
        self._run(lambda: self._guarded(work))

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except _Stopped:
            pass
        except Exception as error:  # whatever it is: snapshots can be done without, and deciding goes on
            if not self._stopped.is_set():
                self._reports.snapshot_failed(f"{type(error).__name__}: {error}")
        finally:
            self._busy = False

    def _take(self, about: SnapshotInfo, frozen: Pairs) -> None:
        try:
            with closing(frozen):  # type: ignore[type-var]
                self._put(about, frozen)
        except SnapshotDamaged:  # the one before
            self._tidy()
        self._thin()

    def _put(self, about: SnapshotInfo, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        size = store_snapshot(self._log, about, self._with_views(about.offset, resting(pairs, self._rest)))
        self.newest = max(self.newest, about.offset)
        self._reports.snapshot_taken(about.offset, size)

    def _rest(self) -> None:
        if self._stopped.wait(REST_S):
            raise _Stopped

    def _throw_away(self) -> None:
        remove_unfinished(self._log)
        for offset in snapshot_offsets(self._log):
            self._rest()
            try:
                with open_snapshot(self._log, offset) as snapshot:
                    snapshot.check()
            except SnapshotDamaged as error:
                self._reports.snapshot_failed(f"{error}; it is thrown away")
                remove_snapshot(self._log, offset)
        self._thin()

    def _tidy(self) -> None:
        self._throw_away()
        end = self._log.durable_offset
        wanted = missing(snapshot_offsets(self._log), end, spacing(self._interval, end))
        if wanted:
            refold = Refold(self._log, self._rest)
            for offset in wanted:
                at = refold.go_to(offset)
                self._put(snapshot_info(self._log, at), refold.pairs())

    def _thin(self) -> None:
        for offset in too_many(snapshot_offsets(self._log), self._interval):
            remove_snapshot(self._log, offset)


def resting(pairs: Iterable[tuple[bytes, bytes]], rest: Callable[[], None]) -> Pairs:
    """The same pairs, with a rest now and then."""
    for number, pair in enumerate(pairs):
        if number % PAIRS_PER_STRETCH == 0:
            rest()
        yield pair


def spacing(interval: int, end: int) -> int:
    """How far apart snapshots of a log that ends there are: `interval`, doubled until no more than KEPT_MAX fit."""
    while end // interval > KEPT_MAX:
        interval *= 2
    return interval


def too_many(offsets: Sequence[int], interval: int) -> list[int]:
    """Of the offsets of snapshots, in order, those to be removed; the newest is not among them."""
    newest = offsets[-1] if offsets else 0
    apart, kept = spacing(interval, newest), list(offsets)
    while len(kept) > KEPT_MAX:
        kept, last = [], -apart
        for offset in offsets:
            if offset - last >= apart or offset == newest:
                kept.append(offset)
                last = offset
        apart *= 2
    return [offset for offset in offsets if offset not in set(kept)]


def missing(offsets: Sequence[int], end: int, apart: int) -> list[int]:
    """Where snapshots are to be made anew so that none is more than twice `apart` from the one before."""
    return [at for start, stop in pairwise([0, *offsets, end]) for at in range(start + apart, stop - apart + 1, apart)]
