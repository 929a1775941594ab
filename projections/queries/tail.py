"""The events between a snapshot and a moment, found by shard key: for whoever lists all topics of that moment.

What it is for. A page of a list finds the events of its topics in the log's index, one topic after another, each event
in a block of its own. Who lists all topics reads every event between the two so, in a hundred pages. To read them in
their order takes a fifth of that, once: the long pages that go on with a list (`Tails.of`) do, and keep the bytes.

One is kept of a log, until its list is at the end. Others who list meanwhile go by the index, so nobody waits for
anybody, and none is read over and over; one that its reader has left goes when others have come for long pages a while.

Memory: the bytes of the events, no more than wanted, and some 100 bytes a key. There is nothing in it that a collection
of garbage looks at, event by event.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

from events.catalog import Recorded
from events.codec import decode_event, topic_of
from events.logs.log import EventLog
from events.names import ShardKey, shard_key

EVENTS_PER_STRETCH = 4000
"""How many events are read between two rests: some milliseconds."""
LEFT_AFTER_PAGES = 20
"""So many long pages of other moments in a row say that who listed this one has left."""


class Tail:
    """The events from `start` on, below `end`."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        self.is_whole = False
        """Not where the events take more bytes than wanted: it is kept so that nobody reads them again."""
        self.passed_by = 0
        """How many long pages of other moments there were since this one was used."""
        self._values = bytearray()
        self._ends = array("q", (0,))
        self._before = array("q")
        """Of each event the one before it under the same key, counted from the first; -1 where there is none."""
        self._last: dict[ShardKey, int] = {}

    def read(self, log: EventLog, bytes_max: int, rest: Callable[[], None]) -> None:
        """Take in all of them. Raises LogError, EventDecodeError, and what `rest` raises."""
        last, values = self._last, self._values
        for number, (offset, value) in enumerate(log.read(self.start, self.end)):
            key = shard_key(topic_of(offset, value) or "")
            self._before.append(last.get(key, -1))
            last[key] = number
            values += value
            self._ends.append(len(values))
            if len(values) > bytes_max:
                self._values, self._last = bytearray(), {}
                return
            if number % EVENTS_PER_STRETCH == 0:
                rest()
        self.is_whole = True

    def events(self, key: ShardKey) -> list[Recorded]:
        """The events under a shard key, in order. Raises EventDecodeError."""
        found = []
        number = self._last.get(key, -1)
        while number >= 0:
            value = bytes(self._values[self._ends[number] : self._ends[number + 1]])
            found.append(decode_event(self.start + number, value))
            number = self._before[number]
        found.reverse()
        return found


class Tails:
    """The tail that is kept of a log. Any thread may use it; a tail never changes once it is here."""

    def __init__(self, log: EventLog, rest: Callable[[], None]) -> None:
        self._log = log
        self._rest = rest
        self._kept: Tail | None = None

    def of(self, start: int, end: int, bytes_max: int, *, goes_on: bool) -> Tail | None:
        """The events from `start` on, below `end`: those that are kept; else, for a long page that goes on with a list,
        they are read and kept, unless another list is at work. None where there are none so."""
        kept = self._kept
        if kept is not None and (kept.start, kept.end) == (start, end):
            kept.passed_by = 0
        elif not goes_on:
            return None
        elif kept is not None and kept.passed_by < LEFT_AFTER_PAGES:
            kept.passed_by += 1
            return None
        else:
            kept = Tail(start, end)
            kept.read(self._log, bytes_max, self._rest)
            self._kept = kept
        return kept if kept.is_whole else None

    def let_go(self, tail: Tail | None) -> None:
        """The list that a tail was for is at its end."""
        if tail is not None and self._kept is tail:
            self._kept = None
