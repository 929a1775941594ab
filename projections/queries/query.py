"""Questions about a log, or several: what is, what was at any offset or time, and which events made it so.

Everything here rests on durable events alone: an answer is never taken back by a power cut. A moment is given as `end`,
the offset after the last event that counts (`Query.end` turns an offset or a time into one).

Method. What is now comes from the state that commits with the events. What was is folded from events: for one topic
over its index, so the cost is its own history whatever the size of the log; for the list of all topics over the whole
log, once, and kept for the pages that follow.

Threads. `newest`, `newest_from` and `newest_named` read the live store and belong to the thread that writes it; all
else reads only the log, may run in other threads, and takes short rests so that it does not hold up the writing thread.

What it does not do: it writes nothing, keeps no index of its own, and reads no clock.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import chain, islice

import msgspec

from controller.machine.state import Topic
from events.catalog import CreationRefused, Recorded, TopicCreated, TopicDeleted, TopicDiscovered, TopicVanished
from events.codec import decode_event
from events.logs.log import EventLog
from events.names import CLUSTER_SHARD, BrokerId, ShardKey, TopicName, shard_key
from projections.queries.moments import BadMoment, end_at, iso, parse_moment, time_at
from projections.rows.brokers import NO_CLUSTER, ClusterRow, fold_cluster
from projections.rows.requests import RequestRow, request_row
from projections.rows.topics import NO_PAST, TopicPast, TopicRow, fold_topic, topic_row
from projections.store.partitioned_store import PartitionOf
from projections.store.store import TopicStore, slice_of

EVENTS_PER_STRETCH = 250
"""How many events are read between two rests."""
REST_S = 0.0002
"""Long enough for the writing thread to take the interpreter."""
PARTITIONS_PER_SLICE = 2000
"""About how many partitions are taken from the live store at once."""


Ends = tuple[int, ...]
"""For each log the offset after the last event that counts."""


class NotThere(LookupError):
    """The topic or request does not exist; the message says since or until when, where that is known."""


class NoTopic(NotThere):
    """There is no topic of a name at a moment."""


class QueryClosed(RuntimeError):
    """The query was closed while it was at work."""


class AsOf(msgspec.Struct, frozen=True):
    """The moment that an answer shows: the newest event that it counts, -1 and None before the first."""

    offset: int
    at_ms: int | None
    ends: tuple[int, ...] = ()
    """Where the log has partitions and the answer shows all of them: the offset after the last event of each."""
    partition: int | None = None
    """The partition whose offset this is; None in a log without partitions."""


class TopicPage(msgspec.Struct, frozen=True):
    """Topics in the order of their shard keys; `next_after` is the name to go on after, None at the end."""

    rows: tuple[TopicRow, ...]
    next_after: TopicName | None


class EventPage(msgspec.Struct, frozen=True):
    """Events in order; `next_offset` is where to go on, None when these were the last that there are."""

    records: tuple[Recorded, ...]
    next_offset: int | None


class _Existing(msgspec.Struct, frozen=True):
    end: int
    names: dict[ShardKey, TopicName]
    keys: list[ShardKey]


class Query:
    """Answers about one log. `store` gives its live state, which is another one after the log was recovered;
    `partition` is the log's number where it is one of several."""

    def __init__(self, log: EventLog, store: Callable[[], TopicStore], partition: int | None = None) -> None:
        self.log = log
        self.partition = partition
        self._store = store
        self._closed = threading.Event()
        self._existing = _Existing(0, {}, [])
        self._existing_lock = threading.Lock()
        self._cluster: tuple[int, ClusterRow] = (0, NO_CLUSTER)

    def close(self) -> None:
        """Let what is at work in other threads end with QueryClosed."""
        self._closed.set()

    # --- moments

    def end(self, at: str | None = None) -> int:
        """The end of the state at a moment (see `projections.queries.moments`; None is now). Raises BadMoment."""
        return self.log.durable_offset if at is None else end_at(self.log, parse_moment(at))

    def as_of(self, end: int) -> AsOf:
        """What to say of the moment that an answer shows."""
        return AsOf(end - 1, time_at(self.log, end), partition=self.partition)

    # --- now, on the thread that writes

    def newest_from(self, after: ShardKey | None) -> Iterator[Topic]:
        """The topics as they are now, in the order of their shard keys, after one of them."""
        return self._store().durable_from(after)

    def newest_named(self, name: str) -> Topic | None:
        """The topic of this name as it is now."""
        return self._store().durable_named(name)

    def row(self, topic: Topic) -> TopicRow:
        """The row of a topic as it is now."""
        created = topic.created_offset
        read = dict(self.log.read(max(0, created - 1), created + 1))
        requested = decode_event(created - 1, read[created - 1]) if created > 0 else None
        return topic_row(topic, decode_event(created, read[created]), requested)

    # --- then

    def topic_at(self, name: str, end: int) -> TopicRow:
        """The topic of this name as it was. Raises NoTopic."""
        past = self._past(name, end)
        if past.row is None:
            raise NoTopic(self._why_no_topic(name, past, end))
        return past.row

    def topics_at(self, end: int, after: str | None, limit: int) -> TopicPage:
        """Up to `limit` topics as they were, in the order of their shard keys, after that of a name.

        The first page of a moment folds the whole log up to there; the pages after it do not.
        """
        existing = self._existing_at(end)
        first = 0 if after is None else bisect_right(existing.keys, shard_key(after))
        keys = existing.keys[first : first + limit]
        rows = tuple(self.topic_at(existing.names[key], end) for key in keys)
        more = first + limit < len(existing.keys)
        return TopicPage(rows, rows[-1].name if more and rows else None)

    def cluster_at(self, end: int) -> ClusterRow:
        """Brokers and settings as they were."""
        start, row = self._cluster
        if start > end:
            start, row = 0, NO_CLUSTER
        for record in self._of_cluster(start, end):
            row = fold_cluster(row, record)
        if end >= self._cluster[0]:
            self._cluster = (end, row)
        return row

    def live_at(self, end: int) -> frozenset[BrokerId]:
        """The brokers that were live."""
        return self.cluster_at(end).live

    # --- events

    def events(
        self, start: int, limit: int, end: int, *, topic: str | None = None, request_id: str | None = None
    ) -> EventPage:
        """Up to `limit` events from an offset on and before `end`: all, or those of a topic, of a request, or of both.

        A cluster that was taken over counts as a request here: nobody requested what was there, so it is in no
        request's index, but it is the beginning of the log.
        """
        if request_id is not None:
            found = self._of_request(request_id, start, end)
            records: Iterator[Recorded] = (one for one in found if topic is None or _topic_of(one) == topic)
        elif topic is not None:
            records = self.topic_events(topic, start, end)
        else:
            return self._all_events(start, limit, end)
        page = tuple(islice(records, limit + 1))
        return EventPage(page[:limit], page[limit].offset if len(page) > limit else None)

    def topic_events(self, name: str, start: int = 0, end: int | None = None) -> Iterator[Recorded]:
        """The events of a name in order, of all topics that ever had it, and of requests that were refused."""
        stop = self.end() if end is None else end
        for record in self._decoded(self.log.shard_offsets(shard_key(name), start, stop)):
            if _topic_of(record) == name:
                yield record

    def request_events(self, request_id: str) -> Iterator[Recorded]:
        """The events of a request in order."""
        stop = self.end()
        return self._decoded(offset for offset in self.log.request_offsets(request_id) if offset < stop)

    def broker_events(self, end: int | None = None) -> Iterator[Recorded]:
        """The events that concern every topic, in order: brokers and settings."""
        return self._of_cluster(0, self.end() if end is None else end)

    # --- inside

    def _of_cluster(self, start: int, end: int) -> Iterator[Recorded]:
        """Events of brokers and settings. Requests for a topic without a name have the same key, and are left out."""
        records = self._decoded(self.log.shard_offsets(CLUSTER_SHARD, start, end))
        return (record for record in records if _topic_of(record) is None)

    def _of_request(self, request_id: str, start: int, end: int) -> Iterator[Recorded]:
        indexed = self.request_events(request_id)
        first = next(indexed, None)
        if first is None:
            return self._taken_over(request_id, start, end)
        return (one for one in chain((first,), indexed) if start <= one.offset < end)

    def _taken_over(self, request_id: str, start: int, end: int) -> Iterator[Recorded]:
        """What the log begins with, if that is what this request led to: one commit."""
        first = next(self._decoded(range(min(end, 1))), None)
        if first is None or first.cause.request_id != request_id:
            return
        for record in self._decoded(range(start, end)):
            if record.cause.request_id != request_id:
                return
            yield record

    def _all_events(self, start: int, limit: int, end: int) -> EventPage:
        stop = max(start, min(start + limit, end))
        records = tuple(decode_event(offset, value) for offset, value in self.log.read(start, stop))
        return EventPage(records, stop if stop < end else None)

    def _decoded(self, offsets: Iterable[int]) -> Iterator[Recorded]:
        for count, offset in enumerate(offsets, 1):
            if count % EVENTS_PER_STRETCH == 0:
                self._rest()
            yield decode_event(offset, self.log.read_one(offset))

    def _rest(self) -> None:
        if self._closed.wait(REST_S):
            raise QueryClosed("the service is stopping")

    def _past(self, name: str, end: int) -> TopicPast:
        past = NO_PAST
        for record in self.topic_events(name, 0, end):
            past = fold_topic(past, record)
        return past

    def _why_no_topic(self, name: str, past: TopicPast, end: int) -> str:
        whys = []
        if past.deletion is not None:
            gone = past.deletion
            whys.append(f"it was deleted at offset {gone.offset} ({iso(gone.at_ms)}) by {gone.principal}")
        born = next(
            (one for one in self.topic_events(name, end) if isinstance(one.event, TopicCreated | TopicDiscovered)), None
        )
        if born is not None:
            again = "again " if whys else ""
            whys.append(f"it was created {again}at offset {born.offset} ({iso(born.at_ms)})")
        if not whys:
            return f"no topic {name!r} was ever created"
        return f"there is no topic {name!r} at offset {end - 1}: " + "; ".join(whys)

    def _existing_at(self, end: int) -> _Existing:
        with self._existing_lock:
            known = self._existing
            if known.end != end:
                known = self._existing = self._find_existing(known if known.end < end else _Existing(0, {}, []), end)
            return known

    def _find_existing(self, known: _Existing, end: int) -> _Existing:
        names = dict(known.names)
        for offset, value in self.log.read(known.end, end):
            if offset % EVENTS_PER_STRETCH == 0:
                self._rest()
            event = decode_event(offset, value).event
            if isinstance(event, TopicCreated | TopicDiscovered):
                names[shard_key(event.topic)] = event.topic
            elif isinstance(event, TopicDeleted | TopicVanished | CreationRefused):
                del names[shard_key(event.topic)]
        return _Existing(end, names, sorted(names))


def _topic_of(record: Recorded) -> str | None:
    return getattr(record.event, "topic", None)


class Questions:
    """Answers about all the logs of a service: its only one, or one for each partition of an events topic.

    A partition is a log of its own with offsets from 0, so an offset names a moment of one partition only, and a
    query of all of them takes a time. A topic and its events are in one partition (`of_topic`), brokers and settings in
    every one, a request wherever its topics are. `parts` are in the order of their partitions.
    """

    def __init__(self, parts: Sequence[Query], partition_of: PartitionOf = lambda key: 0) -> None:
        self.parts = tuple(parts)
        self._partition_of = partition_of

    @property
    def _has_partitions(self) -> bool:
        return self.parts[0].partition is not None

    def close(self) -> None:
        """Let what is at work in other threads end with QueryClosed."""
        for part in self.parts:
            part.close()

    def of_topic(self, name: str) -> Query:
        """The log in which all events of a name are."""
        return self.parts[self._partition_of(shard_key(name))]

    def end(self, at: str | None = None) -> Ends:
        """The ends of all logs at a moment; None is now. Raises BadMoment, for an offset in partitions too."""
        if at is not None and self._has_partitions and isinstance(parse_moment(at), int):
            raise BadMoment(
                f"{at!r} is an offset, and each of the {len(self.parts)} partitions has its own: say a time, "
                "or ask for one topic"
            )
        return tuple(part.end(at) for part in self.parts)

    def as_of(self, end: Ends) -> AsOf:
        """What to say of a moment: of partitions how many events they had, less one, and when the last happened."""
        if not self._has_partitions:
            return self.parts[0].as_of(end[0])
        times = [part.as_of(own).at_ms for part, own in zip(self.parts, end, strict=True)]
        return AsOf(sum(end) - 1, max((time for time in times if time is not None), default=None), end)

    def newest(self, after: str | None, limit: int) -> list[Topic]:
        """Up to `limit` topics as they are now, in the order of their shard keys, after that of a name.

        Fewer where they have many partitions, so that a call takes little time; none only where there are no more. On
        the thread that writes, as `Query.newest_named`.
        """
        key = None if after is None else shard_key(after)
        topics = merge(*(part.newest_from(key) for part in self.parts), key=lambda topic: shard_key(topic.name))
        return slice_of(topics, limit, PARTITIONS_PER_SLICE)

    def rows(self, topics: Iterable[Topic]) -> tuple[TopicRow, ...]:
        """The rows of topics of `newest`."""
        return tuple(self.of_topic(topic.name).row(topic) for topic in topics)

    def topics_at(self, end: Ends, after: str | None, limit: int) -> TopicPage:
        """Up to `limit` topics as they were, in the order of their shard keys, after that of a name."""
        pages = [part.topics_at(own, after, limit) for part, own in zip(self.parts, end, strict=True)]
        found = tuple(islice(merge(*(page.rows for page in pages), key=lambda row: shard_key(row.name)), limit))
        more = any(page.next_after is not None for page in pages) or sum(len(page.rows) for page in pages) > limit
        return TopicPage(found, found[-1].name if more and found else None)

    def cluster_at(self, end: Ends) -> ClusterRow:
        """Brokers and settings as they were, in the words of the first partition."""
        return self.parts[0].cluster_at(end[0])

    def request(self, request_id: str) -> RequestRow:
        """A request that was recorded, with its topics in all logs. Raises NotThere."""
        row = request_row(merge(*(part.request_events(request_id) for part in self.parts), key=lambda one: one.at_ms))
        if row is None:
            raise NotThere(
                f"no request {request_id!r} is in the log: dry runs and requests that change nothing are not recorded"
            )
        return row
