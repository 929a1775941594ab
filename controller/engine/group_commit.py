"""The controller of one process: group commit over an event log.

Path of a command: inbox -> decide and apply, in order, with the brokers' immediate commands -> one atomic write of
events and state -> fsync in a thread -> answers, brokers, log lines. Commands that arrive during an fsync form the next
commit, so under load many commands share one fsync.

Constraints:
- a result is durable before a client is answered and before a reader sees it;
- the event loop stays free during the fsync, and one slice of deciding is bounded;
- time, threads and the log are arguments, so that a simulator can drive this code;
- after a failed write all requests in flight get KAFKA_STORAGE_ERROR, and health is not-ready until the log can be
  written again (`storage`);
- if the log is replicated and another process leads, nothing is decided here: the leader's commits are applied, and
  requests get NOT_CONTROLLER;
- a command on which deciding raises fails alone (`decider`);
- after any other bug nothing more is decided: all requests in flight get UNKNOWN_SERVER_ERROR, `failed` is set, and the
  caller of `start` must exit the process.

Non-goals: this module knows neither Kafka's protocol nor HTTP; the state machine makes the decisions.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import groupby

from controller.access.mutation_quotas import MutationQuotas
from controller.access.refusals import RefusalRecords
from controller.brokers.cluster.target_cluster import TargetCluster
from controller.brokers.kraft.replication import QuorumReplication
from controller.brokers.port import Brokers, LeadLost, publish, stamp
from controller.controller_api import ControllerStatus, Reply
from controller.engine import requests
from controller.engine.decider import Decider, Faults, Limits, restamped, with_verdicts
from controller.engine.reports import Reports
from controller.engine.requests import Inbox, PendingRequest, Replies, Stamps
from controller.engine.storage import Flush, Storage
from controller.engine.tasks import ApprovalExpiry, Background, Deadlines, Reconciler
from controller.machine.commands.access import ApplyRules
from controller.machine.commands.commands import AnyCommand, ChangeSettings, ClientCommand, ExpireRequest, TopicCommand
from controller.machine.configs.changes import BY_CONTROLLER
from controller.machine.errors import ErrorCode
from controller.machine.rules.reading import recorded_rules
from controller.machine.state import State
from controller.policy.chain import PolicyJudge, PolicyRunnerClosed
from controller.store.recorder import WITHOUT_METADATA_LOG, Projector
from controller.store.store import TopicStore
from events.catalog import Configs, Recorded, RulesApplied
from events.logs.log import EventLog, LogError
from events.names import Offset

COMMANDS_PER_COMMIT_MAX = 512
"""Bounds the time for which one slice of deciding blocks the event loop."""


class Controller:
    """Decides commands, records the events, and answers. It is the API's `ControllerPort` and the brokers'
    `CommandSink`."""

    def __init__(
        self,
        log: EventLog,
        brokers: Brokers,
        *,
        boot_id: str,
        clock_ms: Callable[[], int],
        flush: Flush,
        flush_alone: Flush | None = None,
        reports: Reports,
        policies: PolicyJudge | None = None,
        cluster: TargetCluster | None = None,
        partitions_cached: int = 100_000,
        quotas: MutationQuotas | None = None,
        projector: Projector = WITHOUT_METADATA_LOG,
        replication: QuorumReplication | None = None,
        clock_s: Callable[[], float] | None = None,
    ) -> None:
        """`flush_alone` is for a commit of a single command. `clock_s` measures deciding and commits; the default is
        the clock of the event loop."""
        self.cluster_id = log.cluster_id
        self.brokers = brokers
        self.reports = reports
        self.replies = Replies()
        self.failed = asyncio.Event()
        self.deciding = asyncio.Event()
        """Set once this process decides, or has failed."""
        self.failure: BaseException | None = None
        """The bug, or the LogError beyond recovery, that ended deciding."""
        self._storage = Storage(log, flush, flush_alone or flush, projector, replication, partitions_cached)
        self._policies = policies
        self._cluster = cluster
        self._inbox = Inbox()
        self._task: asyncio.Task[None] | None = None
        self._clock_s = clock_s or (lambda: asyncio.get_running_loop().time())
        self._recorded_settings: tuple[Configs, str] = ((), "")
        self._rules_file: str | None = None
        """The text of the rules file of this process."""
        if replication is not None:
            replication.on_lost = self._inbox.interrupt
        stamps = Stamps(boot_id, clock_ms, lambda: self._storage.recorder.last_ms)
        self.now_ms, self.new_request_id = stamps.now_ms, stamps.new_request_id
        background = Background(self._fail)
        self.background, self._end_background = background.begin, background.stop
        self.refusals = RefusalRecords(stamps, self.submit_internal)
        self._faults = Faults(reports.log, reports.figures.command_failed, self.refusals)
        limits = Limits(self.replies, quotas or MutationQuotas(), self.refusals)
        self._decider = Decider(self._faults.record, limits, self._clock_s)
        self._deadlines = Deadlines(self)
        """Deadlines of creates that were pending at the start, at a leader change, or when the log failed."""
        self._reconciler = Reconciler(self, brokers)
        self._approvals = ApprovalExpiry(self)

    # --- start and stop

    async def start(self, settings: Configs, release: str, rules: str | None = None) -> None:
        """Begin to decide: record the settings and the text of the rules file if they changed, and watch the deadlines
        of pending creates. If another process leads, this happens when this process becomes leader."""
        self._recorded_settings, self._rules_file = (settings, release), rules
        await self._read_rules()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="group-commit")
        if self._storage.leads:
            self._begin_deciding()
        self.brokers.start(self)
        self._reconciler.sweep()

    def _begin_deciding(self) -> None:
        settings, release = self._recorded_settings
        self.submit_internal(ChangeSettings(**stamp(self, "settings"), settings=settings, release=release))
        self.apply_rules_file(self._rules_file)
        self._deadlines.begin(self.state.waiting)
        self._approvals.begin()
        self.deciding.set()

    async def _read_rules(self) -> None:
        """Read the effective rules in a thread, because it may take a second. Deciding finds them in the cache."""
        held = self.state.cluster.rules
        if held is not None and held.text:
            await asyncio.to_thread(recorded_rules, held.text)

    def apply_rules_file(self, text: str | None) -> None:
        """Apply the text of the rules file, if this process decides and the file changed since the cluster last applied
        it. None means no file."""
        self._rules_file = text
        if text is not None:
            stamped = stamp(self, "rules")
            self.submit_internal(ApplyRules(**stamped, text=text, is_file=True, principal=BY_CONTROLLER))

    def _compare_rules_file(self, records: Sequence[Recorded]) -> None:
        """Log a warning if the leader applied another rules file than that of this process."""
        for record in records:
            event = record.event
            if isinstance(event, RulesApplied) and event.is_file and self._rules_file not in (None, event.text):
                self.reports.log.warning("the leader applied another rules file than ours", version=event.number)

    async def stop(self) -> None:
        """Decide and answer the commands in the inbox, then end. Pending creates stay in the log for the next start."""
        await self.brokers.stop()
        self._reconciler.stop()
        self.refusals.stop()
        self._inbox.close()
        if self._task is not None:
            await self._task
        self._deadlines.stop()
        self._approvals.stop()
        self.replies.abandon_all()
        await self._end_background()
        await self.reports.close_policies(self._policies)

    def _fail(self, error: BaseException) -> None:
        """Handle a bug: stop deciding, answer every request, and signal that the process must exit."""
        if self.failure is None:
            self.failure = error
            self.reports.log.error("controller failed", why=f"{type(error).__name__}: {error}", exc_info=error)
            self._fail_all(ErrorCode.UNKNOWN_SERVER_ERROR, requests.CONTROLLER_FAILED)
            self._inbox.close()
            self.failed.set()
            self.deciding.set()

    def _fail_all(self, code: ErrorCode, message: str) -> None:
        self._inbox.drop_all()
        self.replies.fail_all(code, message)

    # --- the ports of APIs and brokers

    @property
    def store(self) -> TopicStore:
        """Topics, brokers and settings. Readers use its durable view."""
        return self._storage.store

    @property
    def state(self) -> State:
        """The state that `decide` uses; ahead of the durable view during a commit."""
        return self._storage.state

    @property
    def storage_error(self) -> str | None:
        return self._storage.error

    @property
    def last_offset(self) -> Offset:
        return Offset(self._storage.log.durable_offset - 1)

    def has_pending_creates(self) -> bool:
        return bool(self.state.waiting)

    def status(self) -> ControllerStatus:
        waiting, open_now = len(self.state.waiting), len(self.replies)
        return ControllerStatus(self._storage.log.durable_offset, waiting, open_now, self.storage_error, self.failure)

    def is_reconciled(self) -> bool:
        return self._reconciler.idle

    def submit_internal(self, command: AnyCommand) -> None:
        """Submit a command that has no client. It is dropped while another process leads, and after a failure."""
        if self.storage_error is None and self.failure is None and self._storage.leads:
            self._inbox.enqueue((command,))

    async def decided(self) -> None:
        await self._inbox.decided()

    def submit(self, commands: Sequence[ClientCommand], timeout_ms: int = 0) -> asyncio.Future[Reply]:
        pending = self.replies.expect(commands)
        refusal = self._refusal()
        if refusal is not None:
            self.replies.fail(pending, *refusal)
            return pending.future
        if timeout_ms > 0:
            deadline_ms = commands[0].at_ms + timeout_ms
            pending.when_late(timeout_ms / 1000, lambda: self.background(self._expire(pending, deadline_ms)))
        self._inbox.enqueue(commands)
        return pending.future

    def _refusal(self) -> tuple[ErrorCode, str] | None:
        if self.storage_error is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR, requests.STORAGE_FAILED
        if self.failure is not None:
            return ErrorCode.UNKNOWN_SERVER_ERROR, requests.CONTROLLER_FAILED
        if self._inbox.closed.is_set():
            return ErrorCode.NOT_CONTROLLER, requests.CONTROLLER_STOPS
        if not self._storage.leads:
            return ErrorCode.NOT_CONTROLLER, self._storage.leader
        return None

    async def _expire(self, pending: PendingRequest, deadline_ms: int) -> None:
        for topic in pending.unanswered():
            at_ms = self.now_ms(deadline_ms)
            self.submit_internal(ExpireRequest(request_id=pending.request_id, at_ms=at_ms, topic=topic))
        await self.decided()
        # Other topics still wait for policies or the target cluster; their creates are resubmitted with timeout 0.
        why = requests.STILL_JUDGED if self._cluster is None else requests.STILL_CARRIED_OUT
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
        """Wait until this process may decide, applying the leader's commits meanwhile. False when stopping."""
        while not self._storage.leads:
            self._fail_all(ErrorCode.NOT_CONTROLLER, requests.LEAD_LOST)
            try:
                self._storage.load()
                while (records := await self._storage.follow(self._inbox.closed)) is not None:
                    self._storage.publish()
                    self._compare_rules_file(records)
                    publish(records, self.brokers)
                    if any(isinstance(record.event, RulesApplied) for record in records):
                        self.background(self._read_rules())
            except LogError as error:
                await self._storage_failed(error)  # then the loop follows again from the end of the log
            else:
                await self._read_rules()
                if self._storage.leads:
                    self._begin_deciding()
                    self.brokers.resume()
                    self._reconciler.sweep()
                    await asyncio.sleep(0)  # leadership that is lost repeatedly must not block the event loop
            if self._inbox.closed.is_set() and not self._storage.leads:
                return False
        return True

    async def _commit(self, commands: list[AnyCommand]) -> None:
        decided = self._decider.decide(self._storage.recorder, commands, self.brokers.immediate_commands)
        if decided.deferred:
            self._inbox.return_to_head(decided.deferred)
        if decided.records:
            started_s = self._clock_s()
            try:
                await self._storage.write(alone=len(commands) == 1)
            except LogError as error:
                await self._storage_failed(error)
                return
            except LeadLost:
                return
            self.reports.figures.committed(
                len(commands) - len(decided.deferred), len(decided.records), self._clock_s() - started_s
            )
        self._storage.publish()
        for _, together in groupby(decided.needs_approval, lambda command: command.request_id):
            self.background(self._request_approval(tuple(together)))
        for answer in decided.answers:
            self.replies.resolve(answer)
        if decided.records:
            publish(decided.records, self.reports, self.brokers, self._reconciler, self._approvals)
        await asyncio.sleep(0)  # other tasks run between two commits

    async def _storage_failed(self, error: LogError) -> None:
        """Answer all requests in flight, then wait until the log can be written again."""
        self.reports.log.error("storage failed", why=str(error))
        self._fail_all(ErrorCode.KAFKA_STORAGE_ERROR, requests.STORAGE_FAILED)
        survivors = await self._storage.recover(error, self._inbox.closed)
        if survivors is None:
            return
        self.reports.log.info("storage recovered", next_offset=self._storage.log.next_offset)
        if self._storage.leads:
            self._begin_deciding()  # also the settings: the failed write may have been theirs
        self.brokers.resume()
        if survivors:
            publish(survivors, self.reports, self.brokers, self._reconciler)
        self._reconciler.sweep()

    # --- approval

    async def _request_approval(self, commands: Sequence[TopicCommand]) -> None:
        """Get the verdicts of policies and target cluster on one request, and resubmit the commands with them."""
        recoveries = self._storage.recoveries
        try:
            judged = await with_verdicts(commands, self.state, self._policies, self._cluster)
        except PolicyRunnerClosed:
            return  # the process is stopping: connections close without an answer
        except Exception as error:
            if len(commands) == 1:
                self.replies.resolve(self._faults.record(commands[0], error))
            else:
                for command in commands:  # each alone, so that only a faulty one fails
                    self.background(self._request_approval((command,)))
            return
        if self._storage.recoveries == recoveries:  # else the client got KAFKA_STORAGE_ERROR
            now_ms, left_ms = self.now_ms(), self.replies.left_ms(commands[0].request_id)
            for command in judged:
                self.submit_internal(restamped(command, now_ms, left_ms))
