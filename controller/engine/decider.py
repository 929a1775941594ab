"""Decides a batch of commands: the events to record, the answers, and the commands that need approval.

Two results depend on time, so they are decided here and not in the machine. If the mutation quota of a client is
exhausted, its command is decided again with the throttle time. Similar refusals are counted and not recorded one by
one.

`with_verdicts` gets the approvals: the verdicts of the create-topic policies (KIP-108), then the dry run at the target
cluster, if there is one. `restamped` gives an approved command the current time, so that the times in the log never
decrease.

A command on which deciding raises fails alone: the state is restored, and the next command is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from controller.access.mutation_quotas import MutationQuotas, Quotas
from controller.access.refusals import RefusalRecords
from controller.brokers.cluster.actions import PlannedCommand
from controller.engine.faults import Faults
from controller.engine.replies import Replies
from controller.machine.access.quotas import mutations
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
from controller.machine.state import Settings, State
from controller.policy.chain import request_metadata
from controller.policy.runner import PolicyJudge
from events.catalog import Cause, Recorded
from events.logs.log import LogError
from projections.store.recorder import Recorder

_INDISPENSABLE = (ChangeSettings, BeginQuorumEpoch)
"""Without these the process would decide by the wrong settings, or lead without an epoch: it must exit."""
SIZE_PER_COMMIT_MAX = 2_000
"""Events and new partitions after which a slice of deciding ends, so that it does not block the event loop."""


class Decided(msgspec.Struct, gc=False):
    """The result of a batch. The records are not committed."""

    records: list[Recorded] = []
    answers: list[Answer] = []
    needs_approval: list[TopicCommand] = []
    """Commands that need approval."""
    size: int = 0
    """Events and new partitions, see `_size`."""
    deferred: Sequence[AnyCommand] = ()
    """Commands deferred to the next commit, because this one is full."""


class QuotaLimits:
    """Decides commands within the mutation quotas of their requesters (KIP-599)."""

    def __init__(self, replies: Replies, buckets: MutationQuotas) -> None:
        self._replies = replies
        self._buckets = buckets

    def decide(
        self, state: State, quotas: Quotas, command: AnyCommand, decide: Callable[[State, AnyCommand], Decision]
    ) -> tuple[AnyCommand, Decision]:
        """Returns the decision, and the command, with a throttle time if the quota is exhausted."""
        decision = decide(state, command)
        if not quotas or not isinstance(command, TopicCommand):
            return command, decision
        changes = mutations(state, command, decision)
        wait_ms, is_refused = self._buckets.charge(quotas, command, changes) if changes else (0, False)
        if wait_ms:
            self._replies.throttle(command.request_id, wait_ms)
        if not is_refused:
            return command, decision
        throttled: Any = replace(command, throttle_ms=wait_ms)
        return throttled, decide(state, throttled)


class Decider:
    """Decides and applies commands in order."""

    def __init__(self, replies: Replies, quotas: MutationQuotas, refusals: RefusalRecords, faults: Faults) -> None:
        self._limits = QuotaLimits(replies, quotas)
        self._refusals = refusals
        self._faults = faults

    def decide(self, recorder: Recorder, commands: Sequence[AnyCommand]) -> Decided:
        """Decide commands and record each before the next, until the commit is full. Raises LogError, and any error on
        a command that the process cannot do without."""
        decided = Decided()
        for place, command in enumerate(commands):
            if decided.size >= SIZE_PER_COMMIT_MAX:
                decided.deferred = commands[place:]
                break
            self._take(recorder, command, decided)
        return decided

    def add(self, recorder: Recorder, commands: Sequence[AnyCommand], decided: Decided) -> None:
        """Decide further commands of the same commit. Raises as `decide` does."""
        for command in commands:
            self._take(recorder, command, decided)

    def _take(self, recorder: Recorder, command: AnyCommand, decided: Decided) -> None:
        try:
            state = recorder.state
            command, decision = self._limits.decide(state, state.cluster.quotas, command, decide)
            decided.size += _size(decision)
            if decision.needs_approval:
                decided.needs_approval.append(command)  # type: ignore[arg-type]
            elif self._is_recorded(command, decision):
                cause = Cause(type(command).__name__, command.request_id)
                decided.records += recorder.record(command.at_ms, cause, decision.events)
            decided.answers.extend(decision.answers)
        except LogError:
            raise
        except Exception as error:
            self._fail(recorder, command, error, decided)

    def _fail(self, recorder: Recorder, command: AnyCommand, error: Exception, decided: Decided) -> None:
        if isinstance(command, _INDISPENSABLE):
            raise error
        if isinstance(command, ReconcileTopics | BalanceLeaders) and len(command.topics) > 1:
            for topic in command.topics:  # one topic that fails must not leave the others without leaders
                self._take(recorder, replace(command, topics=(topic,)), decided)
        else:
            decided.answers.append(self._faults.record(command, error))

    def _is_recorded(self, command: AnyCommand, decision: Decision) -> bool:
        if decision.refusal is None:
            return bool(decision.events)
        assert isinstance(command, TopicCommand), "nothing else is refused by a rule"
        return self._refusals.is_recorded(command, decision)


def _size(decision: Decision) -> int:
    """The size of a decision in events and new partitions; for a dry run, the partitions in its answers."""
    if not decision.events:
        return sum(1 if answer.topic is None else len(answer.topic.partitions) for answer in decision.answers)
    return len(decision.events) + sum([len(getattr(event, "partitions", ())) for event in decision.events])


# --- approval


class DryRunner(Protocol):
    """A target cluster that can dry-run commands."""

    async def dry_run(self, planned: Sequence[PlannedCommand]) -> list[DryRunResult]:
        """The results of the dry run, in the order of the commands."""
        ...


async def with_verdicts(
    commands: Sequence[TopicCommand], state: State, policies: PolicyJudge | None, cluster: DryRunner | None
) -> list[TopicCommand]:
    """The commands with policy verdicts and dry-run results, ready to resubmit. The cluster dry-runs only commands that
    the policies allow. Raises PolicyRunnerClosed."""
    judged = await _judged(commands, state.cluster.settings, policies)
    return judged if cluster is None else await _dry_run(judged, state, cluster)


async def _judged(
    commands: Sequence[TopicCommand], settings: Settings, policies: PolicyJudge | None
) -> list[TopicCommand]:
    unjudged = [command for command in commands if isinstance(command, CreateTopic) and command.verdict is None]
    if policies is None or not unjudged:
        return list(commands)
    verdicts = await policies.judge([request_metadata(command, settings) for command in unjudged])
    judged = {one.topic: replace(one, verdict=verdict) for one, verdict in zip(unjudged, verdicts, strict=True)}
    return [judged.get(command.topic, command) for command in commands]


async def _dry_run(commands: Sequence[TopicCommand], state: State, cluster: DryRunner) -> list[TopicCommand]:
    """Commands that would be rejected here need no dry run; the others are dry-run at the cluster."""
    planned: list[PlannedCommand] = []
    for command in commands:
        dry: Any = replace(command, validate_only=True, dry_run=DryRunResult())
        answers = decide(state, dry).answers
        if answers and answers[0].code == 0 and answers[0].topic is not None:
            planned.append(PlannedCommand(command, answers[0].topic))
    dry_runs = await cluster.dry_run(planned)
    by_topic = {one.command.topic: dry_run for one, dry_run in zip(planned, dry_runs, strict=True)}
    return [replace(command, dry_run=by_topic.get(command.topic, DryRunResult())) for command in commands]


def restamped(command: TopicCommand, now_ms: int, left_ms: int) -> TopicCommand:
    """The command with the current time; its timeout is at most what remains of the request's."""
    if not isinstance(command, CreateTopic) or command.timeout_ms <= 0:
        return replace(command, at_ms=now_ms)
    return replace(command, at_ms=now_ms, timeout_ms=min(command.timeout_ms, left_ms))
