"""Confirmations of brokers, gathered: a create is answered when the last of them has come, so one commit will do.

A broker's confirmation is passed on together with those of the others, when all live brokers have confirmed as much; or
alone after a moment, so that it is known how far a create came that waits for one of them.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from typing import Final

from controller.brokers.port import CommandSink, stamp
from controller.machine.commands.commands import ConfirmMetadata
from events.names import BrokerId, Offset

GATHER_S: Final = 0.1
"""How long a confirmation waits for the others: brokers that keep up confirm within some milliseconds."""
MARKS_MAX: Final = 10_000
"""Commits of which it is known where the metadata log ended: some hundred kilobytes."""


class Applied:
    """Which events a broker has applied, from how far it is in the metadata log: pairs of offsets, one a commit, where
    the metadata log ended with it, and its newest event."""

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
        """The newest event that the metadata log has below `end`; -1 where that is too long ago to know."""
        index = bisect_right(self._ends, end) - 1
        return self._offsets[index] if index >= 0 else Offset(-1)


class Confirmations:
    """What brokers have confirmed, and what of it was passed on. `end` is where the metadata log ends."""

    def __init__(self, controller: CommandSink, end: int) -> None:
        self._controller = controller
        self._applied = Applied(end, controller.last_offset)
        self._passed_on: dict[BrokerId, Offset] = {}
        self._taken: dict[BrokerId, Offset] = {}
        self._timer: asyncio.TimerHandle | None = None

    def note(self, end: int, offset: Offset) -> None:
        """A commit is durable: the metadata log ends at `end`, the event log has all up to `offset`."""
        self._applied.note(end, offset)

    def take_applied(self, broker_id: BrokerId, end: int) -> None:
        """A broker has applied the metadata log below `end`."""
        self.take(broker_id, self._applied.event_at(end))

    def take(self, broker_id: BrokerId, offset: Offset) -> None:
        """A broker has applied all events up to `offset`: of interest if a topic may wait for it."""
        if offset <= self._reach(broker_id) or not self._controller.has_pending_creates():
            return
        self._taken[broker_id] = offset
        live = self._controller.store.durable_cluster.live
        reached = min(map(self._reach, live), default=Offset(-1))
        fresh = [each for each in live if self._passed_on.get(each, -1) < reached]
        if fresh:
            self._pass_on(dict.fromkeys(fresh, reached))
        if self._taken and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER_S, self._time_is_up)

    def _reach(self, broker_id: BrokerId) -> Offset:
        return max(self._taken.get(broker_id, Offset(-1)), self._passed_on.get(broker_id, Offset(-1)))

    def forget(self, broker_id: BrokerId) -> None:
        """A broker came or went: what it confirmed counts no more."""
        self._passed_on.pop(broker_id, None)
        self._taken.pop(broker_id, None)

    def restart(self, end: int) -> None:
        """Forget all; the metadata log ends at `end`."""
        self._applied = Applied(end, self._controller.last_offset)
        self.clear()

    def clear(self) -> None:
        """Forget all, and pass nothing on."""
        self._passed_on.clear()
        self._taken.clear()
        self._stop_timer()

    def _time_is_up(self) -> None:
        self._timer = None
        if self._taken:
            self._pass_on(dict(self._taken))

    def _pass_on(self, reached: dict[BrokerId, Offset]) -> None:
        """Put one command for each offset that was reached; what goes beyond stays."""
        for offset in sorted(set(reached.values())):
            brokers = tuple(sorted(broker_id for broker_id, each in reached.items() if each == offset))
            after = min(self._passed_on.get(broker_id, Offset(-1)) for broker_id in brokers)
            stamped = stamp(self._controller, "kraft")
            self._controller.submit_internal(ConfirmMetadata(**stamped, brokers=brokers, offset=offset, after=after))
            for broker_id in brokers:
                self._passed_on[broker_id] = offset
                if self._taken[broker_id] <= offset:
                    del self._taken[broker_id]
        if not self._taken:
            self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
