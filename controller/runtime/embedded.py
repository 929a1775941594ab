"""The machine in one process: group commit over an event log.

Flow of a command: inbox -> decide and apply, in order -> one atomic write of events and state -> fsync in a thread ->
answers, fleet, log lines. Commands that arrive during an fsync form the next commit, so the more load, the more
commands share one.

Constraints:
- nobody is answered, and no reader sees anything, before it is durable;
- the loop stays free during the fsync, and one slice of deciding is bounded;
- time, threads and the log come as arguments, so that a simulator can drive this very code;
- after a failed write the truth is what the disk has: everything in flight is answered KAFKA_STORAGE_ERROR, the state
  is read anew from the log when that works again, and health is not-ready until then;
- after a bug nothing more is decided: everything in flight is answered UNKNOWN_SERVER_ERROR, `failed` is set, and who
  runs the controller ends the process.

What it does not do: it knows neither Kafka's wire nor HTTP, and it decides nothing itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Any

from controller.brokers.fleet import EVENTS_ALONE, Fleet, Projector
from controller.machine.commands import AnyCommand, Ask, Asked, ChangeSettings, ExpireRequest
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from controller.machine.state import Waiter
from controller.policy.runner import PolicyJudge, PolicyRunnerClosed
from controller.runtime import replies
from controller.runtime.consulting import Clears, consulted, put_again
from controller.runtime.deciding import Deciding
from controller.runtime.mutation_quotas import MutationQuotas, Throttle
from controller.runtime.progress import Progress
from controller.runtime.refusals import RefusalRecords
from controller.runtime.replies import PendingAsk, Replies
from controller.runtime.reports import Reports
from controller.runtime.reviews import Reviews
from events.catalog import Recorded
from events.codec import decode_event
from events.log import Commit, EventLog, LogClosed, LogCorrupted, LogError
from events.names import Offset, RequestId, TopicName
from projections.store import TopicStore

COMMANDS_PER_COMMIT_MAX = 512
"""Bounds how long one slice of deciding keeps the loop."""
RECOVER_AFTER_S = 1.0
POLICIES_CLOSE_S = 1.0

Flush = Callable[[], Awaitable[object]]

_BEYOND_RECOVERY = (LogCorrupted, LogClosed)
"""What waiting does not cure."""


class Controller:
    """One controller: takes asks, decides, records, answers."""

    def __init__(
        self,
        log: EventLog,
        fleet: Fleet,
        *,
        boot_id: str,
        clock_ms: Callable[[], int],
        flush: Flush,
        reports: Reports,
        policies: PolicyJudge | None = None,
        cluster: Clears | None = None,
        partitions_cached: int = 100_000,
        quotas: MutationQuotas | None = None,
        projector: Projector = EVENTS_ALONE,
    ) -> None:
        self.log = log
        self.fleet = fleet
        self.reports = reports
        self.replies = Replies()
        self.storage_error: str | None = None
        self.failed = asyncio.Event()
        self.failure: BaseException | None = None
        """The bug, or the LogError beyond recovery, that ended deciding."""
        self._boot_id, self._clock_ms, self._flush = boot_id, clock_ms, flush
        self._policies = policies
        self._cluster = cluster
        self._projector = projector
        self._partitions_cached = partitions_cached
        self._requests = self._recoveries = self._last_ms = 0
        self._inbox: list[AnyCommand] = []
        self._wake = asyncio.Event()
        self._progress = Progress()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._timers: set[asyncio.TimerHandle] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._reviews = Reviews(self)
        self.refusals = RefusalRecords(self)
        self._deciding = Deciding(self.replies, quotas or MutationQuotas(), self.refusals, projector)
        self._load_state()

    def _load_state(self) -> None:
        """Take the log's state for ours. Raises LogError."""
        store = TopicStore(self.log, self._partitions_cached)
        state = store.state()
        end = self.log.next_offset
        if end:
            self.now_ms(decode_event(end - 1, self.log.read_one(end - 1)).at_ms)
        self.store, self.state = store, state
        self._told_end = end

    # --- life

    async def start(self, settings: tuple[tuple[str, str], ...], release: str) -> None:
        """Begin to decide: record the settings if they changed, take up what a dead process left waiting."""
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run(), name="group-commit")
        cluster = self.state.cluster
        if cluster.settings_pairs != settings or cluster.release != release or self.log.next_offset == 0:
            request_id = self.new_request_id("settings")
            self.observe(ChangeSettings(request_id=request_id, at_ms=self.now_ms(), settings=settings, release=release))
        self._expire_what_waits()
        self.fleet.start(self)
        self._reviews.sweep()

    async def stop(self) -> None:
        """Decide and answer what has been taken, then end. Creates that still wait stay in the log for the next
        start."""
        await self.fleet.stop()
        self._reviews.stop()
        self.refusals.stop()
        self._stopping.set()
        self._wake.set()
        if self._task is not None:
            await self._task
        self._cancel_timers()
        self.replies.abandon_all()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._policies is not None:
            for failure in await self._policies.close(POLICIES_CLOSE_S):
                self.reports.policy_close_failed(failure)

    def background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something beside the group commit until it ends or the controller stops. What it raises is a bug."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._background_done)
        return task

    def _background_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """A bug: decide nothing more, leave nobody waiting, have the process ended."""
        if self.failure is None:
            self.failure = error
            self.reports.controller_failed(error)
            self._give_up(ErrorCode.UNKNOWN_SERVER_ERROR, replies.CONTROLLER_FAILED)
            self._wake.set()
            self.failed.set()

    def _give_up(self, code: ErrorCode, message: str) -> None:
        """Drop what was put, and answer all that is in flight."""
        self._inbox.clear()
        self._progress.release_all()
        self.replies.fail_all(code, message)

    # --- the port of the fronts and of the fleet

    @property
    def last_offset(self) -> Offset:
        """The offset of the newest durable event, -1 in an empty log."""
        return Offset(self.log.durable_offset - 1)

    def has_waiting_topics(self) -> bool:
        """Whether a topic is not complete yet, so that confirmations matter."""
        return bool(self.state.waiting)

    def is_settled(self) -> bool:
        """Whether every topic has been looked at since the last broker came or went."""
        return self._reviews.idle

    def now_ms(self, at_least_ms: int = 0) -> int:
        """The wall clock in ms since the epoch; it never goes back, nor behind the log of an earlier process.

        A deadline that a timer found to have passed is given as `at_least_ms`: the clock may not agree yet.
        """
        self._last_ms = max(self._last_ms, self._clock_ms(), at_least_ms)
        return self._last_ms

    def new_request_id(self, origin: str = "") -> RequestId:
        """An id that no other request of this log has."""
        self._requests += 1
        return RequestId(f"{origin}{'-' if origin else ''}{self._boot_id}-{self._requests}")

    def observe(self, command: AnyCommand) -> None:
        """Put a command that nobody waits for. Dropped while the log cannot be written, and after a failure."""
        if self.storage_error is None and self.failure is None:
            self._inbox.append(command)
            self._wake.set()

    async def decided(self) -> None:
        """Wait until all that was put so far is decided and durable, or was dropped with a failed write."""
        await self._progress.reached(len(self._inbox))

    def ask(
        self, commands: Sequence[Asked], timeout_ms: int = 0, throttle: Throttle | None = None
    ) -> asyncio.Future[list[Answer]]:
        """Put the commands of one request, one a topic; the future gets their answers in the same order.

        With `timeout_ms` above 0 creates that are not complete by then are answered REQUEST_TIMED_OUT. `throttle` is
        told for how long the asker's mutation quota is exhausted.
        """
        pending = self.replies.expect(commands, self._loop, throttle)
        refusal = self._refusal()
        if refusal is not None:
            self.replies.fail(pending, *refusal)
            return pending.future
        if timeout_ms > 0:
            expire = partial(self._expire, pending, commands[0].at_ms + timeout_ms)
            pending.timer = self._loop.call_later(timeout_ms / 1000, lambda: self.background(expire()))
        self._inbox.extend(commands)  # type: ignore[arg-type]
        self._wake.set()
        return pending.future

    def _refusal(self) -> tuple[ErrorCode, str] | None:
        if self.storage_error is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR, replies.STORAGE_FAILED
        if self.failure is not None:
            return ErrorCode.UNKNOWN_SERVER_ERROR, replies.CONTROLLER_FAILED
        if self._stopping.is_set():
            return ErrorCode.NOT_CONTROLLER, replies.CONTROLLER_STOPS
        return None

    # --- deadlines

    async def _expire(self, pending: PendingAsk, deadline_ms: int) -> None:
        for topic in pending.unanswered():
            self._observe_deadline(pending.request_id, topic, deadline_ms)
        await self.decided()
        # What is still unanswered is at the policies or at the cluster; `_consult` will find its time used up.
        why = replies.STILL_JUDGED if self._cluster is None else replies.STILL_CARRIED_OUT
        for topic in pending.unanswered():
            self.replies.resolve(Answer(pending.request_id, topic, int(ErrorCode.REQUEST_TIMED_OUT), why))

    def _observe_deadline(self, request_id: RequestId, topic: TopicName, deadline_ms: int) -> None:
        self.observe(ExpireRequest(request_id=request_id, at_ms=self.now_ms(deadline_ms), topic=topic))

    def _expire_what_waits(self) -> None:
        """Creates whose client went with another process, or was answered a storage error, end at their deadline."""
        self._cancel_timers()
        for key in self.state.waiting:
            topic = self.store.durable(key)
            if topic is not None and topic.waiter is not None:
                self._expire_waiter(topic.waiter, topic.name)

    def _expire_waiter(self, waiter: Waiter, topic: TopicName) -> None:
        delay_s = (waiter.deadline_ms - self.now_ms()) / 1000
        if delay_s <= 0:
            self._observe_deadline(waiter.request_id, topic, waiter.deadline_ms)
            return
        timer: asyncio.TimerHandle

        def time_is_up() -> None:
            self._timers.discard(timer)
            self._observe_deadline(waiter.request_id, topic, waiter.deadline_ms)

        timer = self._loop.call_later(delay_s, time_is_up)
        self._timers.add(timer)

    def _cancel_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    # --- group commit

    async def _run(self) -> None:
        try:
            while self.failure is None:
                if self._inbox:
                    batch, self._inbox = self._inbox[:COMMANDS_PER_COMMIT_MAX], self._inbox[COMMANDS_PER_COMMIT_MAX:]
                    self._progress.begun(len(batch))
                    await self._commit(batch)
                    self._progress.ended(len(batch))
                elif self._stopping.is_set():
                    return
                else:
                    self._wake.clear()
                    await self._wake.wait()
        except Exception as error:
            self._fail(error)

    async def _commit(self, commands: list[AnyCommand]) -> None:
        batch = self._deciding.decide(self.state, self.log.next_offset, commands)
        if batch.entries:
            started = self._loop.time()
            try:
                self.log.write(Commit(batch.entries, {**self.store.changes(self.state), **self._projector.changes()}))
                await self._flush()
            except LogError as error:
                await self._storage_failed(error)
                return
            self.reports.committed(len(commands), len(batch.entries), self._loop.time() - started)
        else:
            await asyncio.sleep(0)
        self.store.became_durable(self.state)
        for _, creates in groupby(batch.consult, lambda command: command.request_id):
            self.background(self._consult(tuple(creates)))
        for answer in batch.answers:
            self.replies.resolve(answer)
        if batch.records:
            self._tell(batch.records)

    def _tell(self, records: list[Recorded]) -> None:
        self._told_end = records[-1].offset + 1
        self.reports.decided(records)
        self.fleet.learn(records)
        self._reviews.learn(records)

    # --- policies

    async def _consult(self, commands: Sequence[Ask]) -> None:
        """Ask the policies, and the cluster, about the topics of one request, and put them again with their words."""
        recoveries = self._recoveries
        try:
            told = await consulted(commands, self.state, self._policies, self._cluster)
        except PolicyRunnerClosed:
            return  # the service stops: nothing may be decided any more, and connections close without an answer
        if self._recoveries != recoveries:
            return  # its client was answered KAFKA_STORAGE_ERROR meanwhile
        now_ms = self.now_ms()
        for command in told:
            self.observe(put_again(command, now_ms))  # type: ignore[arg-type]

    # --- a failing disk

    async def _storage_failed(self, error: LogError) -> None:
        """Answer everything in flight, then read the truth from the disk as soon as it can be written again.

        The state is ahead of the log now, so nothing is decided in between. Raises the LogErrors that stay.
        """
        self.storage_error = str(error)
        self.reports.storage_failed(self.storage_error)
        self._give_up(ErrorCode.KAFKA_STORAGE_ERROR, replies.STORAGE_FAILED)
        while (survivors := await self._recovered()) is None:
            if self._stopping.is_set():
                return
        self._recoveries += 1
        self.storage_error = None
        self.reports.storage_recovered(self.log.next_offset)
        self._expire_what_waits()
        self.fleet.resume()
        if survivors:
            self._tell(survivors)
        self._reviews.sweep()

    async def _recovered(self) -> list[Recorded] | None:
        """After a while, if the log can be written again: what had been written in vain and survived all the same,
        which nobody was told of yet. The state is then what the log holds. None if it cannot be written."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), RECOVER_AFTER_S)
            return None
        try:
            self.log.recover()
            survivors = [decode_event(offset, value) for offset, value in self.log.read(self._told_end)]
            self._load_state()
        except _BEYOND_RECOVERY:
            raise
        except LogError as error:
            self.storage_error = str(error)
            return None
        return survivors
