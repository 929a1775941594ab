"""An existing Kafka cluster as the fleet: its own controller carries decisions out, its brokers lead and follow.

Three tasks work beside the controller: the watch looks at the cluster again and again, the carrier does what was
committed, and new topics are watched closely until every live broker knows them. All that they find out comes back as
commands; none of them keeps what a restart could not find again in the log and in the cluster.

While the cluster cannot be reached nothing is fenced and nothing is lost: what is not known to be dead is not declared
dead, requests wait until their time is up, and what was committed is carried out when the cluster is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import msgspec
from structlog.typing import FilteringBoundLogger

from controller.brokers.cluster.carrier import Carrier, Configure, Create, Delete, Fill, Grow, action_of
from controller.brokers.cluster.clearing import Clearing, Planned
from controller.brokers.cluster.facts import Past, left_open, past_of
from controller.brokers.cluster.link import ClusterLink, Refusal
from controller.brokers.cluster.security import NotAuthenticated
from controller.brokers.cluster.watch import ClusterWatch, Owns
from controller.brokers.cluster.wire import ClusterUnreachable
from controller.brokers.port import CommandSink
from controller.machine.commands.cluster import FinishChange, RefuseCreation
from controller.machine.commands.commands import AnyCommand, Clearance
from controller.machine.state import Topic
from events.catalog import Recorded, TopicDeleted
from events.logs.archive.place import ArchiveError
from events.names import ShardKey, TopicId, TopicName, shard_key

QUIET_S = 3.0
"""How long after a change from here a topic is left alone by the watch: brokers learn of it one after another."""
DELETED_KEPT = 10_000  # bounds memory; far more than are deleted within a look
RECENT_EVENTS = 10_000
"""How many of the newest events are looked through at a start for changes that nobody reported as done."""

History = Callable[[ShardKey], Iterable[Recorded]]
"""The durable events of a shard, in their order."""


class WatchTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How often the cluster is looked at, in ms: brokers and topics, and the configs of topics."""

    topics_ms: int = 1000
    configs_ms: int = 10_000


class ClusterFleet:
    """A cluster that carries decisions out.

    `log` takes log lines, `history` gives a shard's events after a restart, `recent` the newest events of all, among
    which is what a process before has left undone, and `owns` which topics are in this log. A `shared` link is left
    open at the end: it is others' too.
    """

    def __init__(
        self,
        link: ClusterLink,
        history: History,
        times: WatchTimes,
        log: FilteringBoundLogger,
        owns: Owns = lambda _: True,
        *,
        recent: Callable[[], Iterable[Recorded]] = tuple,
        shared: bool = False,
    ) -> None:
        self.link = link
        self.trouble: str | None = None
        """Why the cluster cannot be reached now; None when it can."""
        self.deleted: dict[TopicId, None] = {}
        self._history = history
        self._times = times
        self._log = log
        self._owns = owns
        self._recent = recent
        self._shared = shared
        self._touched: dict[TopicName, float] = {}
        self._reconciling = self._unfinished = True
        self._looked = asyncio.Event()
        self._nudged = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._sink: CommandSink
        self._watch: ClusterWatch
        self._carrier: Carrier
        self._clearing: Clearing

    # --- the port

    def start(self, controller: CommandSink) -> None:
        """Take up what a process before left undone, and begin to watch."""
        self._sink = controller
        self._loop = asyncio.get_running_loop()
        self._watch = ClusterWatch(self.link, controller, self, self._owns)
        self._carrier = Carrier(self.link, self, self._log)
        self._clearing = Clearing(self.link)
        self.resume()
        work = (self._keep_watching(), self._carrier.run(), self._watch.confirm_all())
        self._tasks = [controller.background(each) for each in work]

    def resume(self) -> None:
        """What was reported may be lost: find out again, from the log and the cluster, what is done and what is not."""
        self._reconciling = self._unfinished = True
        self._carrier.drop_all()
        self._watch.forget()
        self._nudged.set()

    def immediate_commands(self, records: Sequence[Recorded]) -> Sequence[AnyCommand]:
        """Nothing: brokers that are processes of their own need time."""
        return ()

    def learn(self, records: Sequence[Recorded]) -> None:
        """Carry committed events out."""
        for record in records:
            if isinstance(record.event, TopicDeleted):
                self._remember_deleted(record.event.topic_id)
            action = action_of(record.event)
            if action is not None:
                self._touch(action.topic)
                self._carrier.put(action)
                self._watch.forget()

    async def stop(self) -> None:
        """Stop at once: what is not carried out yet is taken up by the next start."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if not self._shared:
            self.link.close()

    # --- for the engine, beside the port

    async def looked(self) -> None:
        """Wait until the brokers and topics of the cluster are known."""
        await self._looked.wait()

    async def clear(self, planned: Sequence[Planned]) -> list[Clearance]:
        """What the cluster says of commands that are about to be decided, in order."""
        cleared = await self._clearing.clear(planned)
        if any(clearance.error_code for clearance in cleared):
            self._nudged.set()  # what is in the way may be something that was not seen yet
        return cleared

    # --- for the watch

    def is_busy(self, name: TopicName) -> bool:
        """Whether a topic is being changed from here, or was a moment ago."""
        if self._carrier.pending[name] or self._watch.is_confirming(name):
            return True
        touched = self._touched.get(name)
        if touched is None:
            return False
        if self._loop.time() - touched < QUIET_S:
            return True
        del self._touched[name]
        return False

    def left_open(self, name: TopicName) -> Past | None:
        """After a start what the log says of a topic that differs; later everything is known."""
        return past_of(self._history(shard_key(name))) if self._reconciling else None

    def take_up(self, name: TopicName, past: Past) -> bool:
        """Have what the log leaves open carried out; whether there was anything of this topic."""
        for topic_id in past.deleted:
            self._remember_deleted(topic_id)
        actions = [action_of(change, tried=True) for change in past.changes if change.topic == name]
        if past.fills and self.topic(name) is not None:
            actions.append(Fill(topic=name))
        for action in actions:
            if action is not None:
                self._touch(name)
                self._carrier.put(action)
        return bool(actions)

    # --- what the carrier reports

    def topic(self, name: TopicName) -> Topic | None:
        """The topic as it is decided."""
        return self._sink.store.durable_named(name)

    def created(self, action: Create) -> None:
        """The cluster has created a topic."""
        self._touch(action.topic)
        self._watch.confirm(action.topic)

    def creation_refused(self, action: Create, refusal: Refusal) -> None:
        """The cluster has refused a topic that was decided on."""
        self._log.warning("the cluster refuses a creation", topic=action.topic, code=refusal.code, why=refusal.message)
        sink = self._sink
        sink.submit_internal(
            RefuseCreation(
                request_id=sink.new_request_id("refused"),
                at_ms=sink.now_ms(),
                topic=action.topic,
                topic_id=action.topic_id,
                error_code=refusal.code,
                message=refusal.message,
            )
        )
        self._touched.pop(action.topic, None)
        self._nudged.set()

    def finished(self, action: Grow | Delete | Configure, refusal: Refusal | None) -> None:
        """The cluster has done, or refused, a change that was decided on."""
        self._touch(action.topic)
        code, message = (0, "") if refusal is None else (refusal.code, refusal.message)
        sink = self._sink
        sink.submit_internal(
            FinishChange(
                request_id=action.request_id, at_ms=sink.now_ms(), topic=action.topic, error_code=code, message=message
            )
        )
        if refusal is not None:
            self._log.warning("the cluster refuses a change", topic=action.topic, code=code, why=message)
            if isinstance(action, Delete):
                self.deleted.pop(action.topic_id, None)
            sink.background(self._recheck(action.topic))

    async def _recheck(self, name: TopicName) -> None:
        await self._sink.decided()
        try:
            await self._watch.recheck(name)
        except (ClusterUnreachable, NotAuthenticated):
            self._touched.pop(name, None)  # the watch will see it as soon as it can look again

    # --- inside

    async def _keep_watching(self) -> None:
        configs_due = self._loop.time()
        while True:
            try:
                await self._look()
                if self._loop.time() >= configs_due:
                    await self._watch.look_at_configs()
                    await self.link.ask_versions()
                    await self._watch.look_at_log_dirs()
                    configs_due = self._loop.time() + self._times.configs_ms / 1000
                    self._reconciling = False
            except (ClusterUnreachable, NotAuthenticated, ArchiveError) as unreachable:  # histories may be archived
                self._in_trouble(str(unreachable))
            else:
                self._out_of_trouble()
            self._nudged.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._nudged.wait(), self._until_next_look_s())

    def _until_next_look_s(self) -> float:
        """At the full interval of the loop's clock: so those who share a link look together, and share one answer."""
        every_s = self._times.topics_ms / 1000
        return every_s - self._loop.time() % every_s

    async def _look(self) -> None:
        if self._reconciling:
            self._take_up_creations()
        if self._unfinished:
            self._take_up_changes()
        await self._watch.look()
        self._looked.set()

    def _take_up_creations(self) -> None:
        """Topics that were never complete may or may not have been created."""
        for topic in self._waiting():
            if not self.is_busy(topic.name):
                facts = {"topic_id": topic.topic_id, "partitions": topic.partitions, "configs": topic.configs}
                self._carrier.put(Create(topic=topic.name, tried=True, **facts))  # type: ignore[arg-type]

    def _take_up_changes(self) -> None:
        """What was not reported as done is done again, also where nothing differs: that is how it gets reported."""
        for name in left_open(self._recent()):
            self.take_up(name, past_of(self._history(shard_key(name))))
        self._unfinished = False

    def _waiting(self) -> list[Topic]:
        if not self._sink.has_pending_creates():
            return []
        waiting: list[Topic] = []
        after: str | None = None
        while topics := self._sink.store.durable_slice(after, 200):
            after = shard_key(topics[-1].name)
            waiting += [topic for topic in topics if topic.ready_at_ms is None]
        return waiting

    def _touch(self, name: TopicName) -> None:
        self._touched[name] = self._loop.time()

    def _remember_deleted(self, topic_id: TopicId) -> None:
        self.deleted[topic_id] = None
        while len(self.deleted) > DELETED_KEPT:
            del self.deleted[next(iter(self.deleted))]

    def _in_trouble(self, why: str) -> None:
        if self.trouble is None:
            self._log.error("the cluster cannot be reached", why=why)
        self.trouble = why

    def _out_of_trouble(self) -> None:
        if self.trouble is not None:
            self.trouble = None
            self._log.info("the cluster can be reached again")
