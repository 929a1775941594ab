"""Questions about a log, or several: what is, what was at any offset or time, and which events made it so.

Everything here rests on durable events alone: an answer is never taken back by a power cut. A moment is given as `end`,
the offset after the last event that counts (`Query.end` turns an offset or a time into one).

Method. What is now comes from the state that commits with the events, what was from the nearest snapshot before and the
events of the topics in question since (`projections.queries.past`). A page of a list looks at so much and no more;
where it has looked at that, it ends, and the next one goes on there.

Threads. `newest`, `newest_from` and `newest_named` read the live store and belong to the thread that writes it; all
else reads only the log, may run in other threads, and takes short rests so that it does not hold up the writing thread.

What it does not do: it writes nothing, keeps no index of its own, and reads no clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from contextvars import ContextVar
from heapq import merge
from itertools import chain

import msgspec

from controller.machine.state import Topic
from events.catalog import Recorded, TopicCreated, TopicDiscovered
from events.codec import decode_event
from events.logs.log import EventLog
from events.logs.snapshots import nearest_snapshot
from events.names import CLUSTER_SHARD, BrokerId, ShardKey, shard_key
from projections.queries.past import MayShow, Past, TopicPage
from projections.queries.snapshot_rows import Pair, with_rows
from projections.store.partitioned_store import PartitionOf
from projections.store.store import TopicStore, slice_of
from projections.text.moments import BadMoment, end_at, iso, parse_moment, time_at
from projections.views.brokers import ClusterRow
from projections.views.requests import RequestRow, request_row
from projections.views.topics import NO_PAST, TopicRow, bare_row, fold_topic, topic_row

REST_S = 0.0002
"""Long enough for the writing thread to take the interpreter."""
PARTITIONS_PER_SLICE = 2000
"""About how many partitions are taken from the live store at once."""
BYTES_PER_PAGE = 4 << 20
"""A page of events ends with the one that makes it so large."""
LOOKED_AT_MAX = 20_000
"""Of names and events: how much a page of a list of the past looks at before it ends, some tenths of a second."""


def everything(name: str) -> bool:
    """Shows every topic."""
    return True


given_up: ContextVar[threading.Event | None] = ContextVar("given_up", default=None)
"""Set once nobody waits any more for the query that is at work in this context."""

Ends = tuple[int, ...]
"""For each log the offset after the last event that counts."""


class NotThere(LookupError):
    """The topic or request does not exist; the message says since or until when, where that is known."""


class NoTopic(NotThere):
    """There is no topic of a name at a moment. `gone` is the offset of the event that ended the last one of that name
    before, `born` of the one that made the next; None where there is none."""

    def __init__(self, message: str, *, gone: int | None = None, born: int | None = None) -> None:
        super().__init__(message)
        self.gone = gone
        self.born = born


class QueryClosed(RuntimeError):
    """The query was closed, or given up, while it was at work."""


class AsOf(msgspec.Struct, frozen=True):
    """The moment that an answer shows: the newest event that it counts, -1 and None before the first."""

    offset: int
    at_ms: int | None
    ends: tuple[int, ...] = ()
    """Where the log has partitions and the answer shows all of them: the offset after the last event of each."""
    partition: int | None = None
    """The partition whose offset this is; None in a log without partitions."""


class EventPage(msgspec.Struct, frozen=True):
    """Events in order; `next_offset` is where to go on, None when these were the last that there are."""

    records: tuple[Recorded, ...]
    next_offset: int | None


class Query:
    """Answers about one log. `store` gives its live state, which is another one after the log was recovered;
    `partition` is the log's number where it is one of several."""

    def __init__(self, log: EventLog, store: Callable[[], TopicStore], partition: int | None = None) -> None:
        self.log = log
        self.partition = partition
        self.live = store
        """Gives the live store, on the thread that writes."""
        self._closed = threading.Event()
        self._past = Past(log, self.rest)

    def close(self) -> None:
        """Let what is at work in other threads end with QueryClosed."""
        self._closed.set()

    # --- moments

    def end(self, at: str | None = None) -> int:
        """The end of the state at a moment (see `projections.text.moments`; None is now). Raises BadMoment."""
        return self.log.durable_offset if at is None else end_at(self.log, parse_moment(at))

    def as_of(self, end: int) -> AsOf:
        """What to say of the moment that an answer shows."""
        return AsOf(end - 1, time_at(self.log, end), partition=self.partition)

    # --- now, on the thread that writes

    def newest_from(self, after: ShardKey | None) -> Iterator[Topic]:
        """The topics as they are now, in the order of their shard keys, after one of them."""
        return self.live().durable_from(after)

    def newest_named(self, name: str) -> Topic | None:
        """The topic of this name as it is now."""
        return self.live().durable_named(name)

    def row(self, topic: Topic) -> TopicRow:
        """The row of a topic as it is now."""
        created = topic.created_offset
        if created < self.log.start_offset:
            born = self._past.birth(topic)
            if born is not None:
                same = {"created_by": born.created_by, "verdict": born.verdict, "placed_on": born.placed_on}
                return msgspec.structs.replace(bare_row(topic), **same)
        offsets = range(max(0, created - 1), created + 1)
        *before, made = map(decode_event, offsets, self.log.read_many(offsets))
        return topic_row(topic, made, before[0] if before else None)

    # --- then

    def topic_at(self, name: str, end: int) -> TopicRow:
        """The topic of this name as it was. Raises NoTopic."""
        row = self._past.topic(name, end)
        if row is None:
            raise self._no_topic(name, end)
        return row

    def topics_under(self, keys: Sequence[ShardKey], end: int, may_show: MayShow) -> list[TopicRow | None]:
        """The topics under some shard keys as they were: see `Past.under`."""
        return self._past.under(keys, end, may_show)

    def topics_at(
        self, end: int, after: str, limit: int, may_show: MayShow = everything, looked_at_max: int = LOOKED_AT_MAX
    ) -> TopicPage:
        """A page of the topics as they were: see `Past.topics`."""
        return self._past.topics(end, after, limit, may_show, looked_at_max)

    def cluster_at(self, end: int) -> ClusterRow:
        """Brokers and settings as they were."""
        return self._past.cluster(end)

    def snapshot_pairs(self, end: int, state: Iterable[Pair]) -> Iterator[Pair]:
        """The state keys at a moment, with what the questions that begin at a snapshot of it need beside them."""
        cluster, previous = self.cluster_at(end), nearest_snapshot(self.log, end - 1)
        with nullcontext() if previous is None else previous:
            yield from with_rows(self.log, state, previous, cluster)

    def live_at(self, end: int) -> frozenset[BrokerId]:
        """The brokers that were live."""
        return self.cluster_at(end).live

    # --- events

    def events(
        self, start: int, limit: int, end: int, *, topic: str | None = None, request_id: str | None = None
    ) -> EventPage:
        """Up to `limit` events from an offset on and before `end`: all, or those of a topic, of a request, or of both;
        fewer where they are large.

        A cluster that was taken over counts as a request here: nobody requested what was there, so it is in no
        request's index, but it is the beginning of the log.
        """
        if request_id is not None:
            found = self._of_request(request_id, start, end)
            records: Iterator[Recorded] = (one for one in found if topic is None or _topic_of(one) == topic)
        elif topic is not None:
            records = self.topic_events(topic, start, end)
        else:
            records = (decode_event(offset, value) for offset, value in self.log.read(start, max(start, end)))
        page: list[Recorded] = []
        room = BYTES_PER_PAGE
        for record in records:
            if len(page) == limit or room <= 0:
                return EventPage(tuple(page), record.offset)
            page.append(record)
            room -= self.size_of(record)
        return EventPage(tuple(page), None)

    def size_of(self, record: Recorded) -> int:
        """How many bytes an event takes in the log."""
        return len(self.log.read_one(record.offset))

    def topic_events(self, name: str, start: int = 0, end: int | None = None) -> Iterator[Recorded]:
        """The events of a name in order, of all topics that ever had it, and of requests that were refused."""
        stop = self.end() if end is None else end
        for record in self._past.decoded(self.log.shard_offsets(shard_key(name), start, stop)):
            if _topic_of(record) == name:
                yield record

    def request_events(self, request_id: str, end: int | None = None) -> Iterator[Recorded]:
        """The events of a request in order."""
        stop = self.end() if end is None else end
        return self._past.decoded(offset for offset in self.log.request_offsets(request_id) if offset < stop)

    def broker_events(self, end: int | None = None) -> Iterator[Recorded]:
        """The events that concern every topic, in order: brokers and settings."""
        return self._of_cluster(0, self.end() if end is None else end)

    # --- inside

    def _of_cluster(self, start: int, end: int) -> Iterator[Recorded]:
        """Events of brokers and settings. Requests for a topic without a name have the same key, and are left out."""
        records = self._past.decoded(self.log.shard_offsets(CLUSTER_SHARD, start, end))
        return (record for record in records if _topic_of(record) is None)

    def _of_request(self, request_id: str, start: int, end: int) -> Iterator[Recorded]:
        indexed = self.request_events(request_id)
        first = next(indexed, None)
        if first is None:
            return self._taken_over(request_id, start, end)
        return (one for one in chain((first,), indexed) if start <= one.offset < end)

    def _taken_over(self, request_id: str, start: int, end: int) -> Iterator[Recorded]:
        """What the log begins with, if that is what this request led to: one commit."""
        first = next(self._past.decoded(range(min(end, 1))), None)
        if first is None or first.cause.request_id != request_id:
            return
        for record in self._past.decoded(range(start, end)):
            if record.cause.request_id != request_id:
                return
            yield record

    def rest(self) -> None:
        if self._closed.wait(REST_S):
            raise QueryClosed("the service is stopping")
        gone = given_up.get()
        if gone is not None and gone.is_set():
            raise QueryClosed("nobody waits for the answer any more")

    def _no_topic(self, name: str, end: int) -> NoTopic:
        past = NO_PAST
        for record in self.topic_events(name, 0, end):
            past = fold_topic(past, record)
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
            return NoTopic(f"no topic {name!r} was ever created")
        gone_at = None if past.deletion is None else past.deletion.offset
        message = f"there is no topic {name!r} at offset {end - 1}: " + "; ".join(whys)
        return NoTopic(message, gone=gone_at, born=None if born is None else born.offset)


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

    def topics_at(self, end: Ends, after: str | None, limit: int, may_show: MayShow = everything) -> TopicPage:
        """Up to `limit` topics as they were, in the order of their shard keys, after that of a name; those alone that
        `may_show` says yes to. A page may end early, and then says how far it is."""
        key, share = "" if after is None else shard_key(after), LOOKED_AT_MAX // len(self.parts)
        pages = [part.topics_at(own, key, limit, may_show, share) for part, own in zip(self.parts, end, strict=True)]
        reached = min((page.reached for page in pages if page.reached is not None), default=None)
        found = merge(*(page.rows for page in pages), key=lambda row: shard_key(row.name))
        rows = tuple(row for row in found if reached is None or shard_key(row.name) <= reached)
        if len(rows) > limit:
            return TopicPage(rows[:limit], shard_key(rows[limit - 1].name))
        return TopicPage(rows, reached)

    def cluster_at(self, end: Ends) -> ClusterRow:
        """Brokers and settings as they were, in the words of the first partition."""
        return self.parts[0].cluster_at(end[0])

    def request(self, request_id: str, end: Ends | None = None) -> RequestRow:
        """A request that was recorded, with its topics in all logs, now or as it was. Raises NotThere."""
        ends = self.end() if end is None else end
        found = (part.request_events(request_id, own) for part, own in zip(self.parts, ends, strict=True))
        row = request_row(merge(*found, key=lambda one: one.at_ms))
        if row is None:
            raise NotThere(
                f"no request {request_id!r} is in the log: dry runs and requests that change nothing are not recorded"
            )
        return row
