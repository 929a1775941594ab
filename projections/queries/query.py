"""Queries on one log or several: the current state, the state at any offset or time, and the events behind it.

Queries read durable events only: a power cut cannot revoke a response. A point in time is given as `end`, the offset
after the last event that counts (`Query.end` converts an offset or a time).

Method. Current state comes from the store, past state from the nearest snapshot and the later events of the topics in
question (`projections.queries.past`). A page of a list does a limited amount of work, then ends; the next page
continues from there.

Threads. `Query.live` and `Queries.newest` read the live store, on the writing thread; what-if questions only its
`durable_topics`, in any thread. Everything else reads only the log, in any thread. Queries in threads pause now and
then so that they do not hold up the writing thread.

Non-goals: it writes nothing, has no index of its own, and reads no clock.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from heapq import merge
from itertools import chain

from controller.machine.state import Topic
from controller.store.partitioned_store import PartitionOf
from controller.store.store import TopicStore, slice_of
from controller.store.topic_indexes import CREATION_KINDS
from events.catalog import CreateRejected, Recorded
from events.codec import decode_event
from events.logs.log import EventLog, request_offsets
from events.logs.snapshots import nearest_snapshot
from events.names import shard_key
from projections.queries.past import SCANNED_MAX, MayShow, Past, TopicPage, everything, topic_of_record
from projections.queries.snapshot_rows import Pair, recorded_creation, with_rows
from projections.text.points_in_time import InvalidPointInTime, end_at, iso, parse_point_in_time, time_at
from projections.views.brokers import ClusterRow
from projections.views.requests import RequestView, request_view
from projections.views.rows import NO_PAST, TopicRow, deleted_by, fold_topic, row_of
from projections.views.view import AsOfView, maybe_iso

PARTITIONS_PER_SLICE = 2000
"""The approximate number of partitions that are read from the live store at once."""

Ends = tuple[int, ...]
"""For each log the offset after its last event that counts."""


class NotFound(LookupError):
    """The topic or request does not exist; the message has the times of its deletion and creation, if known."""


class NoTopic(NotFound):
    """There is no topic of this name at this point in time. `deleted_at` is the offset at which the previous one was
    deleted, `created_at` the one at which the next was created; None if there is none."""

    def __init__(self, message: str, *, deleted_at: int | None = None, created_at: int | None = None) -> None:
        super().__init__(message)
        self.deleted_at = deleted_at
        self.created_at = created_at


class Query(Past):
    """Queries on one log. `store` returns the live store: a recovery of the log replaces the store. `partition` is the
    number of the log if a service has several."""

    def __init__(self, log: EventLog, store: Callable[[], TopicStore], partition: int | None = None) -> None:
        super().__init__(log)
        self.partition = partition
        self.live = store
        """Returns the live store, on the writing thread."""

    # --- points in time

    def end(self, at: str | None = None, name: str = "at") -> int:
        """The end of the state at a point in time (see `projections.text.points_in_time`; None: now). Raises
        InvalidPointInTime, which begins with the `name` of the parameter."""
        try:
            return self.log.durable_offset if at is None else end_at(self.log, parse_point_in_time(at))
        except InvalidPointInTime as error:
            raise InvalidPointInTime(f"{name}: {error}") from None

    def as_of(self, end: int) -> AsOfView:
        at_ms = time_at(self.log, end)
        return AsOfView(end - 1, maybe_iso(at_ms), at_ms, self.partition)

    def row(self, topic: Topic) -> TopicRow:
        is_archived = topic.created_offset < self.log.start_offset
        known = self.archived_creation(topic) if is_archived else None
        return row_of(topic, known or recorded_creation(self.log, topic.created_offset))

    # --- at a point in time

    def topic_at(self, name: str, end: int) -> TopicRow:
        """The topic of this name. Raises NoTopic."""
        (row,) = self.topics_under((shard_key(name),), end, name.__eq__)
        if row is None:
            raise self.no_topic(name, end)
        return row

    def snapshot_pairs(self, end: int, state: Iterable[Pair]) -> Iterator[Pair]:
        """The contents of a snapshot: the state keys, and the creation records and cluster row that queries need."""
        cluster, previous = self.cluster_at(end), nearest_snapshot(self.log, end - 1)
        with nullcontext() if previous is None else previous:
            yield from with_rows(self.log, state, previous, cluster)

    # --- events

    def records(self, start: int, end: int, topic: str | None, request_id: str | None) -> Iterator[Recorded]:
        """The events from `start` until before `end`, in order: all, or those of a topic, a request, or both.

        The adoption of an existing cluster, the first commit of such a log, counts as a request here. The request index
        does not have it, because no client sent it.
        """
        if request_id is not None:
            found = self._of_request(request_id, start, end)
            return (one for one in found if topic is None or topic_of_record(one) == topic)
        if topic is not None:
            return self.events_of(topic, start, end)
        return (decode_event(offset, value) for offset, value in self.log.read(start, max(start, end)))

    def request_events(self, request_id: str, end: int | None = None) -> Iterator[Recorded]:
        stop = self.end() if end is None else end
        return self.decoded(offset for offset in request_offsets(self.log, request_id) if offset < stop)

    # --- inside

    def _of_request(self, request_id: str, start: int, end: int) -> Iterator[Recorded]:
        indexed = self.request_events(request_id)
        first = next(indexed, None)
        if first is None:
            return self._adoption(request_id, start, end)
        return (one for one in chain((first,), indexed) if start <= one.offset < end)

    def _adoption(self, request_id: str, start: int, end: int) -> Iterator[Recorded]:
        """The first commit of the log, if it has this id."""
        first = next(self.decoded(range(min(end, 1))), None)
        if first is None or first.cause.request_id != request_id:
            return
        for record in self.decoded(range(start, end)):
            if record.cause.request_id != request_id:
                return
            yield record

    def no_topic(self, name: str, end: int) -> NoTopic:
        """The error for a name without a topic: when it was deleted, created, or refused."""
        past, rejected = NO_PAST, None
        for record in self.events_of(name, 0, end):
            past = fold_topic(past, record)
            if isinstance(record.event, CreateRejected):
                rejected = record.at_ms, record.event
        whys = []
        if past.deletion is not None:
            deleted = past.deletion
            whys.append(f"it was deleted at offset {deleted.offset} ({iso(deleted.at_ms)}) by {deleted_by(deleted)}")
        later = self.events_of(name, end)
        created = next((one for one in later if isinstance(one.event, CREATION_KINDS)), None)
        if created is not None:
            again = "again " if whys else ""
            whys.append(f"it was created {again}at offset {created.offset} ({iso(created.at_ms)})")
        if not whys and rejected is not None:
            at_ms, refusal = rejected
            newest = f"its newest create request was rejected at {iso(at_ms)} by {refusal.rule}: {refusal.message}"
            return NoTopic(f"no topic {name!r} was ever created; {newest}")
        if not whys:
            return NoTopic(f"no topic {name!r} was ever created")
        deleted_at = None if past.deletion is None else past.deletion.offset
        message = f"there is no topic {name!r} at offset {end - 1}: " + "; ".join(whys)
        return NoTopic(message, deleted_at=deleted_at, created_at=None if created is None else created.offset)


class Queries:
    """Queries on all logs of a service: the only one, or one for each partition of an events topic.

    Each partition is a log with offsets from 0, so an offset is a point in time of one partition only; a query on all
    partitions takes a time. A topic and its events are in one partition (`of_topic`), brokers and settings in each, a
    request in those of its topics. `parts` are ordered by partition.
    """

    def __init__(self, parts: Sequence[Query], partition_of: PartitionOf = lambda key: 0) -> None:
        self.parts = tuple(parts)
        self._partition_of = partition_of

    def close(self) -> None:
        """Make running queries raise QueryClosed."""
        for part in self.parts:
            part.close()

    def of_topic(self, name: str) -> Query:
        """The log with the events of a name."""
        return self.parts[self._partition_of(shard_key(name))]

    def end(self, at: str | None = None, name: str = "at") -> Ends:
        """The ends of all logs at a point in time (None: now), given as the parameter `name`. Raises
        InvalidPointInTime, also for an offset if there are partitions."""
        if at is not None and len(self.parts) > 1 and at.strip().isdecimal():
            raise InvalidPointInTime(
                f"{name}: {at!r} is an offset, and each of the {len(self.parts)} partitions has its own: give a time, "
                "or query one topic"
            )
        return tuple(part.end(at, name) for part in self.parts)

    def as_of(self, end: Ends) -> AsOfView:
        """The view of a point in time. With several partitions its offset is the number of all events less one, and its
        time that of the newest event."""
        if len(self.parts) == 1:
            return self.parts[0].as_of(end[0])
        times = [part.as_of(own).at_ms for part, own in zip(self.parts, end, strict=True)]
        at_ms = max((time for time in times if time is not None), default=None)
        return AsOfView(sum(end) - 1, maybe_iso(at_ms), at_ms, ends=end)

    def newest(self, after: str | None, limit: int, *, only_unhealthy: bool = False) -> list[Topic]:
        """Up to `limit` current topics ordered by shard key, after the topic name `after`, on the writing thread; or
        only those of the index of unhealthy topics.

        Returns fewer if they have many partitions, so that a call is short. An empty list means no more topics.
        """
        key, stores = None if after is None else shard_key(after), [part.live() for part in self.parts]
        topics = (one.durable_unhealthy(key) if only_unhealthy else one.durable_from(key) for one in stores)
        return slice_of(merge(*topics, key=lambda topic: shard_key(topic.name)), limit, PARTITIONS_PER_SLICE)

    def rows(self, topics: Iterable[Topic]) -> tuple[TopicRow, ...]:
        return tuple(self.of_topic(topic.name).row(topic) for topic in topics)

    def topics_at(self, end: Ends, after: str | None, limit: int, may_show: MayShow = everything) -> TopicPage:
        """Up to `limit` topics that `may_show` allows, ordered by shard key, after the topic name `after`. A page may
        end early; its `reached` is the key after which the next page starts."""
        key, share = "" if after is None else shard_key(after), SCANNED_MAX // len(self.parts)
        pages = [part.topics_at(own, key, limit, may_show, share) for part, own in zip(self.parts, end, strict=True)]
        reached = min((page.reached for page in pages if page.reached is not None), default=None)
        found = merge(*(page.rows for page in pages), key=lambda row: shard_key(row.name))
        rows = tuple(row for row in found if reached is None or shard_key(row.name) <= reached)
        if len(rows) > limit:
            return TopicPage(rows[:limit], shard_key(rows[limit - 1].name))
        return TopicPage(rows, reached)

    def cluster_at(self, end: Ends) -> ClusterRow:
        """Brokers and settings, by the events of the first partition."""
        return self.parts[0].cluster_at(end[0])

    def request(self, request_id: str, end: Ends | None = None) -> RequestView:
        """A recorded request with its topics in all logs. Raises NotFound."""
        ends = self.end() if end is None else end
        found = (part.request_events(request_id, own) for part, own in zip(self.parts, ends, strict=True))
        row = request_view(merge(*found, key=lambda one: one.at_ms))
        if row is None:
            raise NotFound(
                f"no request {request_id!r} is in the log: dry runs and requests that change nothing are not recorded"
            )
        return row
