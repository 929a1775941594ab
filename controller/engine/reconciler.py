"""Topics looked at again when brokers come and go.

A broker event concerns every topic. Reviewing them all in one decision would hold up everybody, so a sweep walks
through the topics in slices, puts a review of those that need one, and goes on when that is durable: others'
commands get in between. A sweep that dies with the process is made good by the sweep at the next start: a review is a
function of the state alone.

Of real brokers it is known which topics they have replicas of: there a sweep goes through those alone. A simulated
broker that comes can only help topics that lack something, and these are known, too.

The sweep by which a process begins is for the rare case that the one before died in the middle of its own: it leaves
half of a core to all else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Coroutine, Iterable, Iterator, Sequence
from itertools import chain

from controller.machine.changing import ELECTED_AT_ONCE_MAX
from controller.machine.configs.topic_configs import MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION
from controller.machine.partitions.blocks import Span
from controller.machine.partitions.leadership import is_settled
from controller.machine.partitions.rules import has_real_brokers
from controller.machine.state import Topic
from events import catalog
from events.logs.log import LogClosed
from events.names import BrokerId, TopicName, shard_key
from projections.store.store import PARTITIONS_PER_SLICE, Part, TopicStore, parts_of, topic_slices, troubled_slices

_ELECT_BY = frozenset({UNCLEAN_ELECTION, MIN_INSYNC_REPLICAS})
"""The configs by which it goes who may lead."""
_BROKER_EVENTS = frozenset({catalog.BrokerFenced, catalog.BrokerUnfenced, catalog.BrokerUnregistered})
_OF_ONE_REAL_BROKER = frozenset(
    {*_BROKER_EVENTS, catalog.BrokerRegistered, catalog.BrokerLeaving, catalog.LogDirsChanged}
)
_OF_ALL_SIMULATED_BROKERS = frozenset(
    {catalog.BrokerFenced, catalog.BrokerUnregistered, catalog.ResourceConfigsChanged}
)
_OF_ALL_REAL_BROKERS = frozenset({catalog.FeaturesChanged, catalog.ResourceConfigsChanged})


class Reconciler:
    """Starts a sweep after broker events; one at a time, and once more from the beginning if brokers changed during
    it.

    `store` gives the newest one, `review` puts a review of topics or of a span of one, `decided` waits until all that
    was put is durable, `background` runs a sweep.
    """

    def __init__(
        self,
        store: Callable[[], TopicStore],
        review: Callable[[tuple[TopicName, ...], Span | None], None],
        decided: Callable[[], Awaitable[None]],
        background: Callable[[Coroutine[object, object, None]], asyncio.Task[None]],
    ) -> None:
        self._store = store
        self._review = review
        self._decided = decided
        self._background = background
        self._task: asyncio.Task[None] | None = None
        self._again = False
        self._calm = False
        """All topics are to be looked at, but nothing is known to have happened to them."""
        self._troubled = False
        """Those that lack something may get it."""
        self._brokers: dict[BrokerId, None] = {}
        """Real brokers that came or went, in order."""
        self._configured: dict[TopicName, None] = {}
        """Topics of very many partitions whose configs changed: others may lead, or be eligible."""

    def learn(self, records: Sequence[catalog.Recorded]) -> None:
        """Sweep if a broker event is among the records."""
        self._learn_of_configs(records)
        if has_real_brokers(self._store().durable_cluster):
            self._learn_of_real_brokers(records)
            return
        kinds = {type(record.event) for record in records}
        self._again = self._again or not kinds.isdisjoint(_OF_ALL_SIMULATED_BROKERS)
        self._troubled = self._troubled or catalog.BrokerUnfenced in kinds
        if self._again or self._troubled:
            self._begin()

    def _learn_of_configs(self, records: Sequence[catalog.Recorded]) -> None:
        for record in records:
            if type(record.event) is catalog.TopicConfigsChanged and _may_elect(record.event):
                topic = self._store().durable_named(record.event.topic)
                if topic is not None and len(topic.partitions) > ELECTED_AT_ONCE_MAX:
                    self._configured[topic.name] = None
        if self._configured:
            self._begin()

    def _learn_of_real_brokers(self, records: Sequence[catalog.Recorded]) -> None:
        for record in records:
            event = record.event
            if type(event) in _OF_ONE_REAL_BROKER:
                self._brokers[event.broker_id] = None  # type: ignore[union-attr]
            elif type(event) in _OF_ALL_REAL_BROKERS:
                self._again = True
        if self._again or self._brokers:
            self._begin()

    def sweep(self) -> None:
        """Walk through all topics, as this process begins to decide, or again."""
        self._calm = True
        self._begin()

    @property
    def idle(self) -> bool:
        """Whether every topic has been looked at since the last broker event, as far as it is durable."""
        return self._task is None or self._task.done()

    def _begin(self) -> None:
        if self.idle:
            self._task = self._background(self._sweep())

    def stop(self) -> None:
        """End a sweep under way."""
        if self._task is not None:
            self._task.cancel()

    async def _sweep(self) -> None:
        while self._again or self._calm or self._troubled or self._brokers or self._configured:
            brokers, self._brokers = self._brokers, {}
            configured, self._configured = self._configured, {}
            everything, is_calm, troubled = self._again or self._calm, not self._again, self._troubled
            self._again = self._calm = self._troubled = False
            slices = topic_slices(self._store) if everything else self._of(brokers, configured, troubled)
            try:
                await self._walk(chain.from_iterable(map(parts_of, slices)), configured, everything and is_calm)
            except LogClosed:
                return  # the log is being recovered, after which a sweep begins anyway

    async def _walk(self, parts: Iterable[Part], configured: Container[TopicName], is_calm: bool) -> None:
        now_s = asyncio.get_running_loop().time
        resumed_s = now_s()
        for part in parts:
            in_need = self._in_need(part, configured)
            if in_need:
                self._review(in_need, part.span)
            await asyncio.sleep(0)
            await self._decided()
            if is_calm and not self._again:
                await asyncio.sleep(now_s() - resumed_s)
            resumed_s = now_s()

    def _of(
        self, brokers: Iterable[BrokerId], configured: Iterable[TopicName], troubled: bool
    ) -> Iterator[list[Topic]]:
        """Topics with new configs, and those that these real brokers concern: their own, those they may fill, and
        those that wait for them. With `troubled` all that lack something, too."""
        store = self._store()
        keys = dict.fromkeys(map(shard_key, configured))
        for broker_id in brokers:
            keys.update(dict.fromkeys(store.durable_keys_of(broker_id)))
        keys.update(dict.fromkeys(store.durable_keys_with_placeholders()))
        keys.update(dict.fromkeys(store.durable_keys_waiting()))
        some = store.durable_topics(keys, PARTITIONS_PER_SLICE)
        return chain(some, troubled_slices(self._store)) if troubled else some

    def _in_need(self, part: Part, configured: Container[TopicName]) -> tuple[TopicName, ...]:
        cluster = self._store().durable_cluster
        return tuple(
            topic.name
            for topic in part.topics
            if topic.ready_at_ms is None or topic.name in configured or not is_settled(topic, cluster, part.span)
        )


def _may_elect(change: catalog.TopicConfigsChanged) -> bool:
    """Whether others may lead by a topic's new configs: only then are all of its partitions looked at."""
    return change.before is None or any(name in _ELECT_BY for name, _ in set(change.configs) ^ set(change.before))
