"""Confirmations of brokers, gathered: a create is answered when the last of them has come, so one commit will do.

A broker's word is passed on together with that of the others, when all live brokers have confirmed as much; or alone
after a moment, so that it is known how far a create came that waits for one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from controller.machine.commands import ConfirmMetadata
from events.names import BrokerId, Offset

GATHER_S: Final = 0.1

Observe = Callable[..., None]
"""Puts a command of a type, with these fields."""


class Confirmations:
    """What brokers have confirmed, and what of it was passed on."""

    def __init__(self, observe: Observe, live: Callable[[], tuple[BrokerId, ...]]) -> None:
        self._observe: Any = observe
        self._live = live
        self._told: dict[BrokerId, Offset] = {}
        self._taken: dict[BrokerId, Offset] = {}
        self._timer: asyncio.TimerHandle | None = None

    def take(self, broker_id: BrokerId, offset: Offset) -> None:
        """A broker has applied all events up to `offset`."""
        if offset <= self._reach(broker_id):
            return
        self._taken[broker_id] = offset
        live = self._live()
        reached = min(map(self._reach, live), default=Offset(-1))
        fresh = [each for each in live if self._told.get(each, -1) < reached]
        if fresh:
            self._pass_on(dict.fromkeys(fresh, reached))
        if self._taken and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER_S, self._time_is_up)

    def _reach(self, broker_id: BrokerId) -> Offset:
        return max(self._taken.get(broker_id, Offset(-1)), self._told.get(broker_id, Offset(-1)))

    def forget(self, broker_id: BrokerId) -> None:
        """A broker came or went: what it confirmed counts no more."""
        self._told.pop(broker_id, None)
        self._taken.pop(broker_id, None)

    def clear(self) -> None:
        """Forget all, and pass nothing on."""
        self._told.clear()
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
            after = min(self._told.get(broker_id, Offset(-1)) for broker_id in brokers)
            self._observe(ConfirmMetadata, brokers=brokers, offset=offset, after=after)
            for broker_id in brokers:
                self._told[broker_id] = offset
                if self._taken[broker_id] <= offset:
                    del self._taken[broker_id]
        if not self._taken:
            self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
