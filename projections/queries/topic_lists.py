"""The topics that there are now, of a kind, a slice at a time: on the thread that writes.

Those that are not as they should be have an index, as have the newest; all others are looked through in the order of
their names.
"""

from __future__ import annotations

from contextlib import suppress
from heapq import merge
from typing import Literal

import msgspec

from controller.machine.state import Topic
from controller.patterns import Pattern
from events.logs.snapshot_file import SnapshotDamaged
from events.logs.snapshots import nearest_snapshot
from events.names import shard_key
from projections.queries.listing import Place
from projections.queries.past import KEYS_AT_ONCE
from projections.queries.query import LOOKED_AT_MAX, PARTITIONS_PER_SLICE, Ends, Query, Questions
from projections.queries.snapshot_rows import has_more_topics
from projections.store.standing_index import Tallies, tallied
from projections.store.store import slice_of
from projections.views.topics import Status

WantedStatus = Literal[Status, "not-ready"]


class TopicFilter(msgspec.Struct, frozen=True):
    """Which topics: all, or those that fit each of what is given. `name` is a pattern of their names; `not-ready` is
    every status but `ready`; `placeholders` says whether places wait for a broker; `principal` requested the topic."""

    name: Pattern | None = None
    status: WantedStatus | None = None
    placeholders: bool | None = None
    principal: str | None = None

    @property
    def is_everything(self) -> bool:
        """Whether all topics fit."""
        return self == EVERY_TOPIC

    @property
    def has_trouble(self) -> bool:
        """Whether only topics fit that are not as they should be."""
        return self.placeholders is True or self.status not in (None, "ready")

    def fits_name(self, name: str) -> bool:
        """Whether a topic of this name may fit."""
        return self.name is None or self.name.is_found_in(name)

    def fits(self, status: Status, placeholders: int, principal: str | None) -> bool:
        """Whether a topic fits whose name does."""
        return (
            (self.status in (None, status) or (self.status == "not-ready" and status != "ready"))
            and self.placeholders in (None, placeholders > 0)
            and self.principal in (None, principal)
        )


EVERY_TOPIC = TopicFilter()


def glob(text: str) -> Pattern:
    """A pattern of whole names in which `*` stands for any characters and `?` for one. Raises PatternError."""
    signs = {"*": ".*", "?": "."}
    return Pattern("^(?s:" + "".join(signs.get(each) or f"\\x{{{ord(each):x}}}" for each in text) + ")$")


def by_name(query: Questions, which: TopicFilter, after: str | None, limit: int) -> list[Topic]:
    """Up to `limit` topics among which are all that fit, in the order of their shard keys, after that of a name.

    Fewer where they have many partitions; none only where there are no more.
    """
    if not which.has_trouble:
        return query.newest(after, limit)
    key = None if after is None else shard_key(after)
    found = (part.live().durable_troubled(key) for part in query.parts)
    return slice_of(merge(*found, key=lambda topic: shard_key(topic.name)), limit, PARTITIONS_PER_SLICE)


def by_age(query: Questions, place: Place, limit: int) -> tuple[list[Topic], Place]:
    """Up to `limit` topics that were created below the offsets of a place, the newest first, and the place after them.

    Fewer where they have many partitions; none only where there are no more.
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
"""A topic takes a tenth of a millisecond: more of them are not counted."""


class Counted(msgspec.Struct, frozen=True):
    """The topics of a moment; `pending` were never complete by then."""

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
    """The topics of a moment, counted; None where that is too much work."""
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
    """Whether the nearest snapshot already says that it is, or is too far off."""
    snapshot = nearest_snapshot(part.log, end)
    if snapshot is None:
        return end > LOOKED_AT_MAX
    with snapshot, suppress(SnapshotDamaged):
        return end - snapshot.offset > LOOKED_AT_MAX or has_more_topics(snapshot, TOPICS_MAX)
    return False
