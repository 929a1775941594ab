"""Deciding a batch of commands on the state: what is to be recorded, who is to be answered, what the policies judge.

Beside the machine's decisions stand two things that are the shell's, because they count over time: a command that
all else allows is decided again, stamped, if the requester's mutation quota is exhausted; and refusals that are alike
are counted instead of recorded.

A command on which any of this raises fails alone: the state is as before it, and the next is decided.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from controller.access.mutation_quotas import MutationQuotas
from controller.access.refusals import RefusalRecords
from controller.engine.faults import Faults
from controller.engine.replies import Replies
from controller.machine.access.quotas import mutations
from controller.machine.commands.commands import (
    AnyCommand,
    BalanceLeaders,
    BeginQuorumEpoch,
    ChangeSettings,
    ReconcileTopics,
    TopicCommand,
)
from controller.machine.decide import decide
from controller.machine.decision import Answer, Decision
from controller.machine.state import State
from events.catalog import Cause, Recorded
from events.logs.log import LogError
from projections.store.recorder import Recorder

_INDISPENSABLE = (ChangeSettings, BeginQuorumEpoch)
"""Without these the process would decide by settings that are not its own, or lead nobody: it ends."""
SIZE_PER_COMMIT_MAX = 2_000
"""Events and new partitions, past which one slice of deciding takes no further command: it keeps the loop."""


class Decided(msgspec.Struct, gc=False):
    """What the commands of a batch came to. The records are not committed yet."""

    records: list[Recorded] = []
    answers: list[Answer] = []
    needs_approval: list[TopicCommand] = []
    """Commands that others have a say in, and that are to be put again with it."""
    size: int = 0
    """How much work they were, and make; see `_size`."""
    left: Sequence[AnyCommand] = ()
    """Commands that were not come to: the others have led to enough for one commit."""


class Decider:
    """Decides and applies, in order."""

    def __init__(self, replies: Replies, quotas: MutationQuotas, refusals: RefusalRecords, faults: Faults) -> None:
        self._replies = replies
        self._quotas = quotas
        self._refusals = refusals
        self._faults = faults

    def decide(self, recorder: Recorder, commands: Sequence[AnyCommand]) -> Decided:
        """Decide commands one after another, and record each before the next, until they have led to enough. Raises
        LogError, and what is raised on a command that the process cannot do without."""
        decided = Decided()
        for place, command in enumerate(commands):
            if decided.size >= SIZE_PER_COMMIT_MAX:
                decided.left = commands[place:]
                break
            self._take(recorder, command, decided)
        return decided

    def add(self, recorder: Recorder, commands: Sequence[AnyCommand], decided: Decided) -> None:
        """Decide further commands, to be committed with those that were. Raises as `decide` does."""
        for command in commands:
            self._take(recorder, command, decided)

    def _take(self, recorder: Recorder, command: AnyCommand, decided: Decided) -> None:
        try:
            decision = self._decide(recorder.state, command)
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
            for topic in command.topics:  # one that fails must not keep the others without leaders
                self._take(recorder, replace(command, topics=(topic,)), decided)
        else:
            decided.answers.append(self._faults.note(command, error))

    def _decide(self, state: State, command: AnyCommand) -> Decision:
        decision = decide(state, command)
        quotas = state.cluster.quotas
        if not quotas or not isinstance(command, TopicCommand):
            return decision
        changes = mutations(state, command, decision)
        wait_ms, is_refused = self._quotas.charge(quotas, command, changes) if changes else (0, False)
        if wait_ms:
            self._replies.throttle(command.request_id, wait_ms)
        return decide(state, replace(command, throttle_ms=wait_ms)) if is_refused else decision

    def _is_recorded(self, command: AnyCommand, decision: Decision) -> bool:
        if decision.refusal is None:
            return bool(decision.events)
        assert isinstance(command, TopicCommand), "nothing else is refused by a rule"
        return self._refusals.is_recorded(command, decision)


def _size(decision: Decision) -> int:
    """The work that a decision was, and makes: its events and new partitions; of a dry run what it shows."""
    if not decision.events:
        return sum(1 if answer.topic is None else len(answer.topic.partitions) for answer in decision.answers)
    return len(decision.events) + sum([len(getattr(event, "partitions", ())) for event in decision.events])
