"""Topics looked at again when brokers come and go.

A broker event concerns every topic. Reviewing them all in one decision would hold up everybody, so a sweep walks
through the topics in slices, asks for a review of those that need one, and goes on when that is durable: others' asks
get in between. A sweep that dies with the process is made good by the sweep at the next start: a review is a function
of the state alone.

Of real brokers it is known which topics they have replicas of: there a sweep goes through those alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, Protocol

from controller.machine.commands import AnyCommand, ReviewTopics
from controller.machine.leadership import is_settled
from controller.machine.partition_rules import is_real
from controller.machine.state import Topic
from events.catalog import (
    BrokerFenced,
    BrokerLeaving,
    BrokerRegistered,
    BrokerUnfenced,
    BrokerUnregistered,
    FeaturesChanged,
    LogDirsChanged,
    Recorded,
    ResourceConfigsChanged,
)
from events.log import LogClosed
from events.names import BrokerId, RequestId, ShardKey, shard_key
from projections.store import TopicStore

TOPICS_PER_SLICE = 200
PARTITIONS_PER_SLICE = 2000
"""Bound one slice to some milliseconds, of reading as of deciding."""

_BROKER_EVENTS = frozenset({BrokerFenced, BrokerUnfenced, BrokerUnregistered})
_OF_ONE_REAL_BROKER = frozenset({*_BROKER_EVENTS, BrokerRegistered, BrokerLeaving, LogDirsChanged})
_OF_ALL_REAL_BROKERS = frozenset({FeaturesChanged, ResourceConfigsChanged})


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
        self._brokers: dict[BrokerId, None] = {}
        """Real brokers that came or went, in order."""

    def learn(self, records: Sequence[Recorded]) -> None:
        """Sweep if a broker event is among the records."""
        if is_real(self._sink.store.durable_cluster):
            self._learn_of_real_brokers(records)
        elif any(type(record.event) in _BROKER_EVENTS for record in records):
            self.sweep()

    def _learn_of_real_brokers(self, records: Sequence[Recorded]) -> None:
        for record in records:
            event = record.event
            if type(event) in _OF_ONE_REAL_BROKER:
                self._brokers[event.broker_id] = None  # type: ignore[union-attr]
            elif type(event) in _OF_ALL_REAL_BROKERS:
                self._again = True
        if self._again or self._brokers:
            self._begin()

    def sweep(self) -> None:
        """Walk through all topics, now or as soon as the sweep under way is done."""
        self._again = True
        self._begin()

    @property
    def idle(self) -> bool:
        """Whether every topic has been looked at since the last broker event, as far as it is durable."""
        return self._task is None or self._task.done()

    def _begin(self) -> None:
        if self.idle:
            self._task = self._sink.background(self._sweep())

    def stop(self) -> None:
        """End a sweep under way."""
        if self._task is not None:
            self._task.cancel()

    async def _sweep(self) -> None:
        while self._again or self._brokers:
            brokers, self._brokers = tuple(self._brokers), {}
            everything, self._again = self._again, False
            try:
                for topics in self._everything() if everything else self._of(brokers):
                    self._review(topics)
                    await asyncio.sleep(0)
                    await self._sink.decided()
            except LogClosed:
                return  # the log is being recovered, after which a sweep begins anyway

    def _everything(self) -> Iterator[list[Topic]]:
        after: str | None = None
        while topics := self._sink.store.durable_slice(after, TOPICS_PER_SLICE, PARTITIONS_PER_SLICE):
            after = shard_key(topics[-1].name)
            yield topics

    def _of(self, brokers: Sequence[BrokerId]) -> Iterator[list[Topic]]:
        """The topics that these real brokers concern: their own, those they may fill, and those that wait for them."""
        store = self._sink.store
        keys: dict[ShardKey, None] = {}
        for broker_id in brokers:
            keys.update(dict.fromkeys(store.durable_keys_of(broker_id)))
        keys.update(dict.fromkeys(store.durable_keys_with_placeholders()))
        keys.update(dict.fromkeys(store.durable_keys_waiting()))
        return store.durable_topics(keys, PARTITIONS_PER_SLICE)

    def _review(self, topics: list[Topic]) -> None:
        cluster = self._sink.store.durable_cluster
        names = tuple(topic.name for topic in topics if topic.ready_at_ms is None or not is_settled(topic, cluster))
        if names:
            sink = self._sink
            sink.observe(ReviewTopics(request_id=sink.new_request_id("review"), at_ms=sink.now_ms(), topics=names))
