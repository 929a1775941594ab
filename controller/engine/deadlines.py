"""Deadlines of pending creates that have no client connection in this process.

When a deadline passes, an ExpireRequest command is submitted. Pending creates are part of the state, so the next owner
of the state also has their deadlines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from controller.brokers.port import CommandSink
from controller.machine.commands.commands import ExpireRequest
from controller.machine.state import Topic
from events.catalog import CreateAnswered, Recorded, TopicCreated
from events.logs.log import LogClosed
from events.names import Offset, RequestId, ShardKey, TopicName, shard_key


class Deadlines:
    """Deadlines of the topics in the store of `sink`, soonest first."""

    handles = frozenset({TopicCreated, CreateAnswered})

    def __init__(self, sink: CommandSink) -> None:
        self._sink = sink
        self._due: list[tuple[float, int, RequestId, TopicName]] = []
        """Heap of (due time by the loop's monotonic clock, deadline by the wall clock, request, topic)."""
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, waiting: Iterable[ShardKey]) -> None:
        """Replace all deadlines by those of these topics; passed deadlines are due at once."""
        self._due.clear()
        for key in waiting:
            topic = self._sink.store.durable(key)
            if topic is not None and topic.pending_create is not None:
                self._add(topic.pending_create.deadline_ms, topic.pending_create.request_id, topic.name)
        self._set_timer()

    def on_events(self, records: Sequence[Recorded], end: Offset) -> None:
        """Add the deadlines of created topics, except those that the same events answer."""
        first = self._due[0] if self._due else None
        events = [record.event for record in records]
        answered = {(event.request_id, event.topic) for event in events if type(event) is CreateAnswered}
        for record, event in zip(records, events, strict=True):
            if type(event) is not TopicCreated or event.deadline_ms <= record.at_ms:
                continue
            if (event.request_id, event.topic) not in answered:
                self._add(event.deadline_ms, event.request_id, event.topic)
        if self._due and self._due[0] is not first:
            self._set_timer()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _add(self, deadline_ms: int, request_id: RequestId, topic: TopicName) -> None:
        wait_s = (deadline_ms - self._sink.now_ms(0)) / 1000
        heappush(self._due, (asyncio.get_running_loop().time() + wait_s, deadline_ms, request_id, topic))

    def _set_timer(self) -> None:
        self.stop()
        if self._due:
            self._timer = asyncio.get_running_loop().call_at(self._due[0][0], self._expire_due)

    def _expire_due(self) -> None:
        now_s = asyncio.get_running_loop().time()
        try:
            while self._due and self._due[0][0] <= now_s:
                _, deadline_ms, request_id, name = heappop(self._due)
                if _is_pending(self._sink.store.durable(shard_key(name)), request_id):
                    at_ms = self._sink.now_ms(deadline_ms)
                    self._sink.submit_internal(ExpireRequest(request_id=request_id, at_ms=at_ms, topic=name))
        except LogClosed:
            pass  # the log is being recovered; `begin` follows
        finally:
            self._set_timer()  # also if the log could not be read: the other deadlines still pass


def _is_pending(topic: Topic | None, request_id: RequestId) -> bool:
    return topic is not None and topic.pending_create is not None and topic.pending_create.request_id == request_id
