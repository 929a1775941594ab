"""Where a rebuilding of topics begins: at a snapshot of the log, or at the first event."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from events.logs.snapshots import SnapshotDamaged, nearest_snapshot
from projections.replay.log.log_ref import End, LogRef, Ref, events_before, in_partitions, looked_at
from projections.replay.outcome import Options, Outcome
from projections.replay.spark.folding import shares_for
from projections.text.wording import many

FROM_SCRATCH = "from_scratch"
SHARE_BYTES = 4 << 20
"""Of a snapshot, for each share of the shards: some ten thousand topics."""


class Beginning(msgspec.Struct, frozen=True):
    """The snapshot at `offset`, of so many bytes; 0 is the first event."""

    offset: int = 0
    size: int = 0

    def shares(self, end: End) -> int:
        """Into how many parts to divide the shards of what is left to be folded."""
        return shares_for(events_before(end) - self.offset) + self.size // SHARE_BYTES

    def line(self, end: End) -> str:
        """In words, for people."""
        left = many(events_before(end) - self.offset, "event")
        return f"begun at the snapshot of offset {self.offset - 1}, with {left} after it; --from-scratch trusts none"


AT_FIRST = Beginning()


def beginning(ref: Ref, end: End, options: Options) -> Beginning:
    """The newest whole snapshot of no more than the events before `end`; the first event where there is none, where
    none is to be trusted (`from_scratch` in `options.more`), and of a log in Kafka. Raises ReplayError."""
    if not isinstance(ref, LogRef) or options.more.get(FROM_SCRATCH):
        return AT_FIRST
    at_most = in_partitions(ref, end)[ref.partition]
    with looked_at(ref) as log:
        while (snapshot := nearest_snapshot(log, at_most)) is not None:
            with snapshot:
                try:
                    snapshot.check()
                    return Beginning(snapshot.offset, snapshot.size)
                except (SnapshotDamaged, OSError):
                    at_most = snapshot.offset - 1
    return AT_FIRST


def said(outcome: Outcome, begin: Beginning, end: End) -> Outcome:
    """An outcome that says where it began: in words if that is not the first event, and as `snapshot_offset`."""
    if begin is AT_FIRST:
        return outcome
    about = {**outcome.about, "snapshot_offset": begin.offset - 1}
    return replace(outcome, lines=[*outcome.lines, begin.line(end)], about=about)
