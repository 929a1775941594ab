"""Which events a broker has applied, from how far it is in the metadata log."""

from __future__ import annotations

from bisect import bisect_right

from events.names import Offset

MARKS_MAX = 10_000


class Applied:
    """Pairs of offsets, one a commit: where the metadata log ended with it, and its newest event."""

    def __init__(self, end: int, offset: Offset) -> None:
        self._ends = [end]
        self._offsets = [offset]

    def note(self, end: int, offset: Offset) -> None:
        """A commit is durable: the metadata log ends at `end`, the event log has all up to `offset`."""
        if end == self._ends[-1]:
            self._offsets[-1] = offset
            return
        self._ends.append(end)
        self._offsets.append(offset)
        if len(self._ends) > MARKS_MAX:
            del self._ends[: MARKS_MAX // 2], self._offsets[: MARKS_MAX // 2]

    def event_at(self, end: int) -> Offset:
        """The newest event of those told by the metadata log below `end`; -1 where that is too long ago to know."""
        index = bisect_right(self._ends, end) - 1
        return self._offsets[index] if index >= 0 else Offset(-1)
