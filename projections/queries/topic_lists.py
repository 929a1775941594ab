"""Lists of topics: current topics that match a filter, a slice at a time, and counts of topics at a point in time.

Current topics are read on the writing thread. Indexes list the unhealthy topics and the newest; any other filter scans
all topics by name. The store keeps the current counts (`projections.store.topic_indexes`). Counts of the past are
computed topic by topic, and only if there are few enough topics, and events since the nearest snapshot, to take some
tenths of a second.
"""

from __future__ import annotations

from contextlib import suppress
from heapq import merge
from typing import Literal

import msgspec

from controller.machine.state import Topic
from controller.patterns import Pattern
from events.logs.snapshots import SnapshotDamaged, nearest_snapshot
from events.names import shard_key
from projections.queries.listing import Place
from projections.queries.past import KEYS_AT_ONCE
from projections.queries.query import PARTITIONS_PER_SLICE, SCANNED_MAX, Ends, Query, Questions
from projections.queries.snapshot_rows import has_more_topics
from projections.store.store import slice_of
from projections.store.topic_indexes import Tallies, tallied
from projections.views.topics import Status

WantedStatus = Literal[Status, "not-ready"]


class TopicFilter(msgspec.Struct, frozen=True):
    """A filter of topics; None matches all. `not-ready` is every status but `ready`; `placeholders` selects topics with
    or without placeholders; `principal` created the topic."""

    name: Pattern | None = None
    status: WantedStatus | None = None
    placeholders: bool | None = None
    principal: str | None = None

    @property
    def is_everything(self) -> bool:
        """True if the filter matches all topics."""
        return self == EVERY_TOPIC

    @property
    def is_unhealthy(self) -> bool:
        """True if only topics of the index of unhealthy topics can match."""
        return self.placeholders is True or self.status not in (None, "ready")

    def matches_name(self, name: str) -> bool:
        """Whether a topic of this name may match."""
        return self.name is None or self.name.is_found_in(name)

    def matches(self, status: Status, placeholders: int, principal: str | None) -> bool:
        """Whether a topic with a matching name matches."""
        return (
            (self.status in (None, status) or (self.status == "not-ready" and status != "ready"))
            and self.placeholders in (None, placeholders > 0)
            and self.principal in (None, principal)
        )


EVERY_TOPIC = TopicFilter()


def glob(text: str) -> Pattern:
    """A pattern of whole names; `*` matches any characters and `?` one. Raises PatternError."""
    signs = {"*": ".*", "?": "."}
    return Pattern("^(?s:" + "".join(signs.get(each) or f"\\x{{{ord(each):x}}}" for each in text) + ")$")


def by_name(query: Questions, which: TopicFilter, after: str | None, limit: int) -> list[Topic]:
    """Up to `limit` candidates ordered by shard key, after that of a name. All matching topics are among them.

    Fewer if they have many partitions; none only at the end.
    """
    if not which.is_unhealthy:
        return query.newest(after, limit)
    key = None if after is None else shard_key(after)
    found = (part.live().durable_unhealthy(key) for part in query.parts)
    return slice_of(merge(*found, key=lambda topic: shard_key(topic.name)), limit, PARTITIONS_PER_SLICE)


def by_age(query: Questions, place: Place, limit: int) -> tuple[list[Topic], Place]:
    """Up to `limit` topics that were created below the offsets of a place, the newest first, and the next place.

    Fewer if they have many partitions; none only at the end.
    """
    found = (
        ((number, topic) for topic in part.live().durable_newest(place[number]))
        for number, part in enumerate(query.parts)
    )
    reached, topics, partitions = list(place), [], 0
    for number, topic in merge(*found, key=lambda one: (-one[1].created_at_ms, -one[0], -one[1].created_offset)):
        topics.append(topic)
        reached[number] = topic.created_offset
        partitions += len(topic.partitions)
        if len(topics) == limit or partitions >= PARTITIONS_PER_SLICE:
            break
    return topics, tuple(reached)


TOPICS_MAX, PARTITIONS_MAX = 1_500, 15_000
"""A topic takes a tenth of a millisecond to count; more are not counted."""


class Counted(msgspec.Struct, frozen=True):
    """Counts of topics at a point in time; `pending` topics were never ready."""

    topics: int = 0
    partitions: int = 0
    pending: int = 0
    tallies: Tallies = Tallies()

    def plus(self, other: Counted) -> Counted:
        """The sums of both."""
        return Counted(
            self.topics + other.topics,
            self.partitions + other.partitions,
            self.pending + other.pending,
            self.tallies.plus(other.tallies),
        )


def counted_at(query: Questions, end: Ends) -> Counted | None:
    """The counts at a point in time; None if counting would take too long."""
    all_of_them = Counted()
    for part, own in zip(query.parts, end, strict=True):
        counted = _counted(part, own)
        if counted is None:
            return None
        all_of_them = all_of_them.plus(counted)
    return all_of_them


def _counted(part: Query, end: int) -> Counted | None:
    if _is_too_much(part, end):
        return None
    counted, after = Counted(), ""
    while counted.topics <= TOPICS_MAX and counted.partitions <= PARTITIONS_MAX:
        page = part.topics_at(end, after, KEYS_AT_ONCE)
        of_page = [one for row in page.rows for one in row.partitions]
        pending = sum(row.ready_at_ms is None for row in page.rows)
        counted = counted.plus(Counted(len(page.rows), len(of_page), pending, tallied(of_page)))
        if page.reached is None:
            return counted
        after = page.reached
    return None


def _is_too_much(part: Query, end: int) -> bool:
    """True if the nearest snapshot has too many topics, or is too far away."""
    snapshot = nearest_snapshot(part.log, end)
    if snapshot is None:
        return end > SCANNED_MAX
    with snapshot, suppress(SnapshotDamaged):
        return end - snapshot.offset > SCANNED_MAX or has_more_topics(snapshot, TOPICS_MAX)
    return False
