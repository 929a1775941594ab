"""Which brokers are heard of: the clock's side of `broker.session.timeout.ms` (KIP-631).

Knows no cluster: who is fenced when a session ends is decided elsewhere. Times are seconds of a clock that only goes
forward, and come as arguments.
"""

from __future__ import annotations

from collections.abc import Iterable

from events.names import BrokerId


class Sessions:
    """When each broker was heard of last. A broker that was never heard of has from the start a whole session."""

    def __init__(self, timeout_s: float, now: float) -> None:
        self.timeout_s = timeout_s
        self._since = now
        self._seen: dict[BrokerId, float] = {}
        self._checked = now

    def touch(self, broker_id: BrokerId, now: float) -> None:
        """A broker was heard of."""
        self._seen[broker_id] = now

    def forget(self, broker_id: BrokerId) -> None:
        """A broker is gone, and its session with it."""
        self._seen[broker_id] = float("-inf")

    def is_valid(self, broker_id: BrokerId, now: float) -> bool:
        """Whether the broker was heard of within the timeout."""
        return now - self._seen.get(broker_id, self._since) < self.timeout_s

    def expired(self, brokers: Iterable[BrokerId], now: float) -> list[BrokerId]:
        """Those of these brokers that were not heard of in time.

        Time in which this process itself was held up (stopped, or starved) is given to all: their heartbeats may lie
        unread.
        """
        held_up = now - self._checked - self.timeout_s / 4
        self._checked = now
        if held_up > 0:
            self._since += held_up
            self._seen = {broker_id: seen + held_up for broker_id, seen in self._seen.items()}
        return [broker_id for broker_id in brokers if not self.is_valid(broker_id, now)]
