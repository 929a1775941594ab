"""The machine in one process: group commit over an event log.

Flow of a command: inbox -> decide and apply, in order, with what brokers say at once -> one atomic write of events
and state -> fsync in a thread (`flushing`) -> answers, fleet, log lines. Commands that arrive during an fsync form the
next commit, so the more load, the more commands share one.

Constraints:
- nobody is answered, and no reader sees anything, before it is durable;
- the loop stays free during the fsync, and one slice of deciding is bounded;
- time, threads and the log come as arguments, so that a simulator can drive this very code;
- after a failed write everything in flight is answered KAFKA_STORAGE_ERROR, and health is not-ready until the log can
  be written again (`storage`);
- where the log is replicated, and another process leads, nothing is decided: what that one commits is taken and shown,
  and requests are answered NOT_CONTROLLER;
- a command on which deciding raises fails alone (`faults`);
- after any other bug nothing more is decided: everything in flight is answered UNKNOWN_SERVER_ERROR, `failed` is set,
  and who runs the controller ends the process.

What it does not do: it knows neither Kafka's wire nor HTTP, and it decides nothing itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import groupby

from controller.access.mutation_quotas import MutationQuotas
from controller.access.refusals import RefusalRecords
from controller.brokers.port import Fleet, LeadLost, Replication
from controller.controller_api import Reply, Standing
from controller.engine import replies
from controller.engine.background import Background
from controller.engine.consulting import Clears, consulted, put_again
from controller.engine.deadlines import Deadlines
from controller.engine.decider import Decider
from controller.engine.faults import Faults
from controller.engine.inbox import Inbox
from controller.engine.replies import PendingRequest, Replies
from controller.engine.reports import Reports
from controller.engine.reviews import Reviews
from controller.engine.stamps import Stamps
from controller.engine.storage import Flush, Storage
from controller.machine.commands.commands import (
    AnyCommand,
    ChangeSettings,
    ClientCommand,
    ExpireRequest,
    ReviewTopics,
    TopicCommand,
)
from controller.machine.errors import ErrorCode
from controller.machine.partitions.blocks import Span
from controller.machine.state import State, Topic
from controller.policy.runner import PolicyJudge, PolicyRunnerClosed
from events.catalog import Configs, Recorded
from events.logs.log import EventLog, LogError
from events.names import Offset, ShardKey, TopicName
from projections.store.recorder import EVENTS_ALONE, Projector
from projections.store.store import TopicStore

COMMANDS_PER_COMMIT_MAX = 512
"""Bounds how long one slice of deciding keeps the loop."""
STRAIGHT_MAX = 4
"""So many commits in a row may have the loop wait for the disk before others have their turn."""
POLICIES_CLOSE_S = 1.0
"""How long the `close` of policies may take before the controller ends without."""


class Controller:
    """One controller: takes commands, decides, records, answers."""

    def __init__(
        self,
        log: EventLog,
        fleet: Fleet,
        *,
        boot_id: str,
        clock_ms: Callable[[], int],
        flush: Flush,
        flush_alone: Flush | None = None,
        reports: Reports,
        policies: PolicyJudge | None = None,
        cluster: Clears | None = None,
        partitions_cached: int = 100_000,
        quotas: MutationQuotas | None = None,
        projector: Projector = EVENTS_ALONE,
        replication: Replication | None = None,
        clock_s: Callable[[], float] | None = None,
    ) -> None:
        """`flush_alone` is for a command that waits alone; `clock_s` measures commits, None: the loop's own clock."""
        self.cluster_id = log.cluster_id
        self.fleet = fleet
        self.reports = reports
        self.replies = Replies()
        self.failed = asyncio.Event()
        self._taken_up = asyncio.Event()
        self.failure: BaseException | None = None
        """The bug, or the LogError beyond recovery, that ended deciding."""
        self._storage = Storage(log, flush, flush_alone or flush, projector, replication, partitions_cached)
        self._policies = policies
        self._cluster = cluster
        self._inbox = Inbox()
        self._task: asyncio.Task[None] | None = None
        self._clock_s = clock_s or _loop_s
        self._decide_by: tuple[Configs, str] = ((), "")
        """Settings and release, from the start on."""
        if replication is not None:
            replication.on_lost = self._inbox.interrupt
        stamps = Stamps(boot_id, clock_ms, self._storage.recorder.last_ms)
        self.now_ms, self.new_request_id = stamps.now_ms, stamps.new_request_id
        background = Background(self._fail)
        self.background, self._end_background = background.begin, background.stop
        self.refusals = RefusalRecords(stamps, self.observe)
        self._faults = Faults(reports.log, reports.figures.command_failed, self.refusals)
        self._decider = Decider(self.replies, quotas or MutationQuotas(), self.refusals, self._faults)
        self._deadlines = Deadlines(self._durable, stamps.now_ms, self.observe)
        """Of creates whose client went with another process, or was answered a storage error."""
        self._reviews = Reviews(lambda: self.store, self._review, self.decided, self.background)

    # --- life

    async def start(self, settings: Configs, release: str) -> None:
        """Begin to decide: record the settings if they changed, take up what a dead process left waiting. Where another
        leads, that is when this process does."""
        self._decide_by = settings, release
        self._task = asyncio.get_running_loop().create_task(self._run(), name="group-commit")
        if self._storage.leads:
            self._take_up()
        self.fleet.start(self)
        self._reviews.sweep()

    def _take_up(self) -> None:
        settings, release = self._decide_by
        cluster = self.state.cluster
        at_ms = self.now_ms(self._storage.recorder.last_ms)  # what others decided may be ahead of the clock here
        if cluster.settings_pairs != settings or cluster.release != release or self._storage.log.next_offset == 0:
            request_id = self.new_request_id("settings")
            self.observe(ChangeSettings(request_id=request_id, at_ms=at_ms, settings=settings, release=release))
        self._deadlines.begin(self.state.waiting)
        self._taken_up.set()

    async def taken_up(self) -> None:
        """Wait until this process decides, or cannot."""
        waiting = [asyncio.ensure_future(each.wait()) for each in (self._taken_up, self.failed)]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for each in waiting:
            each.cancel()

    async def stop(self) -> None:
        """Decide and answer what has been taken, then end. Creates that still wait stay in the log for the next
        start."""
        await self.fleet.stop()
        self._reviews.stop()
        self.refusals.stop()
        self._inbox.close()
        if self._task is not None:
            await self._task
        self._deadlines.stop()
        self.replies.abandon_all()
        await self._end_background()
        if self._policies is not None:
            for failure in await self._policies.close(POLICIES_CLOSE_S):
                self.reports.policy_close_failed(failure)

    def _fail(self, error: BaseException) -> None:
        """A bug: decide nothing more, leave nobody waiting, have the process ended."""
        if self.failure is None:
            self.failure = error
            self.reports.controller_failed(error)
            self._give_up(ErrorCode.UNKNOWN_SERVER_ERROR, replies.CONTROLLER_FAILED)
            self._inbox.close()
            self.failed.set()

    def _give_up(self, code: ErrorCode, message: str) -> None:
        """Drop what was put, and answer all that is in flight."""
        self._inbox.drop_all()
        self.replies.fail_all(code, message)

    # --- the ports of APIs and brokers

    @property
    def store(self) -> TopicStore:
        """Topics, brokers and settings; its durable view is what may be seen."""
        return self._storage.store

    @property
    def state(self) -> State:
        """The state that is decided on."""
        return self._storage.state

    @property
    def storage_error(self) -> str | None:
        """Why the log cannot be written now; None when it can."""
        return self._storage.error

    @property
    def last_offset(self) -> Offset:
        """The offset of the newest durable event, -1 in an empty log."""
        return Offset(self._storage.log.durable_offset - 1)

    def has_waiting_topics(self) -> bool:
        """Whether a topic is not complete yet, so that confirmations matter."""
        return bool(self.state.waiting)

    def standing(self) -> Standing:
        """How the controller stands now."""
        waiting, open_now = len(self.state.waiting), len(self.replies)
        return Standing(self._storage.log.durable_offset, waiting, open_now, self.storage_error, self.failure)

    def is_settled(self) -> bool:
        """Whether every topic has been looked at since the last broker came or went."""
        return self._reviews.idle

    def observe(self, command: AnyCommand) -> None:
        """Put a command that nobody waits for. Dropped while the log cannot be written, while another process leads,
        and after a failure."""
        if self.storage_error is None and self.failure is None and self._storage.leads:
            self._inbox.put((command,))

    async def decided(self) -> None:
        """Wait until all that was put so far is decided and durable, or was dropped with a failed write."""
        await self._inbox.decided()

    def submit(self, commands: Sequence[ClientCommand], timeout_ms: int = 0) -> asyncio.Future[Reply]:
        """Put the commands of one request, one a topic.

        With `timeout_ms` above 0 creates that are not complete by then are answered REQUEST_TIMED_OUT.
        """
        pending = self.replies.expect(commands)
        refusal = self._refusal()
        if refusal is not None:
            self.replies.fail(pending, *refusal)
            return pending.future
        if timeout_ms > 0:
            deadline_ms = commands[0].at_ms + timeout_ms
            pending.when_late(timeout_ms / 1000, lambda: self.background(self._expire(pending, deadline_ms)))
        self._inbox.put(commands)  # type: ignore[arg-type]
        return pending.future

    def _refusal(self) -> tuple[ErrorCode, str] | None:
        if self.storage_error is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR, replies.STORAGE_FAILED
        if self.failure is not None:
            return ErrorCode.UNKNOWN_SERVER_ERROR, replies.CONTROLLER_FAILED
        if self._inbox.closed.is_set():
            return ErrorCode.NOT_CONTROLLER, replies.CONTROLLER_STOPS
        if not self._storage.leads:
            return ErrorCode.NOT_CONTROLLER, replies.ANOTHER_LEADS
        return None

    async def _expire(self, pending: PendingRequest, deadline_ms: int) -> None:
        for topic in pending.unanswered():
            at_ms = self.now_ms(deadline_ms)
            self.observe(ExpireRequest(request_id=pending.request_id, at_ms=at_ms, topic=topic))
        await self.decided()
        # What is still unanswered is at the policies or at the cluster; `_consult` will find its time used up.
        why = replies.STILL_JUDGED if self._cluster is None else replies.STILL_CARRIED_OUT
        self.replies.fail(pending, ErrorCode.REQUEST_TIMED_OUT, why)

    # --- group commit

    async def _run(self) -> None:
        try:
            while await self._may_decide():
                commands = await self._inbox.take(COMMANDS_PER_COMMIT_MAX)
                if commands:
                    await self._commit(commands)
                elif self._inbox.closed.is_set():
                    return
        except Exception as error:
            self._fail(error)

    async def _may_decide(self) -> bool:
        """Whether there is something to decide; False at the end. As long as another leads, take what it commits."""
        while not self._storage.leads:
            self._give_up(ErrorCode.NOT_CONTROLLER, replies.LEAD_LOST)
            try:
                self._storage.load()
                while (records := await self._storage.follow(self._inbox.closed)) is not None:
                    self._storage.show()
                    self.fleet.learn(records)
            except LogError as error:
                await self._storage_failed(error)  # then it follows again, from where the log is
            else:
                if self._storage.leads:
                    self._take_up()
                    self.fleet.resume()
                    self._reviews.sweep()
                    await asyncio.sleep(0)  # a lead that is lost again and again must not keep the loop
            if self._inbox.closed.is_set() and not self._storage.leads:
                return False
        return True

    async def _commit(self, commands: list[AnyCommand]) -> None:
        decided = self._decider.decide(self._storage.recorder, commands)
        if decided.left:
            self._inbox.put_back(decided.left)
        if decided.records:
            self._decider.add(self._storage.recorder, self.fleet.at_once(decided.records), decided)
            started_s = self._clock_s()
            try:
                await self._storage.write(len(commands) == 1 and self._inbox.straight < STRAIGHT_MAX)
            except LogError as error:
                await self._storage_failed(error)
                return
            except LeadLost:
                return
            self.reports.committed(len(commands) - len(decided.left), len(decided.records), self._clock_s() - started_s)
        else:
            await asyncio.sleep(0)
        self._storage.show()
        for _, together in groupby(decided.consult, lambda command: command.request_id):
            self.background(self._consult(tuple(together)))
        for answer in decided.answers:
            self.replies.resolve(answer)
        if decided.records:
            self._notify(decided.records)

    def _notify(self, records: list[Recorded]) -> None:
        self.reports.decided(records)
        self.fleet.learn(records)
        self._reviews.learn(records)

    async def _storage_failed(self, error: LogError) -> None:
        """Answer everything in flight, and decide nothing until the log can be written again."""
        self.reports.storage_failed(str(error))
        self._give_up(ErrorCode.KAFKA_STORAGE_ERROR, replies.STORAGE_FAILED)
        survivors = await self._storage.recover(error, self._inbox.closed)
        if survivors is None:
            return
        self.reports.storage_recovered(self._storage.log.next_offset)
        if self._storage.leads:
            self._take_up()  # the settings, too: what was to record them may be what could not be written
        self.fleet.resume()
        if survivors:
            self._notify(survivors)
        self._reviews.sweep()

    # --- what its parts need of it

    async def _consult(self, commands: Sequence[TopicCommand]) -> None:
        """Ask the policies, and the cluster, about the topics of one request, and put them again with their words."""
        recoveries = self._storage.recoveries
        try:
            judged = await consulted(commands, self.state, self._policies, self._cluster)
        except PolicyRunnerClosed:
            return  # the service stops: nothing may be decided any more, and connections close without an answer
        except Exception as error:
            self._fail_alone(commands, error)
            return
        if self._storage.recoveries == recoveries:  # else its client was answered KAFKA_STORAGE_ERROR meanwhile
            now_ms, left_ms = self.now_ms(), self.replies.left_ms(commands[0].request_id)
            for command in judged:
                self.observe(put_again(command, now_ms, left_ms))  # type: ignore[arg-type]

    def _fail_alone(self, commands: Sequence[TopicCommand], error: Exception) -> None:
        """Something raised on commands that were consulted about together: the one at fault fails."""
        if len(commands) == 1:
            self.replies.resolve(self._faults.note(commands[0], error))  # type: ignore[arg-type]
        else:
            for command in commands:
                self.background(self._consult((command,)))

    def _review(self, topics: tuple[TopicName, ...], span: Span | None) -> None:
        request_id = self.new_request_id("review")
        self.observe(ReviewTopics(request_id=request_id, at_ms=self.now_ms(), topics=topics, span=span))

    def _durable(self, key: ShardKey) -> Topic | None:
        return self.store.durable(key)


def _loop_s() -> float:
    return asyncio.get_running_loop().time()
