"""Questions about all the partitions of an events topic at once.

Each partition is a log of its own, with offsets from 0; so an offset names a moment of one partition only, and what is
asked of all of them takes a time. A topic and its events are in one partition (`of_topic`), brokers and settings in
every one, a request wherever its topics are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import merge
from itertools import islice

from controller.machine.state import Topic
from events.catalog import Recorded
from events.names import BrokerId, shard_key
from projections.brokers import ClusterRow
from projections.moments import BadMoment, parse_moment
from projections.partitioned_store import PartitionedStore, PartitionOf
from projections.query import AsOf, NotThere, Query, TopicPage
from projections.requests import RequestRow, request_row
from projections.topics import TopicRow

PARTITIONS_PER_SLICE = 2000

Ends = tuple[int, ...]
"""For each partition the offset after the last event that counts."""


class PartitionedQuery:
    """Answers about partitions; `parts` are the queries of each, in their order, and `store` their stores as one."""

    def __init__(self, parts: Sequence[Query], store: PartitionedStore, partition_of: PartitionOf) -> None:
        self.parts = tuple(parts)
        self._store = store
        self._partition_of = partition_of

    def close(self) -> None:
        """Let what is at work in other threads end with QueryClosed."""
        for part in self.parts:
            part.close()

    def of_topic(self, name: str) -> Query:
        """The partition in which all events of a name are."""
        return self.parts[self._partition_of(shard_key(name))]

    def end(self, at: str | None = None) -> Ends:
        """The ends of all partitions at a time; None is now. Raises BadMoment, for an offset too."""
        if at is not None and isinstance(parse_moment(at), int):
            raise BadMoment(
                f"{at!r} is an offset, and each of the {len(self.parts)} partitions has its own: say a time, "
                "or ask for one topic"
            )
        return tuple(part.end(at) for part in self.parts)

    def as_of(self, end: Ends) -> AsOf:
        """What to say of a moment: how many events there were, less one, and when the last one happened."""
        times = [part.as_of(own).at_ms for part, own in zip(self.parts, end, strict=True)]
        return AsOf(sum(end) - 1, max((time for time in times if time is not None), default=None), end)

    def newest(self, after: str | None, limit: int) -> list[Topic]:
        """Up to `limit` topics as they are now, in the order of their shard keys, after that of a name."""
        key = None if after is None else shard_key(after)
        return self._store.durable_slice(key, limit, PARTITIONS_PER_SLICE)

    def rows(self, topics: Iterable[Topic]) -> tuple[TopicRow, ...]:
        """The rows of topics of `newest`."""
        return tuple(self.of_topic(topic.name).rows((topic,))[0] for topic in topics)

    def topics_at(self, end: Ends, after: str | None, limit: int) -> TopicPage:
        """Up to `limit` topics as they were, in the order of their shard keys, after that of a name."""
        pages = [part.topics_at(own, after, limit) for part, own in zip(self.parts, end, strict=True)]
        found = tuple(islice(merge(*(page.rows for page in pages), key=lambda row: shard_key(row.name)), limit))
        more = any(page.next_after is not None for page in pages) or sum(len(page.rows) for page in pages) > limit
        return TopicPage(found, found[-1].name if more and found else None)

    def cluster_at(self, end: Ends) -> ClusterRow:
        """Brokers and settings as they were, in the words of the first partition."""
        return self.parts[0].cluster_at(end[0])

    def live_at(self, end: Ends) -> frozenset[BrokerId]:
        """The brokers that were live."""
        return self.cluster_at(end).live

    def request(self, request_id: str) -> RequestRow:
        """A request that was recorded, with its topics of all partitions. Raises NotThere."""
        row = request_row(merge(*(part.request_events(request_id) for part in self.parts), key=_time))
        if row is None:
            raise NotThere(
                f"no request {request_id!r} is in the log: dry runs and asks that change nothing are not recorded"
            )
        return row


def _time(record: Recorded) -> int:
    return record.at_ms
