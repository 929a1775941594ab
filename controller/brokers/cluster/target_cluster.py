"""An existing Kafka cluster as the brokers: its own controller applies the decisions, its brokers lead and follow.

Three tasks run next to the engine: the watch (`watch`) scans the cluster periodically, the action runner (`actions`)
applies committed changes, and new topics are polled until every live broker knows them. All results are submitted as
commands. After a restart the tasks rebuild their state from the log and the cluster.

While the cluster is unreachable, no broker is fenced and no change is lost: requests wait until they time out, and
committed changes are applied when the cluster is back.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from controller.brokers.cluster.actions import ActionRunner, PlannedCommand, dry_run, logger
from controller.brokers.cluster.link import ClusterLink, Refusal
from controller.brokers.cluster.reconciliation import ACTED_ON, Action, Change, action_of, unfinished_topics
from controller.brokers.cluster.watch import ClusterWatch, Owns
from controller.brokers.port import Brokers, CommandSink, EventTypes, stamp
from controller.kafka.connections import ClusterUnreachable, NotAuthenticated
from controller.machine.commands.commands import DryRunResult, FinishChange, RefuseCreation
from controller.settings.load import ServeSettings
from events.catalog import Recorded, TopicDeleted
from events.codec import decode_event
from events.logs.archive.store import ArchiveError
from events.logs.log import EventLog
from events.names import Offset, TopicName

RECENT_EVENTS = 10_000
"""The number of newest events that a start searches for changes without a result."""


class TargetCluster(Brokers):
    """The `Brokers` port for a target cluster.

    A start resumes the unfinished changes among the newest events of `log`. `owns` is true for the topics of this log:
    a worker owns only some. The caller closes the link.
    """

    handles: EventTypes = ACTED_ON

    def __init__(self, link: ClusterLink, log: EventLog, settings: ServeSettings, owns: Owns = lambda _: True) -> None:
        self.link = link
        self.error: str | None = None
        """Why the cluster is unreachable; None if it is reachable."""
        self._log, self._settings, self._owns = log, settings, owns
        self._unfinished = True
        self._scanned = asyncio.Event()
        self._scan_now = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._sink: CommandSink
        self._watch: ClusterWatch
        self._actions: ActionRunner

    # --- the port

    def start(self, controller: CommandSink) -> None:
        self._sink = controller
        self._loop = asyncio.get_running_loop()
        self._actions = ActionRunner(self.link, controller, self._log, self._on_finished)
        self._watch = ClusterWatch(self.link, controller, self._actions, self._owns)
        self.resume()
        work = (self._run_watch(), self._actions.run(), self._watch.confirm_all())
        self._tasks = [controller.background(each) for each in work]

    def resume(self) -> None:
        """Resume unfinished changes and rescan the cluster, because results may not have reached the log."""
        self._actions.is_resuming = self._unfinished = True
        self._actions.clear()
        self._watch.rescan_all()
        self._scan_now.set()

    def on_events(self, records: Sequence[Recorded], end: Offset) -> None:
        for record in records:
            action = action_of(record.event)
            if action is not None:
                self._actions.enqueue(action)
                self._watch.rescan_all()

    async def stop(self) -> None:
        """Stop at once; the next start resumes unfinished changes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- for the engine

    async def first_scan(self) -> None:
        """Wait until the brokers and topics of the cluster are known."""
        await self._scanned.wait()

    async def dry_run(self, planned: Sequence[PlannedCommand]) -> list[DryRunResult]:
        """The cluster's dry-run results for planned commands, in order."""
        results = await dry_run(self.link, planned)
        if any(result.error_code for result in results):
            self._scan_now.set()  # the reason may be a change in the cluster since the last scan
        return results

    # --- results

    def _on_finished(self, action: Action, refusal: Refusal | None) -> None:
        name, change = action.topic, action.change
        code, message = (0, "") if refusal is None else (refusal.code, refusal.message)
        if refusal is not None:
            logger.warning("the cluster refuses a change", change=action.name, topic=name, code=code, why=message)
        if isinstance(change, Change):
            request_id, at_ms = change.request_id, self._sink.now_ms()
            self._sink.submit_internal(
                FinishChange(request_id=request_id, at_ms=at_ms, topic=name, error_code=code, message=message)
            )
            if refusal is not None:
                if isinstance(change, TopicDeleted):
                    self._actions.deleted.pop(change.topic_id, None)
                self._sink.background(self._rescan(name))
        elif refusal is None:
            self._watch.confirm(name)
        elif change is not None:
            facts = {"topic": name, "topic_id": change.topic_id, "error_code": code, "message": message}
            self._sink.submit_internal(RefuseCreation(**stamp(self._sink, "refused"), **facts))  # type: ignore[arg-type]
            self._actions.forget_change(name)
            self._scan_now.set()

    async def _rescan(self, name: TopicName) -> None:
        await self._sink.decided()
        try:
            await self._watch.rescan(name)
        except (ClusterUnreachable, NotAuthenticated):
            self._actions.forget_change(name)  # the next successful scan will report it

    # --- tasks

    async def _run_watch(self) -> None:
        configs_due = self._loop.time()
        while True:
            try:
                await self._scan()
                if self._loop.time() >= configs_due:
                    await self._watch.scan_configs()
                    await self.link.refresh_api_versions()
                    await self._watch.scan_log_dirs()
                    configs_due = self._loop.time() + self._settings.cluster_configs_watch_interval_ms / 1000
                    self._actions.is_resuming = False
            except (ClusterUnreachable, NotAuthenticated, ArchiveError) as unreachable:  # archives hold old events
                if self.error is None:
                    logger.error("the cluster cannot be reached", why=str(unreachable))
                self.error = str(unreachable)
            else:
                if self.error is not None:
                    logger.info("the cluster can be reached again")
                self.error = None
            self._scan_now.clear()
            every_s = self._settings.cluster_watch_interval_ms / 1000
            with suppress(TimeoutError):  # aligned to the clock, so that users of a shared link share one request
                await asyncio.wait_for(self._scan_now.wait(), every_s - self._loop.time() % every_s)

    async def _scan(self) -> None:
        if self._actions.is_resuming:
            self._resume_creations()
        if self._unfinished:
            end = self._log.durable_offset
            recent = self._log.read(max(0, end - RECENT_EVENTS), end)
            for name in unfinished_topics(decode_event(*each) for each in recent):
                self._actions.resume_work(name)  # also if the cluster matches: this reports the result
            self._unfinished = False
        await self._watch.scan()
        self._scanned.set()

    def _resume_creations(self) -> None:
        """Create pending topics again, because it is unknown whether the cluster has them."""
        store = self._sink.store
        for key in store.durable_keys_waiting():
            topic = store.durable(key)
            if topic is not None and topic.ready_at_ms is None and not self._watch.is_busy(topic.name):
                self._actions.enqueue(Action(topic.name, topic, attempts=1))
