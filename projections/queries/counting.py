"""How many topics there were at a moment, how their partitions stood, and what each broker had of them.

Of now the store has these sums beside it (`projections.store.standing_index`); of then they are counted, topic by
topic, so only where there are few enough of them, and few enough events since the nearest snapshot: some tenths of a
second.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from events.logs.snapshots import SnapshotDamaged, nearest_snapshot
from projections.queries.past import KEYS_AT_ONCE
from projections.queries.query import LOOKED_AT_MAX, Ends, Query, Questions
from projections.queries.snapshot_rows import has_more_topics
from projections.store.standing_index import Tallies, tallied

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
