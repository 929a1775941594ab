"""Topics, brokers and settings of one log at any point in time: the nearest snapshot before it, and the events since.

Method. A snapshot (`events.logs.snapshots`) and a page of a list both have topics in the order of their shard keys. A
page reads the snapshot blocks that it needs, finds the later events of these keys in the index of shards, a few hundred
keys at once, and folds them. So a page costs its own topics and what happened to them since the snapshot, whatever the
size of the log. The creation index (`projections.store.creation_index`) names the keys that may have got a topic since.
Without a snapshot the same steps begin at the first event.

Tail. Listing all topics through the index would read every later event in a block of its own. To read them in their
order takes a fifth of that, once: long pages that continue a list do so (`Tails.of`) and keep the bytes. A log keeps one
tail, until its list ends or other lists have asked for long pages for a while. It takes the bytes of the events, no more
than `TAIL_BYTES` allows, and about 100 bytes a key; the garbage collector tracks nothing in it event by event.

What it does not do: it takes no snapshots and no locks.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, count, groupby, islice
from typing import TypeVar

import msgspec

from controller.machine.state import Topic
from events.catalog import Recorded
from events.codec import decode_event, topic_of
from events.logs.log import EventLog
from events.logs.snapshot_file import Snapshot, SnapshotDamaged
from events.logs.snapshots import nearest_snapshot
from events.names import CLUSTER_SHARD, ShardKey, shard_key
from projections.queries.snapshot_rows import snapshot_cluster, snapshot_topic, snapshot_topics
from projections.store.creation_index import born
from projections.views.brokers import NO_CLUSTER, ClusterRow, fold_cluster
from projections.views.topics import NO_PAST, TopicPast, TopicRow, fold_topics

EVENTS_PER_STRETCH = 250
"""How many events are read between two rests."""
KEYS_AT_ONCE = 250
"""Of how many keys the later events are found in one go."""
LONG_PAGE = 500
"""Who goes on with a list in pages of so many topics lists all of them."""
LOOKED_AT_PER_REST = 1000
"""Of names and events, of a list: some milliseconds. The interpreter is handed on in between as others want it."""
TAIL_BYTES = 4096
"""So much memory may be taken for each name or event that a page looks at: 80 MB for that of the only log."""
MayShow = Callable[[str], bool]
"""Whether a topic of a name is shown."""
_T = TypeVar("_T")
_Candidate = tuple[ShardKey, TopicRow | None]
"""A key, and the topic that it had in the snapshot."""


class TopicPage(msgspec.Struct, frozen=True):
    """Topics in the order of their shard keys; `reached` is the key to go on after, None at the end."""

    rows: tuple[TopicRow, ...]
    reached: ShardKey | None


class Past:
    """The past of one log. `rest` is called between stretches of work, and may raise to end it."""

    def __init__(self, log: EventLog, rest: Callable[[], None]) -> None:
        self._log = log
        self._rest = rest
        self._tails = Tails(log, rest)
        self._cluster: tuple[int, ClusterRow] = (0, NO_CLUSTER)
        self._births: Snapshot | None = None

    def topic(self, name: str, end: int) -> TopicRow | None:
        """The topic of this name as it was."""
        return self._from_nearest(end, lambda snapshot: self._topic(snapshot, name, end))

    def under(self, keys: Sequence[ShardKey], end: int, may_show: MayShow) -> list[TopicRow | None]:
        """The topics under some shard keys as they were; None where there was none, or it is not shown."""

        def rows(snapshot: Snapshot | None) -> list[TopicRow | None]:
            there = [(key, None if snapshot is None else snapshot_topic(snapshot, key)) for key in keys]
            return [row for _, row, _ in self._each_under(there, _start(snapshot), end, may_show)]

        return self._from_nearest(end, rows)

    def birth(self, topic: Topic) -> TopicRow | None:
        """The row, as it was, of a topic whose creation is in the archive: a snapshot has what its events say."""
        snapshot, start = self._births, self._log.start_offset
        if snapshot is None or snapshot.offset < start:
            self._births = snapshot = nearest_snapshot(self._log, self._log.durable_offset)
        with suppress(SnapshotDamaged, msgspec.DecodeError, OSError):
            row = None if snapshot is None else snapshot_topic(snapshot, shard_key(topic.name))
            return row if row is not None and row.created_offset == topic.created_offset else None
        return None

    def topics(self, end: int, after: str, limit: int, may_show: MayShow, looked_at_max: int) -> TopicPage:
        """Up to `limit` topics as they were, in the order of their shard keys, after one of these ("": from the first).

        `may_show` is given each name before it is folded. A page ends early once it has looked at `looked_at_max` names
        and events.
        """
        return self._from_nearest(
            end, lambda snapshot: self._topics(snapshot, end, after, limit, may_show, looked_at_max)
        )

    def cluster(self, end: int) -> ClusterRow:
        """Brokers and settings as they were."""
        return self._from_nearest(end, lambda snapshot: self._cluster_from(snapshot, end))

    def decoded(self, offsets: Iterable[int]) -> Iterator[Recorded]:
        """The events at some offsets, with rests."""
        left = iter(offsets)
        while some := list(islice(left, EVENTS_PER_STRETCH)):
            yield from map(decode_event, some, self._log.read_many(some))
            if len(some) == EVENTS_PER_STRETCH:
                self._rest()

    # --- inside

    def _from_nearest(self, end: int, work: Callable[[Snapshot | None], _T]) -> _T:
        """What comes of work that begins at the nearest snapshot; at the one before where that turns out damaged."""
        at_most = end
        while (snapshot := nearest_snapshot(self._log, at_most)) is not None:
            with snapshot:
                try:
                    return work(snapshot)
                except (SnapshotDamaged, msgspec.DecodeError, OSError):
                    at_most = snapshot.offset - 1
        return work(None)

    def _topic(self, snapshot: Snapshot | None, name: str, end: int) -> TopicRow | None:
        return self._folded(name, _begun(snapshot, name), _start(snapshot), end).row

    def _folded(self, name: str, past: TopicPast, start: int, end: int) -> TopicPast:
        events = self.decoded(self._log.shard_offsets(shard_key(name), start, end))
        return fold_topics(past, (record for record in events if _topic_of(record) == name))

    def _topics(
        self, snapshot: Snapshot | None, end: int, after: str, limit: int, may_show: MayShow, looked_at_max: int
    ) -> TopicPage:
        rows: list[TopicRow] = []
        looked_at, rest_at, goes_on = 0, LOOKED_AT_PER_REST, after != "" and limit >= LONG_PAGE
        tail = self._tails.of(_start(snapshot), end, looked_at_max * TAIL_BYTES, goes_on=goes_on)
        for key, row, events in self._each(snapshot, end, after, min(limit + 1, KEYS_AT_ONCE), may_show, tail):
            looked_at += 1 + events
            if row is not None and len(rows) == limit:
                return TopicPage(tuple(rows), shard_key(rows[-1].name))
            rows += () if row is None else (row,)
            if looked_at >= looked_at_max:
                return TopicPage(tuple(rows), key)
            if looked_at >= rest_at:
                rest_at = looked_at + LOOKED_AT_PER_REST
                self._rest()
        self._tails.let_go(tail)
        return TopicPage(tuple(rows), None)

    def _each(
        self, snapshot: Snapshot | None, end: int, after: str, at_once: int, may_show: MayShow, tail: Tail | None
    ) -> Iterator[tuple[ShardKey, TopicRow | None, int]]:
        """The keys that may have had a topic, each with it, if it is shown, and how many events were folded for it."""
        candidates = self._candidates(snapshot, end, after)
        if tail is not None:
            for key, topic in candidates:
                events = tail.events(key) if _may_show_some(key, may_show) else []
                yield key, _folded(topic, events, may_show), len(events)
            return
        while some := list(islice(candidates, at_once)):
            yield from self._each_under(some, _start(snapshot), end, may_show)

    def _each_under(
        self, some: Sequence[_Candidate], start: int, end: int, may_show: MayShow
    ) -> Iterator[tuple[ShardKey, TopicRow | None, int]]:
        while some:
            runs = self._log.shard_runs([key for key, _ in some], start, end)
            yield from self._each_of(some[: len(runs)], runs, (start, end), may_show)
            some = some[len(runs) :]

    def _each_of(
        self,
        some: Sequence[_Candidate],
        runs: Sequence[Sequence[range] | None],
        span: tuple[int, int],
        may_show: MayShow,
    ) -> Iterator[tuple[ShardKey, TopicRow | None, int]]:
        shown = [_may_show_some(key, may_show) for key, _ in some]
        together = chain.from_iterable(of_key or () for of_key, show in zip(runs, shown, strict=True) if show)
        events = self.decoded(chain.from_iterable(together))
        for (key, topic), of_key, show in zip(some, runs, shown, strict=True):
            if not show:
                yield key, None, 0
            elif of_key is None:
                seen = count()
                offsets = (offset for offset, _ in zip(self._log.shard_offsets(key, *span), seen, strict=False))
                yield key, _folded(topic, self.decoded(offsets), may_show), next(seen)
            else:
                number = sum(map(len, of_key))
                yield key, _folded(topic, islice(events, number), may_show), number

    def _candidates(self, snapshot: Snapshot | None, end: int, after: str) -> Iterator[_Candidate]:
        later = born(self._log, _start(snapshot), end, after)
        next_born = next(later, None)
        for key, row in () if snapshot is None else snapshot_topics(snapshot, after):
            while next_born is not None and next_born <= key:
                if next_born != key:
                    yield next_born, None
                next_born = next(later, None)
            yield key, row
        if next_born is not None:
            yield next_born, None
            yield from ((key, None) for key in later)

    def _cluster_from(self, snapshot: Snapshot | None, end: int) -> ClusterRow:
        start, row = self._cluster
        if start > end:
            start, row = 0, NO_CLUSTER
        if snapshot is not None and snapshot.offset > start:
            stored = snapshot_cluster(snapshot)
            if stored is not None:
                start, row = snapshot.offset, stored
        for record in self.decoded(self._log.shard_offsets(CLUSTER_SHARD, start, end)):
            if _topic_of(record) is None:  # requests for a topic without a name have the same key
                row = fold_cluster(row, record)
        if end >= self._cluster[0]:
            self._cluster = (end, row)
        return row


def _begun(snapshot: Snapshot | None, name: str) -> TopicPast:
    row = None if snapshot is None else snapshot_topic(snapshot, shard_key(name))
    return NO_PAST if row is None or row.name != name else TopicPast(row)


def _start(snapshot: Snapshot | None) -> int:
    return 0 if snapshot is None else snapshot.offset


def _may_show_some(key: ShardKey, may_show: MayShow) -> bool:
    """Whether a topic under a key may be one that is shown: without "_" its name is the only one with this key."""
    return "_" in key or may_show(key)


def _folded(topic: TopicRow | None, events: Iterable[Recorded], may_show: MayShow) -> TopicRow | None:
    """What a key's topic in the snapshot and its later events come to, if it is shown."""
    if not events:
        return topic if topic is not None and may_show(topic.name) else None
    pasts: dict[str, TopicPast] = {}
    hidden: set[str | None] = {None}
    if topic is not None and may_show(topic.name):
        pasts[topic.name] = TopicPast(topic)
    elif topic is not None:
        hidden.add(topic.name)
    for name, together in groupby(events, _topic_of):
        if name is not None and name not in hidden and (name in pasts or may_show(name)):
            pasts[name] = fold_topics(pasts.get(name, NO_PAST), together)
        else:
            hidden.add(name)
    return next((past.row for past in pasts.values() if past.row is not None), None)


def _topic_of(record: Recorded) -> str | None:
    return getattr(record.event, "topic", None)


EVENTS_PER_TAIL_STRETCH = 4000
"""How many events are read between two rests: some milliseconds."""
LEFT_AFTER_PAGES = 20
"""So many long pages of other moments in a row say that who listed this one has left."""


class Tail:
    """The events from `start` on, below `end`."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        self.is_whole = False
        """Not where the events take more bytes than wanted: it is kept so that nobody reads them again."""
        self.passed_by = 0
        """How many long pages of other moments there were since this one was used."""
        self._values = bytearray()
        self._ends = array("q", (0,))
        self._before = array("q")
        """Of each event the one before it under the same key, counted from the first; -1 where there is none."""
        self._last: dict[ShardKey, int] = {}

    def read(self, log: EventLog, bytes_max: int, rest: Callable[[], None]) -> None:
        """Take in all of them. Raises LogError, EventDecodeError, and what `rest` raises."""
        last, values = self._last, self._values
        for number, (offset, value) in enumerate(log.read(self.start, self.end)):
            key = shard_key(topic_of(offset, value) or "")
            self._before.append(last.get(key, -1))
            last[key] = number
            values += value
            self._ends.append(len(values))
            if len(values) > bytes_max:
                self._values, self._last = bytearray(), {}
                return
            if number % EVENTS_PER_TAIL_STRETCH == 0:
                rest()
        self.is_whole = True

    def events(self, key: ShardKey) -> list[Recorded]:
        """The events under a shard key, in order. Raises EventDecodeError."""
        found = []
        number = self._last.get(key, -1)
        while number >= 0:
            value = bytes(self._values[self._ends[number] : self._ends[number + 1]])
            found.append(decode_event(self.start + number, value))
            number = self._before[number]
        found.reverse()
        return found


class Tails:
    """The tail that is kept of a log. Any thread may use it; a tail never changes once it is here."""

    def __init__(self, log: EventLog, rest: Callable[[], None]) -> None:
        self._log = log
        self._rest = rest
        self._kept: Tail | None = None

    def of(self, start: int, end: int, bytes_max: int, *, goes_on: bool) -> Tail | None:
        """The events from `start` on, below `end`: those that are kept; else, for a long page that goes on with a list,
        they are read and kept, unless another list is at work. None where there are none so."""
        kept = self._kept
        if kept is not None and (kept.start, kept.end) == (start, end):
            kept.passed_by = 0
        elif not goes_on:
            return None
        elif kept is not None and kept.passed_by < LEFT_AFTER_PAGES:
            kept.passed_by += 1
            return None
        else:
            kept = Tail(start, end)
            kept.read(self._log, bytes_max, self._rest)
            self._kept = kept
        return kept if kept.is_whole else None

    def let_go(self, tail: Tail | None) -> None:
        """The list that a tail was for is at its end."""
        if tail is not None and self._kept is tail:
            self._kept = None
