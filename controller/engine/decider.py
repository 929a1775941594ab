"""Decides a batch of commands with the state machine: the events to record, the answers, and the commands that need
approval. The callers are `group_commit` and the workers (`controller.stream.worker`).

Two results depend on time, so this module and not the state machine decides them. If the mutation quota of a client is
exhausted, its command is decided again with the throttle time. Similar refusals are counted and not recorded one by
one.

A command on which deciding raises fails alone: the state is restored, and the next command is decided. The client gets
UNKNOWN_SERVER_ERROR. The failure is counted, logged with its trace, and recorded as a refusal by the rule
`fault:EXCEPTION`. In an interval only the first of similar failures is recorded; log lines have limits of their own.
"""

import asyncio
import traceback
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from controller.access.authorizer import Caller
from controller.access.mutation_quotas import MutationQuotas, Quotas
from controller.access.refusals import RefusalRecords
from controller.brokers.cluster.actions import PlannedCommand
from controller.brokers.cluster.target_cluster import TargetCluster
from controller.engine.requests import Replies
from controller.machine.access.requests import CLUSTER_NAME, mutations
from controller.machine.commands import NO_TOPIC
from controller.machine.commands.access import RecordRefusals
from controller.machine.commands.commands import (
    AnyCommand,
    BalanceLeaders,
    BeginQuorumEpoch,
    ChangeSettings,
    CreateTopic,
    DryRunResult,
    ReconcileTopics,
    TopicCommand,
)
from controller.machine.decide import decide
from controller.machine.decision import Answer, Decision
from controller.machine.errors import ErrorCode
from controller.machine.state import State
from controller.machine.validation import NAME_LENGTH_MAX
from controller.policy.chain import JudgedCommand, PolicyJudge, request_of
from events.catalog import Event, PartitionsAdded, Recorded, TopicCreated, TopicDiscovered
from events.logs.log import LogError

SIZE_PER_COMMIT_MAX = 2_000
"""Events and new partitions after which a slice of deciding ends, so that it does not block the event loop."""
SECONDS_PER_COMMIT_MAX = 0.05
"""The time after which a slice of deciding ends: with a thousand rules, one decision can take milliseconds."""

T = TypeVar("T")


class Decided(msgspec.Struct, gc=False):
    """The result of a batch. The records are not committed."""

    records: list[Recorded] = []
    answers: list[Answer] = []
    needs_approval: list[TopicCommand] = []
    """Commands to resubmit with the verdicts that `with_verdicts` gets; they have no events yet."""
    size: int = 0
    """Events and new partitions, see `_size`."""
    deferred: Sequence[AnyCommand] = ()
    """Commands deferred to the next commit, because this one is full."""


class Limits:
    """Applies mutation quotas (KIP-599), and counts refusals if a similar refusal was just recorded."""

    def __init__(self, replies: Replies, buckets: MutationQuotas, refusals: RefusalRecords) -> None:
        self._replies = replies
        self._buckets = buckets
        self._refusals = refusals

    def decide(
        self, state: State, quotas: Quotas, command: AnyCommand, decide: Callable[[State, AnyCommand], Decision]
    ) -> tuple[AnyCommand, Decision, bool]:
        """Returns the command, with a throttle time if the quota is exhausted; the decision; and True if the decision
        is a refusal that is only counted."""
        decision = decide(state, command)
        if quotas and isinstance(command, TopicCommand):
            changes = mutations(state, command, decision)
            wait_ms, is_refused = self._buckets.charge(quotas, command, changes) if changes else (0, False)
            if wait_ms:
                self._replies.throttle(command.request_id, wait_ms)
            if is_refused:
                throttled: Any = replace(command, throttle_ms=wait_ms)
                command, decision = throttled, decide(state, throttled)
        if decision.refusal is None:
            return command, decision, False
        assert isinstance(command, TopicCommand), "nothing else is refused by a rule"
        return command, decision, not self._refusals.is_recorded(command, decision)


class Recording(Protocol):
    """A log that records decisions: `Recorder`, or a partition of the events topic."""

    state: State

    def record_decision(
        self, command: AnyCommand, events: Sequence[Event], answers: Sequence[Answer], /
    ) -> list[Recorded]:
        """Apply the events of a decision, perhaps none, and add them to the next commit. If it raises, nothing is
        changed."""


class Decider:
    """Decides and applies commands in order.

    `fault` reports a command on which deciding raised, and returns its answer; it raises on a command that the process
    cannot do without. Without `limits`, there are no quotas and all refusals are recorded. `clock_s` is monotonic.
    """

    def __init__(
        self,
        fault: Callable[[AnyCommand, Exception], Answer],
        limits: Limits | None = None,
        clock_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._fault = fault
        self._limits = limits
        self._clock_s = clock_s

    def decide(
        self,
        log: Recording,
        commands: Sequence[AnyCommand],
        immediate_commands: Callable[[Sequence[Recorded]], Sequence[AnyCommand]],
    ) -> Decided:
        """Decide commands and record each before the next, until the commit is full. Then decide the commands with
        which brokers answer the new events. Raises LogError, and what `fault` raises."""
        decided = Decided()
        end_s = self._clock_s() + SECONDS_PER_COMMIT_MAX
        for place, command in enumerate(commands):
            if decided.size >= SIZE_PER_COMMIT_MAX or (place and self._clock_s() >= end_s):
                decided.deferred = commands[place:]
                break
            self._decide(log, command, decided)
        if decided.records:
            for command in immediate_commands(decided.records):
                self._decide(log, command, decided)
        return decided

    def _decide(self, log: Recording, command: AnyCommand, decided: Decided) -> None:
        try:
            state, limits, is_counted = log.state, self._limits, False
            if limits is None:
                decision = decide(state, command)
            else:
                command, decision, is_counted = limits.decide(state, state.cluster.quotas, command, decide)
            decided.size += _size(decision)
            if decision.needs_approval:
                decided.needs_approval.append(command)  # type: ignore[arg-type]
            elif not is_counted:
                decided.records += log.record_decision(command, decision.events, decision.answers)
            decided.answers.extend(decision.answers)
        except LogError:
            raise
        except Exception as error:
            if isinstance(command, ReconcileTopics | BalanceLeaders) and len(command.topics) > 1:
                for topic in command.topics:  # one topic that fails must not leave the others without leaders
                    self._decide(log, replace(command, topics=(topic,)), decided)
            else:
                decided.answers.append(self._fault(command, error))


def _size(decision: Decision) -> int:
    """The size of a decision in events and new partitions; for a dry run, the partitions in its answers."""
    size = len(decision.events)
    if not size:
        for answer in decision.answers:
            size += 1 if answer.topic is None else len(answer.topic.partitions)
    for event in decision.events:
        if type(event) in _WITH_PARTITIONS:
            size += len(event.partitions)  # type: ignore[union-attr]
    return size


_WITH_PARTITIONS = frozenset((TopicCreated, PartitionsAdded, TopicDiscovered))


async def with_pauses(items: Iterable[T]) -> AsyncIterator[T]:
    """Iterate over items, and let the event loop run after each SECONDS_PER_COMMIT_MAX of work on them."""
    now_s = asyncio.get_running_loop().time
    since_s = now_s()
    for item in items:
        if now_s() - since_s >= SECONDS_PER_COMMIT_MAX:
            await asyncio.sleep(0)
            since_s = now_s()
        yield item


# --- approval


def needs_approval(state: State, command: TopicCommand) -> bool:
    """True if deciding this command now would require approval. False if deciding raises: `Decider` reports that."""
    try:
        return decide(state, command).needs_approval
    except Exception:
        return False


async def with_verdicts(
    commands: Sequence[TopicCommand], state: State, policies: PolicyJudge | None, cluster: TargetCluster | None
) -> list[TopicCommand]:
    """The commands with the verdicts of policies (KIP-108), then with the results of dry runs at the target cluster,
    ready to resubmit. The cluster dry-runs only commands that the policies allow. Raises PolicyRunnerClosed."""
    judged = await _judged(commands, state, policies)
    return judged if cluster is None else await _dry_run(judged, state, cluster)


async def _judged(commands: Sequence[TopicCommand], state: State, policies: PolicyJudge | None) -> list[TopicCommand]:
    unjudged = [command for command in commands if isinstance(command, JudgedCommand) and command.verdict is None]
    if policies is None or not unjudged:
        return list(commands)
    verdicts = await policies.judge([request_of(command, state) async for command in with_pauses(unjudged)])
    judged = {one.topic: replace(one, verdict=verdict) for one, verdict in zip(unjudged, verdicts, strict=True)}
    return [judged.get(command.topic, command) for command in commands]


async def _dry_run(commands: Sequence[TopicCommand], state: State, cluster: TargetCluster) -> list[TopicCommand]:
    """Commands that would be rejected here need no dry run; the others are dry-run at the cluster."""
    planned: list[PlannedCommand] = []
    async for command in with_pauses(commands):
        dry: Any = replace(command, validate_only=True, dry_run=DryRunResult())
        answers = decide(state, dry).answers
        if answers and answers[0].code == 0 and answers[0].topic is not None:
            planned.append(PlannedCommand(command, answers[0].topic))
    dry_runs = await cluster.dry_run(planned)
    by_topic = {one.command.topic: dry_run for one, dry_run in zip(planned, dry_runs, strict=True)}
    return [replace(command, dry_run=by_topic.get(command.topic, DryRunResult())) for command in commands]


def restamped(command: TopicCommand, now_ms: int, left_ms: int) -> TopicCommand:
    """The command with the current time, so that times in the log never decrease. Its timeout is at most `left_ms`, the
    remaining time of the request, and its deadline is not later than before: the request's ExpireRequest would come too
    early for a later one."""
    if not isinstance(command, CreateTopic) or command.timeout_ms <= 0:
        return replace(command, at_ms=now_ms)
    until_deadline_ms = max(0, command.at_ms + command.timeout_ms - now_ms)
    return replace(command, at_ms=now_ms, timeout_ms=min(command.timeout_ms, left_ms, until_deadline_ms))


FAILED: Final = "The controller failed on this request. Its log has the cause."
CONTROLLER: Final = "(controller)"
"""The principal of commands without a client."""
_INDISPENSABLE = (ChangeSettings, BeginQuorumEpoch)
"""If one of these commands fails, the process must exit: it would use wrong settings, or lead without an epoch."""
TRACE_CHARS_MAX: Final = 8000


class Faults:
    """Reports failed commands: log lines, a counter, and refusals."""

    def __init__(self, log: Any, count: Callable[[str], None], refusals: RefusalRecords) -> None:
        self._log = log
        self._count = count
        self._refusals = refusals

    def record(self, command: AnyCommand, error: Exception) -> Answer:
        """Report a failed command; returns the answer for its client. Raises the error of an indispensable one."""
        if isinstance(command, _INDISPENSABLE):
            raise error
        kind, topic = type(command).__name__, _topic_of(command)
        self._count(kind)
        self._log.error(
            "command failed",
            command=kind,
            request=command.request_id,
            topic=topic,
            why=one_line(error),
            trace=trace_of(error),
        )
        if not isinstance(command, RecordRefusals):  # recording its failure would submit another one, forever
            principal, client_id = getattr(command, "principal", CONTROLLER), getattr(command, "client_id", None)
            requester = Caller(_plain(principal), client_id=client_id and _plain(client_id), api=kind)
            resource = f"Topic:{topic}" if topic else f"Cluster:{CLUSTER_NAME}"
            rule = f"fault:{type(error).__name__}"
            self._refusals.record_denial(requester, "", resource, int(ErrorCode.UNKNOWN_SERVER_ERROR), rule)
        topic_name = getattr(command, "topic", NO_TOPIC)
        return Answer(command.request_id, topic_name, int(ErrorCode.UNKNOWN_SERVER_ERROR), FAILED)


def one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:TRACE_CHARS_MAX]


def trace_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-TRACE_CHARS_MAX:]


def _topic_of(command: AnyCommand) -> str:
    """The topic of a command; empty for none or several."""
    several: tuple[str, ...] = getattr(command, "topics", ())
    return _plain(several[0] if len(several) == 1 else getattr(command, "topic", NO_TOPIC))


def _plain(text: str) -> str:
    """The text in bounded length and valid UTF-8."""
    return text[:NAME_LENGTH_MAX].encode("utf-8", "replace").decode()
