"""Deciding a batch of commands on the state: what is to be recorded, who is to be answered, what the policies judge.

Beside the machine's decisions stand two things that are the shell's, because they count over time: an ask that all
else allows is put again, stamped, if the asker's mutation quota is exhausted; and refusals that are alike are counted
instead of recorded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from controller.brokers.fleet import EVENTS_ALONE, Projector
from controller.machine.commands import AnyCommand, Ask
from controller.machine.decide import decide
from controller.machine.decision import Answer, Decision
from controller.machine.quotas import mutations
from controller.machine.state import State
from controller.runtime.mutation_quotas import MutationQuotas
from controller.runtime.refusals import RefusalRecords
from controller.runtime.replies import Replies
from events.catalog import Cause, Recorded
from events.codec import encode_event
from events.log import Entry


class Batch(msgspec.Struct, gc=False):
    """What a batch of commands came to."""

    records: list[Recorded] = []
    answers: list[Answer] = []
    consult: list[Ask] = []
    entries: list[Entry] = []
    """The records as the log takes them."""


class Deciding:
    """Decides and applies, in order."""

    def __init__(
        self, replies: Replies, quotas: MutationQuotas, refusals: RefusalRecords, projector: Projector = EVENTS_ALONE
    ) -> None:
        self._replies = replies
        self._quotas = quotas
        self._refusals = refusals
        self._projector = projector

    def decide(self, state: State, offset: int, commands: Iterable[AnyCommand]) -> Batch:
        """Bring the state past these commands, whose events begin at `offset`."""
        batch = Batch()
        for command in commands:
            decision = self._decide(state, command)
            if decision.consult:
                batch.consult.append(command)  # type: ignore[arg-type]
                continue
            batch.answers.extend(decision.answers)
            if decision.events and self._is_recorded(command, decision):
                offset = self._record(state, command, decision, offset, batch)
        return batch

    def _decide(self, state: State, command: Any) -> Decision:
        decision = decide(state, command)
        quotas = state.cluster.quotas
        if not quotas or not isinstance(command, Ask):
            return decision
        changes = mutations(state, command, decision)
        wait_ms, is_refused = self._quotas.charge(quotas, command, changes) if changes else (0, False)
        if wait_ms:
            self._replies.throttle(command.request_id, command.at_ms + wait_ms)
        stamped: Any = replace(command, throttle_ms=wait_ms)
        return decide(state, stamped) if is_refused else decision

    def _is_recorded(self, command: Any, decision: Decision) -> bool:
        return decision.refusal is None or self._refusals.is_recorded(command, decision.refusal)

    def _record(self, state: State, command: AnyCommand, decision: Decision, offset: int, batch: Batch) -> int:
        """Apply and keep the events of a decision; the offset after them."""
        at_ms = command.at_ms
        cause = Cause(type(command).__name__, command.request_id)
        for event in decision.events:
            record = Recorded(offset, at_ms, cause, event)  # type: ignore[arg-type]
            key = self._projector.apply(state, record)
            batch.entries.append(Entry(encode_event(at_ms, cause, event), key, getattr(event, "request_id", "")))
            batch.records.append(record)
            offset += 1
        return offset
