"""Topics looked at again when brokers come and go.

A broker event concerns every topic. Reviewing them all in one decision would hold up everybody, so a sweep walks
through the topics in slices, asks for a review of those that need one, and goes on when that is durable: others' asks
get in between. A sweep that dies with the process is made good by the sweep at the next start: a review is a function
of the state alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from controller.machine.commands import AnyCommand, ReviewTopics
from controller.machine.leadership import is_settled
from controller.machine.state import Topic
from events.catalog import BrokerFenced, BrokerUnfenced, BrokerUnregistered, Recorded
from events.log import LogClosed
from events.names import RequestId, shard_key
from projections.store import TopicStore

TOPICS_PER_SLICE = 200
PARTITIONS_PER_SLICE = 2000
"""Bound one slice to some milliseconds, of reading as of deciding."""

_BROKER_EVENTS = frozenset({BrokerFenced, BrokerUnfenced, BrokerUnregistered})


class ReviewSink(Protocol):
    """What a sweep needs of the controller."""

    store: TopicStore

    def now_ms(self) -> int: ...
    def new_request_id(self, origin: str) -> RequestId: ...
    def observe(self, command: AnyCommand) -> None: ...
    def background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...
    async def decided(self) -> None: ...


class Reviews:
    """Starts a sweep after broker events; one at a time, and once more from the beginning if brokers changed during
    it."""

    def __init__(self, sink: ReviewSink) -> None:
        self._sink = sink
        self._task: asyncio.Task[None] | None = None
        self._again = False

    def learn(self, records: Sequence[Recorded]) -> None:
        """Sweep if a broker event is among the records."""
        if any(type(record.event) in _BROKER_EVENTS for record in records):
            self.sweep()

    def sweep(self) -> None:
        """Walk through all topics, now or as soon as the sweep under way is done."""
        if self._task is not None and not self._task.done():
            self._again = True
        else:
            self._task = self._sink.background(self._sweep())

    def stop(self) -> None:
        """End a sweep under way."""
        if self._task is not None:
            self._task.cancel()

    async def _sweep(self) -> None:
        self._again = True
        while self._again:
            self._again = False
            try:
                await self._walk()
            except LogClosed:
                return  # the log is being recovered, after which a sweep begins anyway

    async def _walk(self) -> None:
        after: str | None = None
        while topics := self._sink.store.durable_slice(after, TOPICS_PER_SLICE, PARTITIONS_PER_SLICE):
            after = shard_key(topics[-1].name)
            self._review(topics)
            await asyncio.sleep(0)
            await self._sink.decided()

    def _review(self, topics: list[Topic]) -> None:
        cluster = self._sink.store.durable_cluster
        names = tuple(topic.name for topic in topics if topic.ready_at_ms is None or not is_settled(topic, cluster))
        if names:
            sink = self._sink
            sink.observe(ReviewTopics(request_id=sink.new_request_id("review"), at_ms=sink.now_ms(), topics=names))
