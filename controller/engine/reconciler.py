"""Reconciles topics after broker changes.

A broker event concerns every topic. One decision for all topics would delay all other commands. A sweep therefore walks
through the topics in slices, submits ReconcileTopics for those that need it, and continues when that is durable. If the
process dies during a sweep, the sweep at the next start completes it: the result depends on the state alone.

KRaft brokers have an index of the topics with replicas on them, so their sweep visits only those. A simulated broker
that comes back can only help topics that are under-replicated, offline or pending, which are indexed too.

The sweep at the start covers the rare case that the process before died during a sweep. It uses at most half a core.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Coroutine, Iterable, Iterator, Sequence
from itertools import chain

from controller.machine.configs.topic_configs import MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION
from controller.machine.partitions.blocks import Span
from controller.machine.partitions.leadership import is_reconciled
from controller.machine.partitions.rules import has_kraft_brokers
from controller.machine.state import Topic
from controller.machine.topics import ELECTED_AT_ONCE_MAX
from events import catalog
from events.logs.log import LogClosed
from events.names import BrokerId, TopicName, shard_key
from projections.store.store import PARTITIONS_PER_SLICE, Part, TopicStore, parts_of, topic_slices, unhealthy_slices

_ELECT_BY = frozenset({UNCLEAN_ELECTION, MIN_INSYNC_REPLICAS})
"""Configs that determine which replicas may lead."""
_BROKER_EVENTS = frozenset({catalog.BrokerFenced, catalog.BrokerUnfenced, catalog.BrokerUnregistered})
_ONE_KRAFT_BROKER = frozenset(
    {*_BROKER_EVENTS, catalog.BrokerRegistered, catalog.BrokerLeaving, catalog.LogDirsChanged}
)
_ALL_SIMULATED_BROKERS = frozenset({catalog.BrokerFenced, catalog.BrokerUnregistered, catalog.ResourceConfigsChanged})
_ALL_KRAFT_BROKERS = frozenset({catalog.FeaturesChanged, catalog.ResourceConfigsChanged})


class Reconciler:
    """Runs one sweep at a time, and again from the beginning if brokers changed during it.

    `store` returns the current store, `reconcile` submits the command for topics or a span of one topic, `decided`
    waits until all submitted commands are durable, `background` starts a task.
    """

    def __init__(
        self,
        store: Callable[[], TopicStore],
        reconcile: Callable[[tuple[TopicName, ...], Span | None], None],
        decided: Callable[[], Awaitable[None]],
        background: Callable[[Coroutine[object, object, None]], asyncio.Task[None]],
    ) -> None:
        self._store = store
        self._reconcile = reconcile
        self._decided = decided
        self._background = background
        self._task: asyncio.Task[None] | None = None
        self._again = False
        self._low_priority = False
        """A sweep of all topics at low priority: nothing is known to have changed."""
        self._unhealthy = False
        """Sweep the topics that are under-replicated, offline or pending."""
        self._brokers: dict[BrokerId, None] = {}
        """KRaft brokers that changed, in order."""
        self._configured: dict[TopicName, None] = {}
        """Large topics whose configs changed which replicas may lead or are eligible."""

    def on_events(self, records: Sequence[catalog.Recorded]) -> None:
        """Start a sweep if a broker event is among the records."""
        self._on_config_events(records)
        if has_kraft_brokers(self._store().durable_cluster):
            self._on_kraft_broker_events(records)
            return
        kinds = {type(record.event) for record in records}
        self._again = self._again or not kinds.isdisjoint(_ALL_SIMULATED_BROKERS)
        self._unhealthy = self._unhealthy or catalog.BrokerUnfenced in kinds
        if self._again or self._unhealthy:
            self._begin()

    def _on_config_events(self, records: Sequence[catalog.Recorded]) -> None:
        for record in records:
            if type(record.event) is catalog.TopicConfigsChanged and _may_elect(record.event):
                topic = self._store().durable_named(record.event.topic)
                if topic is not None and len(topic.partitions) > ELECTED_AT_ONCE_MAX:
                    self._configured[topic.name] = None
        if self._configured:
            self._begin()

    def _on_kraft_broker_events(self, records: Sequence[catalog.Recorded]) -> None:
        for record in records:
            event = record.event
            if type(event) in _ONE_KRAFT_BROKER:
                self._brokers[event.broker_id] = None  # type: ignore[union-attr]
            elif type(event) in _ALL_KRAFT_BROKERS:
                self._again = True
        if self._again or self._brokers:
            self._begin()

    def sweep(self) -> None:
        """Sweep all topics at low priority."""
        self._low_priority = True
        self._begin()

    @property
    def idle(self) -> bool:
        """True if every topic has been reconciled since the last durable broker event."""
        return self._task is None or self._task.done()

    def _begin(self) -> None:
        if self.idle:
            self._task = self._background(self._sweep())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _sweep(self) -> None:
        while self._again or self._low_priority or self._unhealthy or self._brokers or self._configured:
            brokers, self._brokers = self._brokers, {}
            configured, self._configured = self._configured, {}
            everything, is_low_priority, unhealthy = self._again or self._low_priority, not self._again, self._unhealthy
            self._again = self._low_priority = self._unhealthy = False
            slices = topic_slices(self._store) if everything else self._of(brokers, configured, unhealthy)
            try:
                await self._walk(chain.from_iterable(map(parts_of, slices)), configured, everything and is_low_priority)
            except LogClosed:
                return  # the log is being recovered; a sweep follows

    async def _walk(self, parts: Iterable[Part], configured: Container[TopicName], is_low_priority: bool) -> None:
        now_s = asyncio.get_running_loop().time
        resumed_s = now_s()
        for part in parts:
            in_need = self._in_need(part, configured)
            if in_need:
                self._reconcile(in_need, part.span)
            await asyncio.sleep(0)
            await self._decided()
            if is_low_priority and not self._again:
                await asyncio.sleep(now_s() - resumed_s)
            resumed_s = now_s()

    def _of(
        self, brokers: Iterable[BrokerId], configured: Iterable[TopicName], unhealthy: bool
    ) -> Iterator[list[Topic]]:
        """The configured topics, those with replicas on these brokers, those with placeholders, and pending ones. With
        `unhealthy` also the under-replicated and offline ones."""
        store = self._store()
        keys = dict.fromkeys(map(shard_key, configured))
        for broker_id in brokers:
            keys.update(dict.fromkeys(store.durable_keys_of(broker_id)))
        keys.update(dict.fromkeys(store.durable_keys_with_placeholders()))
        keys.update(dict.fromkeys(store.durable_keys_waiting()))
        some = store.durable_topics(keys, PARTITIONS_PER_SLICE)
        return chain(some, unhealthy_slices(self._store)) if unhealthy else some

    def _in_need(self, part: Part, configured: Container[TopicName]) -> tuple[TopicName, ...]:
        cluster = self._store().durable_cluster
        return tuple(
            topic.name
            for topic in part.topics
            if topic.ready_at_ms is None or topic.name in configured or not is_reconciled(topic, cluster, part.span)
        )


def _may_elect(change: catalog.TopicConfigsChanged) -> bool:
    """True if the config change affects which replicas may lead."""
    return change.before is None or any(name in _ELECT_BY for name, _ in set(change.configs) ^ set(change.before))
