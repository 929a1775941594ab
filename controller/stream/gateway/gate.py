"""What a gateway counts over time before it sends a command: mutation quotas (KIP-599), and refusals that are alike.

Workers decide each command alone. The gateway stamps what depends on earlier commands, by what it expects the workers
to decide: whether a command is beyond its requester's quota. A command that would be refused like others just now is
answered and counted without being sent. Each gateway has its own buckets and counts, so with N gateways a user has up
to N times its quota.

What it does not do: consult the create-topic policies, which are the workers'. What they refuse has used up quota, and
is recorded each time.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from controller.access.mutation_quotas import MutationQuotas, Quotas
from controller.access.refusals import RefusalRecords
from controller.engine.replies import Replies
from controller.machine.access.quotas import mutations
from controller.machine.commands.commands import CreateTopic, DryRunResult, TopicCommand
from controller.machine.decide import decide
from controller.machine.decision import Answer, Decision
from controller.machine.state import State
from controller.machine.truncation import is_short
from controller.policy.chain import ALLOWED


class GatewayGate:
    """Looks at commands on their way to the workers."""

    def __init__(self, replies: Replies, quotas: MutationQuotas, refusals: RefusalRecords) -> None:
        self._replies = replies
        self._quotas = quotas
        self._refusals = refusals

    def passed(self, state: State, quotas: Quotas, command: TopicCommand) -> TopicCommand | tuple[Answer, ...]:
        """The command as it is to be sent, or the answers of one that is only counted. `state` is the gateway's own of
        the topic's partition, which may be a little behind: what is decided is for the workers to say."""
        expected = _expected(state, command)
        if expected is None:
            return command
        if expected.refusal is not None:
            return command if self._refusals.is_recorded(command, expected) else expected.answers
        changes = mutations(state, command, expected) if quotas else 0
        wait_ms, is_refused = self._quotas.charge(quotas, command, changes) if changes else (0, False)
        if wait_ms:
            self._replies.throttle(command.request_id, wait_ms)
        if not is_refused:
            return command
        return self._beyond_quota(state, replace(command, throttle_ms=wait_ms))

    def _beyond_quota(self, state: State, stamped: Any) -> TopicCommand | tuple[Answer, ...]:
        """One that is refused for its requester's quota: put, until there were too many to record each."""
        expected = _expected(state, stamped)
        if expected is None or expected.refusal is None or self._refusals.is_recorded(stamped, expected):
            return stamped  # type: ignore[no-any-return]
        return expected.answers


def _expected(state: State, command: Any) -> Decision | None:
    """What workers would decide now, if the policies and the cluster agree; None where deciding raises, which is theirs
    to record."""
    try:
        decision = decide(state, command)
        if decision.needs_approval:
            agreed = {"verdict": ALLOWED} if isinstance(command, CreateTopic) else {}
            decision = decide(state, replace(command, dry_run=DryRunResult(), **agreed))
    except Exception:
        return None
    # What workers would cut is not sent to them, but counted: else the commands topic would have it in full.
    return decision if decision.refusal is None or is_short(command) else replace(decision, events=())
