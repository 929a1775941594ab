"""Are the snapshots of a log what its events lead to? Each is made anew of all events; none is trusted for another."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from events.logs.log import EventLog
from events.logs.snapshots import SnapshotDamaged, open_snapshot, snapshot_offsets
from projections.queries.query import Query
from projections.store.refolding import Refold


def wrong_snapshots(log: EventLog, part: Query, refold: Refold) -> Iterator[str]:
    """Which are not, in words; `refold` is at the first event, and goes on to the newest of them. Raises LogError."""
    for offset in snapshot_offsets(log):
        try:
            with open_snapshot(log, offset) as snapshot:
                at = refold.go_to(offset)
                anew = part.snapshot_pairs(offset, refold.pairs())
                if at != offset or any(one != other for one, other in zip_longest(snapshot.scan(), anew)):
                    yield f"{snapshot.path} is not what the events before it lead to: delete it, and it is made anew"
        except SnapshotDamaged as error:
            yield f"{error}; it is made anew at the next start"
