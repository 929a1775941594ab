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
from controller.engine.replies import Replies
from controller.machine.access.quotas import mutations
from controller.machine.commands.commands import (
    AnyCommand,
    BalanceLeaders,
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
from events.catalog import Event, Recorded
from events.logs.log import LogError

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


class Limits:
    """Mutation quotas (KIP-599), and refusals that are counted because a similar one was just recorded."""

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
        self, command: AnyCommand, events: Sequence[Event], answers: Sequence[Answer]
    ) -> list[Recorded]:
        """Apply the events of a decision, perhaps none, and add them to the next commit. If it raises, nothing is
        changed."""
        ...


class Decider:
    """Decides and applies commands in order.

    `fault` reports a command on which deciding raised, and returns its answer; it raises on a command that the process
    cannot do without. Without `limits`, there are no quotas and all refusals are recorded.
    """

    def __init__(self, fault: Callable[[AnyCommand, Exception], Answer], limits: Limits | None = None) -> None:
        self._fault = fault
        self._limits = limits

    def decide(
        self,
        log: Recording,
        commands: Sequence[AnyCommand],
        immediate_commands: Callable[[Sequence[Recorded]], Sequence[AnyCommand]],
    ) -> Decided:
        """Decide commands and record each before the next, until the commit is full; then the commands that brokers
        submit at once about the events. Raises LogError, and what `fault` raises."""
        decided = Decided()
        for place, command in enumerate(commands):
            if decided.size >= SIZE_PER_COMMIT_MAX:
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
    if not decision.events:
        return sum(1 if answer.topic is None else len(answer.topic.partitions) for answer in decision.answers)
    return len(decision.events) + sum([len(getattr(event, "partitions", ())) for event in decision.events])


# --- approval


class DryRunner(Protocol):
    """A target cluster that can dry-run commands."""

    async def dry_run(self, planned: Sequence[PlannedCommand]) -> list[DryRunResult]:
        """The results of the dry run, in the order of the commands."""
        ...


def needs_approval(state: State, command: TopicCommand) -> bool:
    """True if a command needs approval now. If deciding raises, it fails when it is decided."""
    try:
        return decide(state, command).needs_approval  # type: ignore[arg-type]
    except Exception:
        return False


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
