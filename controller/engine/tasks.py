"""Background tasks of the process that decides for a log: deadlines of requests, and reconciling topics.

Deadlines are those of pending creates that have no client connection in this process. When one passes, an ExpireRequest
command is submitted. Pending creates are part of the state, so the next owner of the state also has their deadlines.
So are requests that wait for approval, until they expire.

Reconciling. A broker event concerns every topic. One decision for all topics would delay all other commands. A sweep
therefore walks through the topics in slices, submits ReconcileTopics for topics that need changes, and continues when
these changes are durable. If the process dies during a sweep, the sweep at the next start completes it: the result
depends on the state alone. A sweep of all topics uses at most half a core, because it rarely finds anything to do.

The store has an index of the topics with replicas on a broker, so an event of one broker visits only those, the topics
with placeholders and the pending ones. Of a large topic it visits only the partitions with such a replica.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from controller.brokers.port import Brokers, CommandSink, EventTypes, stamp, walk
from controller.machine.commands.access import EndApprovals
from controller.machine.commands.commands import ExpireRequest, ReconcileTopics
from controller.machine.configs.topic_configs import MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION
from controller.machine.partitions.changes import Reconciliation
from controller.machine.topics import ELECTED_AT_ONCE_MAX
from controller.store.store import Part, parts_of, topic_slices
from events import catalog
from events.catalog import ApprovalDecided, ApprovalRequested, CreateAnswered, Recorded, TopicCreated
from events.logs.log import LogClosed
from events.names import BrokerId, Offset, RequestId, ShardKey, TopicName, shard_key


class Deadlines:
    """Submits an ExpireRequest to `sink`, the controller of one log, when the deadline of a pending create passes."""

    handles: EventTypes = frozenset({TopicCreated, CreateAnswered})

    def __init__(self, sink: CommandSink) -> None:
        self._sink = sink
        self._timers: set[asyncio.TimerHandle] = set()

    def begin(self, waiting: Iterable[ShardKey]) -> None:
        """Replace all deadlines by those of the topics `waiting`; passed deadlines are due at once."""
        self.stop()
        for key in waiting:
            topic = self._sink.store.durable(key)
            if topic is not None and topic.pending_create is not None:
                self._add(topic.pending_create.deadline_ms, topic.pending_create.request_id, topic.name)

    def on_events(self, records: Sequence[Recorded], end: Offset) -> None:
        """Add the deadlines of created topics, except those that the same events answer."""
        events = [record.event for record in records]
        answered = {(event.request_id, event.topic) for event in events if type(event) is CreateAnswered}
        for record, event in zip(records, events, strict=True):
            if type(event) is not TopicCreated or event.deadline_ms <= record.at_ms:
                continue
            if (event.request_id, event.topic) not in answered:
                self._add(event.deadline_ms, event.request_id, event.topic)

    def stop(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _add(self, deadline_ms: int, request_id: RequestId, topic: TopicName) -> None:
        def expire() -> None:
            self._timers.discard(timer)
            with suppress(LogClosed):  # the log is being recovered; `begin` follows
                held = self._sink.store.durable(shard_key(topic))
                pending = None if held is None else held.pending_create
                if pending is not None and pending.request_id == request_id:
                    at_ms = self._sink.now_ms(deadline_ms)
                    self._sink.submit_internal(ExpireRequest(request_id=request_id, at_ms=at_ms, topic=topic))

        timer = asyncio.get_running_loop().call_later((deadline_ms - self._sink.now_ms(0)) / 1000, expire)
        self._timers.add(timer)


class ApprovalExpiry:
    """Submits EndApprovals to `sink`, the controller of one log, when a request that waits for approval expires."""

    handles: EventTypes = frozenset({ApprovalRequested, ApprovalDecided})

    def __init__(self, sink: CommandSink) -> None:
        self._sink = sink
        self._timer: asyncio.TimerHandle | None = None

    def on_events(self, records: Sequence[Recorded], end: Offset) -> None:
        if records:
            self.begin()

    def begin(self) -> None:
        """Wait for the request that expires first; one that has expired is due at once."""
        self.stop()
        held = self._sink.store.durable_cluster.held.values()
        if held:
            due_ms = min(one.expires_at_ms for one in held)
            after_s = (due_ms - self._sink.now_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(after_s, self._end, due_ms)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _end(self, due_ms: int) -> None:
        request_id, at_ms = self._sink.new_request_id("approvals"), self._sink.now_ms(due_ms)
        self._sink.submit_internal(EndApprovals(request_id=request_id, at_ms=at_ms, principal=""))


class Background:
    """The running background tasks of a process. An exception in a task is a bug, reported to `on_failure`."""

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def stop(self) -> None:
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_failure(error)


_ELECT_BY = frozenset({UNCLEAN_ELECTION, MIN_INSYNC_REPLICAS})
"""Configs that determine which replicas may lead."""
_ALL_BROKERS: EventTypes = frozenset({catalog.FeaturesChanged, catalog.ResourceConfigsChanged})


class Reconciler:
    """Runs one sweep at a time, and again from the beginning if brokers changed during the sweep. Commands are
    submitted to `sink`, the controller of one log. Its `brokers` report on each part that a sweep visits."""

    handles: EventTypes = catalog.BROKER_EVENTS | _ALL_BROKERS | {catalog.TopicConfigsChanged}

    def __init__(self, sink: CommandSink, brokers: Brokers) -> None:
        self._sink, self._report_again = sink, brokers.report_again
        self._task: asyncio.Task[None] | None = None
        self._everything = False
        """True if a sweep of all topics is due."""
        self._brokers: dict[BrokerId, None] = {}
        self._configured: dict[TopicName, None] = {}
        """Large topics with a config change that affects which replicas may lead or are eligible (KIP-966)."""

    def on_events(self, records: Sequence[catalog.Recorded], end: Offset) -> None:
        """Start a sweep if the events may affect other topics than their own."""
        for record in records:
            event: Any = record.event
            if type(event) in catalog.BROKER_EVENTS:
                self._brokers[event.broker_id] = None
            elif type(event) in _ALL_BROKERS:
                self._everything = True
            elif event.before is None or any(name in _ELECT_BY for name, _ in set(event.configs) ^ set(event.before)):
                topic = self._sink.store.durable_named(event.topic)
                if topic is not None and len(topic.partitions) > ELECTED_AT_ONCE_MAX:
                    self._configured[topic.name] = None
        if self._everything or self._brokers or self._configured:
            self._begin()

    def sweep(self) -> None:
        self._everything = True
        self._begin()

    @property
    def idle(self) -> bool:
        """True if every topic has been reconciled since the last durable broker event."""
        return self._task is None or self._task.done()

    def _begin(self) -> None:
        if self.idle:
            self._task = self._sink.background(self._sweep())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _sweep(self) -> None:
        while self._everything or self._brokers or self._configured:
            brokers, self._brokers = self._brokers, {}
            configured, self._configured = self._configured, {}
            everything, self._everything = self._everything, False
            try:
                every_part = parts_of(topic_slices(lambda: self._sink.store))
                await self._walk(every_part if everything else self._of(brokers, configured), everything)
            except LogClosed:
                return  # the log is being recovered; a sweep follows

    async def _walk(self, parts: Iterable[Part], everything: bool) -> None:
        now_s = asyncio.get_running_loop().time
        resumed_s = now_s()
        async for part in walk(self._sink, parts):
            if everything:
                await asyncio.sleep(now_s() - resumed_s)
            resumed_s = now_s()
            is_reconciled = Reconciliation(self._sink.store.durable_cluster).is_reconciled
            in_need = tuple(
                topic.name
                for topic in part.topics
                if topic.ready_at_ms is None or not is_reconciled(topic, part.partitions)
            )
            if in_need:
                stamped = stamp(self._sink, "reconcile")
                self._sink.submit_internal(ReconcileTopics(**stamped, topics=in_need, partitions=part.partitions))
            self._report_again(part)

    def _of(self, brokers: Iterable[BrokerId], configured: Iterable[TopicName]) -> Iterator[Part]:
        """The configured topics, partitions with replicas on these brokers or with placeholders, and pending topics. A
        target cluster elects leaders itself, so with one the replicas on these brokers are left out."""
        store = self._sink.store
        with_replicas = () if store.durable_cluster.settings.has_target_cluster else brokers
        whole = sorted(map(shard_key, configured)), store.durable_keys_waiting()
        return store.durable_parts((*store.durable_placeholders(), *with_replicas), *whole)
