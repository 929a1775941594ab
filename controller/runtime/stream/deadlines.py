"""Creates that wait in a partition, answered when their time is up.

A deadline that passes is a command like any other: it goes through the commands topic, and what it leads to is decided
in its turn. Whoever owns the partition next finds in its state what still waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush

from controller.machine.commands import ExpireRequest
from controller.machine.state import Topic
from events.catalog import Recorded, TopicCreated
from events.names import RequestId, ShardKey, TopicName, shard_key
from projections.store import TopicStore


class Deadlines:
    """The deadlines of one partition, soonest first; `observe` puts a command to it."""

    def __init__(self, store: TopicStore, now_ms: Callable[[], int], observe: Callable[[ExpireRequest], None]) -> None:
        self._store = store
        self._now_ms = now_ms
        self._observe = observe
        self._loop = asyncio.get_running_loop()
        self._due: list[tuple[int, RequestId, TopicName]] = []
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._due)

    def begin(self, waiting: Iterable[ShardKey]) -> None:
        """Take up what waits already; deadlines that have passed are due at once."""
        for key in waiting:
            topic = self._store.durable(key)
            if topic is not None and topic.waiter is not None:
                heappush(self._due, (topic.waiter.deadline_ms, topic.waiter.request_id, topic.name))
        self._set_timer()

    def learn(self, records: Sequence[Recorded]) -> None:
        """Note the deadlines of topics that were created."""
        first = self._due[0] if self._due else None
        for record in records:
            event = record.event
            if isinstance(event, TopicCreated) and event.deadline_ms > record.at_ms:
                heappush(self._due, (event.deadline_ms, event.request_id, event.topic))
        if self._due and self._due[0] is not first:
            self._set_timer()

    def stop(self) -> None:
        """Watch no longer."""
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        self.stop()
        if self._due:
            delay_s = max(0, self._due[0][0] - self._now_ms()) / 1000
            self._timer = self._loop.call_later(delay_s, self._look)

    def _look(self) -> None:
        now_ms = self._now_ms()
        while self._due and self._due[0][0] <= now_ms:
            deadline_ms, request_id, name = heappop(self._due)
            if _waits(self._store.durable(shard_key(name)), request_id):
                self._observe(ExpireRequest(request_id=request_id, at_ms=max(now_ms, deadline_ms), topic=name))
        self._set_timer()


def _waits(topic: Topic | None, request_id: RequestId) -> bool:
    return topic is not None and topic.waiter is not None and topic.waiter.request_id == request_id
