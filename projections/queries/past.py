"""Computes topics, brokers and settings of one log at any point in time, from the nearest snapshot before that point
and the events since; the base of `Query`.

Method. A snapshot (`events.logs.snapshots`) and a page of a list both have topics in the order of their shard keys. A
page reads the snapshot blocks that it needs, finds the later events of these keys in the index of shards, a few hundred
keys at once, and folds them. So a page costs its own topics and their events since the snapshot, whatever the
size of the log. The creation index (`controller.store.topic_indexes`) names the keys that may have got a topic since.
Without a snapshot the same steps begin at the first event.

Tail. Through the index, each later event costs one block read. To list all topics, it is five times as fast to read the
events once in log order. So a list of long pages gets a tail: all events since the snapshot, cached in
memory by shard key. A log caches one tail. It is dropped when its list ends, and may be replaced after
ABANDONED_AFTER_PAGES long pages of other points in time. A tail takes at most `TAIL_BYTES` for each name or event of a
page.

Non-goals: it takes no snapshots and no locks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import reduce
from heapq import merge
from itertools import chain, groupby, islice, starmap
from operator import itemgetter
from typing import NamedTuple, TypeVar

import msgspec

from controller.machine.state import Topic
from controller.store.topic_indexes import created_keys
from events.catalog import Recorded
from events.codec import decode_event, topic_of
from events.logs.log import SHARD, EventLog, shard_offsets, shard_runs
from events.logs.snapshots import Snapshot, SnapshotDamaged, nearest_snapshot
from events.names import ShardKey, shard_key
from projections.queries.snapshot_rows import snapshot_cluster, snapshot_creation, snapshot_topic, snapshot_topics
from projections.views.brokers import NO_CLUSTER, ClusterRow, fold_cluster
from projections.views.rows import Creation, TopicPast, TopicRow, fold_topic

PAUSE_S = 0.0002
"""The length of a pause: enough for the writing thread to get the interpreter lock."""
READ_FIRST, EVENTS_PER_PAUSE = 20, 250
"""The first events to read at once, as most pages need no more, and about how many to read between two pauses."""
KEYS_AT_ONCE = 250
"""Keys whose later events are looked up at once."""
LONG_PAGE = 500
"""The length of a long page, in topics. A caller that continues a list in long pages is assumed to list all topics."""
SCANNED_PER_PAUSE = 1000
"""Names and events of a list between two pauses: some milliseconds."""
TAIL_BYTES = 4096
"""The memory of a tail for each name or event that a page may scan: 80 MB for a single log."""
EVENT_BYTES = 150
"""The memory of an event in a tail besides its bytes."""
ABANDONED_AFTER_PAGES = 20
"""After this many long pages of other points in time, the list that uses a tail is assumed to be abandoned."""
SCANNED_MAX = 20_000
"""A page of a list of the past ends after so many names and events: some tenths of a second."""
MayShow = Callable[[str], bool]
"""True if the caller may see a topic of this name."""
_T = TypeVar("_T")
_Candidate = tuple[ShardKey, TopicRow | None]
"""A shard key, and its topic in the snapshot."""

given_up: ContextVar[threading.Event | None] = ContextVar("given_up", default=None)
"""Set when the caller of this context's query no longer waits."""


class QueryClosed(RuntimeError):
    """The query was closed, or its caller gave up, while it ran."""


def everything(_: object) -> bool:
    return True


class TopicPage(msgspec.Struct, frozen=True):
    """Topics ordered by shard key; the next page starts after the key `reached`, None at the end."""

    rows: tuple[TopicRow, ...]
    reached: ShardKey | None


class Tail(NamedTuple):
    """The events from `start` until before `end`, by shard key; None if they exceed the limit, so that no page
    reads them again."""

    start: int
    end: int
    events: Mapping[ShardKey, Sequence[tuple[int, bytes]]] | None


class Past:
    """The past of one log. A query calls `pause` at regular intervals."""

    def __init__(self, log: EventLog) -> None:
        self.log = log
        self._closed = threading.Event()
        self._tail: Tail | None = None
        self._passed_by = 0
        """Long pages of other points in time since the tail was used."""
        self._cluster: tuple[int, ClusterRow] = (0, NO_CLUSTER)
        self._archived: Snapshot | None = None

    def close(self) -> None:
        """Make running queries raise QueryClosed."""
        self._closed.set()

    def pause(self) -> None:
        if self._closed.wait(PAUSE_S):
            raise QueryClosed("the service is stopping")
        abandoned = given_up.get()
        if abandoned is not None and abandoned.is_set():
            raise QueryClosed("the caller no longer waits for the response")

    def topics_under(self, keys: Sequence[ShardKey], end: int, may_show: MayShow) -> list[TopicRow | None]:
        """The topic of each shard key at the offset `end`; None if there is none or the caller may not see it."""

        def rows(snapshot: Snapshot | None) -> list[TopicRow | None]:
            there = ((key, None if snapshot is None else snapshot_topic(snapshot, key)) for key in keys)
            return [row for _, row, _ in self._each(there, KEYS_AT_ONCE, _start(snapshot), end, may_show)]

        return self._from_nearest(end, rows)

    def archived_creation(self, topic: Topic) -> Creation | None:
        """The creation of a topic whose creation events are in the archive, from a snapshot."""
        snapshot, start = self._archived, self.log.start_offset
        if snapshot is None or snapshot.offset < start:
            self._archived = snapshot = nearest_snapshot(self.log, self.log.durable_offset)
        with suppress(SnapshotDamaged, msgspec.DecodeError, OSError):
            found = None if snapshot is None else snapshot_creation(snapshot, shard_key(topic.name))
            return found if found is not None and found.created_offset == topic.created_offset else None
        return None

    def topics_at(
        self, end: int, after: str, limit: int, may_show: MayShow = everything, scanned_max: int = SCANNED_MAX
    ) -> TopicPage:
        """Up to `limit` topics ordered by shard key, from the first key after `after` on ("" for the first page).

        A topic is folded only if `may_show` allows its name. A page ends early after `scanned_max` names and events.
        """

        def page(snapshot: Snapshot | None) -> TopicPage:
            rows: list[TopicRow] = []
            scanned, pause_at, continues = 0, SCANNED_PER_PAUSE, after != "" and limit >= LONG_PAGE
            start, at_once = _start(snapshot), min(limit + 1, KEYS_AT_ONCE)
            tail = self._tail_of(start, end, scanned_max * TAIL_BYTES, continues=continues)
            for key, row, events in self._each(
                self._candidates(snapshot, end, after), at_once, start, end, may_show, tail
            ):
                scanned += 1 + events
                if row is not None and len(rows) == limit:
                    return TopicPage(tuple(rows), shard_key(rows[-1].name))
                rows += () if row is None else (row,)
                if scanned >= scanned_max:
                    return TopicPage(tuple(rows), key)
                if scanned >= pause_at:
                    pause_at = scanned + SCANNED_PER_PAUSE
                    self.pause()
            if tail is not None and self._tail is tail:
                self._tail = None  # its list has ended
            return TopicPage(tuple(rows), None)

        return self._from_nearest(end, page)

    def cluster_at(self, end: int) -> ClusterRow:
        """Brokers and settings at the offset `end`."""

        def row_at_end(snapshot: Snapshot | None) -> ClusterRow:
            start, row = self._cluster
            if start > end:
                start, row = 0, NO_CLUSTER
            if snapshot is not None and snapshot.offset > start:
                stored = snapshot_cluster(snapshot)
                if stored is not None:
                    start, row = snapshot.offset, stored
            for record in self.events_of(None, start, end):
                row = fold_cluster(row, record)
            if end >= self._cluster[0]:
                self._cluster = (end, row)
            return row

        return self._from_nearest(end, row_at_end)

    def decoded(self, offsets: Iterable[int]) -> Iterator[Recorded]:
        """The events at some offsets."""
        left, at_once = iter(offsets), READ_FIRST
        while some := list(islice(left, at_once)):
            yield from map(decode_event, some, self.log.read_many(some))
            if 2 * len(some) > EVENTS_PER_PAUSE:
                self.pause()
            at_once = min(2 * at_once, EVENTS_PER_PAUSE)

    def events_of(self, topic: str | None, start: int = 0, end: int | None = None) -> Iterator[Recorded]:
        """The events of all topics that ever had this name, and of refused requests, in order. Without a name those of
        brokers and settings, which have the shard key ""; requests for a topic with an empty name have it too."""
        stop = self.log.durable_offset if end is None else end
        records = self.decoded(shard_offsets(self.log, shard_key(topic or ""), start, stop))
        return (record for record in records if topic_of_record(record) == topic)

    # --- inside

    def _from_nearest(self, end: int, work: Callable[[Snapshot | None], _T]) -> _T:
        """The result of `work` from the nearest snapshot, or from the previous one if the nearest is damaged."""
        at_most = end
        while (snapshot := nearest_snapshot(self.log, at_most)) is not None:
            with snapshot:
                try:
                    return work(snapshot)
                except (SnapshotDamaged, msgspec.DecodeError, OSError):
                    at_most = snapshot.offset - 1
        return work(None)

    def _tail_of(self, start: int, end: int, bytes_max: int, *, continues: bool) -> Tail | None:
        """The cached tail, if it has this range. Otherwise a long page that continues a list replaces it, unless
        another list uses it. None if there is no such tail. Any thread may call this: a tail does not change."""
        tail = self._tail
        if tail is None or (tail.start, tail.end) != (start, end):
            if not continues:
                return None
            if tail is not None and self._passed_by < ABANDONED_AFTER_PAGES:
                self._passed_by += 1
                return None
            tail = self._tail = self._read_tail(start, end, bytes_max)
        self._passed_by = 0
        return None if tail.events is None else tail

    def _read_tail(self, start: int, end: int, bytes_max: int) -> Tail:
        events: dict[ShardKey, list[tuple[int, bytes]]] = {}
        for offset, value in self.log.read(start, end):
            events.setdefault(shard_key(topic_of(offset, value) or ""), []).append((offset, value))
            bytes_max -= len(value) + EVENT_BYTES
            if bytes_max < 0:
                return Tail(start, end, None)
            if offset % SCANNED_PER_PAUSE == 0:
                self.pause()
        return Tail(start, end, events)

    def _each(
        self,
        candidates: Iterator[_Candidate],
        at_once: int,
        start: int,
        end: int,
        may_show: MayShow,
        tail: Tail | None = None,
    ) -> Iterator[tuple[ShardKey, TopicRow | None, int]]:
        """The keys of candidates, each with its visible topic and the number of events that were folded."""
        while some := list(islice(candidates, at_once)):
            visible = {key: None for key, _ in some if _may_show_some(key, may_show)}
            if tail is None or tail.events is None:
                later = self._events_under(list(visible), start, end)
            else:
                stored = (tail.events.get(key, ()) for key in visible)
                later = ((len(of_key), starmap(decode_event, of_key)) for of_key in stored)
            for key, topic in some:
                number, events = next(later) if key in visible else (0, ())
                yield key, _folded(topic, events, may_show), number

    def _events_under(self, keys: Sequence[ShardKey], start: int, end: int) -> Iterator[tuple[int, Iterable[Recorded]]]:
        """For each key the number of its events, and the events, which must be read before the next ones."""
        while keys:
            found = shard_runs(self.log, keys, start, end)
            if found == [None]:  # too many ranges to hold
                number = sum(map(len, self.log.runs(SHARD, keys[0], start, end)))
                yield number, self.decoded(shard_offsets(self.log, keys[0], start, end))
            runs = [of_key for of_key in found if of_key is not None]
            events = self.decoded(chain.from_iterable(chain.from_iterable(runs)))
            for of_key in runs:
                number = sum(map(len, of_key))
                yield number, islice(events, number)
            keys = keys[len(found) :]

    def _candidates(self, snapshot: Snapshot | None, end: int, after: str) -> Iterator[_Candidate]:
        stored: Iterable[_Candidate] = () if snapshot is None else snapshot_topics(snapshot, after)
        later: Iterable[_Candidate] = ((key, None) for key in created_keys(self.log, _start(snapshot), end, after))
        by_key = groupby(merge(stored, later, key=itemgetter(0)), itemgetter(0))
        return (next(same) for _, same in by_key)  # of the same key the stored one comes first


def _start(snapshot: Snapshot | None) -> int:
    return 0 if snapshot is None else snapshot.offset


def _may_show_some(key: ShardKey, may_show: MayShow) -> bool:
    """True if the caller may see a topic under a key. A key with "_" may stand for several names (`.` becomes `_`)."""
    return "_" in key or may_show(key)


def _folded(topic: TopicRow | None, events: Iterable[Recorded], may_show: MayShow) -> TopicRow | None:
    """The visible topic of a key: the topic in the snapshot with the later events applied. Several names may have the
    key, but only one topic exists at a time."""
    row = reduce(fold_topic, events, TopicPast(topic)).row
    return row if row is not None and may_show(row.name) else None


def topic_of_record(record: Recorded) -> str | None:
    """The topic name of an event, if it has one."""
    return getattr(record.event, "topic", None)
