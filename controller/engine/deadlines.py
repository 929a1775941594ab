"""Creates that wait for their topics to be complete, with nobody in this process who waits for an answer.

A deadline that passes is a command like any other: what it leads to is decided in its turn. What still waits is in the
state, so whoever takes it over takes the deadlines over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush

from controller.machine.commands.commands import ExpireRequest
from controller.machine.state import Topic
from events.catalog import CreateAnswered, Recorded, TopicCreated
from events.logs.log import LogClosed
from events.names import RequestId, ShardKey, TopicName, shard_key


class Deadlines:
    """Deadlines, soonest first. `durable` finds a topic, `now_ms` gives a time that is not before a given one, and
    `submit_internal` puts a command."""

    def __init__(
        self,
        durable: Callable[[ShardKey], Topic | None],
        now_ms: Callable[[int], int],
        submit_internal: Callable[[ExpireRequest], None],
    ) -> None:
        self._durable = durable
        self._now_ms = now_ms
        self._submit_internal = submit_internal
        self._due: list[tuple[float, int, RequestId, TopicName]] = []
        """When it is due by the clock of the event loop, which never goes back as the wall clock may; the deadline."""
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._due)

    def begin(self, waiting: Iterable[ShardKey]) -> None:
        """Watch what waits, and nothing else; deadlines that have passed are due at once."""
        self._due.clear()
        for key in waiting:
            topic = self._durable(key)
            if topic is not None and topic.waiter is not None:
                self._note(topic.waiter.deadline_ms, topic.waiter.request_id, topic.name)
        self._set_timer()

    def learn(self, records: Sequence[Recorded]) -> None:
        """Note the deadlines of topics that were created, but for those that these events complete already."""
        first = self._due[0] if self._due else None
        events = [record.event for record in records]
        answered = {(event.request_id, event.topic) for event in events if type(event) is CreateAnswered}
        for record, event in zip(records, events, strict=True):
            if type(event) is not TopicCreated or event.deadline_ms <= record.at_ms:
                continue
            if (event.request_id, event.topic) not in answered:
                self._note(event.deadline_ms, event.request_id, event.topic)
        if self._due and self._due[0] is not first:
            self._set_timer()

    def stop(self) -> None:
        """Watch no longer."""
        if self._timer is not None:
            self._timer.cancel()

    def _note(self, deadline_ms: int, request_id: RequestId, topic: TopicName) -> None:
        wait_s = (deadline_ms - self._now_ms(0)) / 1000
        heappush(self._due, (asyncio.get_running_loop().time() + wait_s, deadline_ms, request_id, topic))

    def _set_timer(self) -> None:
        self.stop()
        if self._due:
            self._timer = asyncio.get_running_loop().call_at(self._due[0][0], self._look)

    def _look(self) -> None:
        now_s = asyncio.get_running_loop().time()
        try:
            while self._due and self._due[0][0] <= now_s:
                _, deadline_ms, request_id, name = heappop(self._due)
                if _waits(self._durable(shard_key(name)), request_id):
                    at_ms = self._now_ms(deadline_ms)
                    self._submit_internal(ExpireRequest(request_id=request_id, at_ms=at_ms, topic=name))
        except LogClosed:
            pass  # it is being recovered, or given up: what waits then begins anew
        finally:
            self._set_timer()  # also where the log could not be read: the other deadlines pass all the same


def _waits(topic: Topic | None, request_id: RequestId) -> bool:
    return topic is not None and topic.waiter is not None and topic.waiter.request_id == request_id
