"""What a front counts over time before it puts an ask: mutation quotas (KIP-599), and refusals that are alike.

Workers decide each ask for itself. What depends on how many came before is stamped here, by what the front expects the
workers to decide: an ask beyond its asker's quota, and an ask that would be refused like others just now, which is
answered without being put, and counted. Each front has buckets and counts of its own, so with N fronts a user has up
to N times its quota.

What it does not do: ask the create-topic policies, which are the workers'. What they refuse has used up quota, and is
recorded each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from controller.machine.commands import Ask, Clearance, CreateTopic
from controller.machine.decide import decide
from controller.machine.decision import Answer, Decision
from controller.machine.quotas import mutations
from controller.machine.state import State
from controller.machine.verdict import ALLOWED
from controller.runtime.mutation_quotas import MutationQuotas
from controller.runtime.refusals import RefusalRecords
from controller.runtime.replies import Replies
from events.access import QuotaEntity

Quotas = Mapping[QuotaEntity, tuple[tuple[str, float], ...]]


class FrontGate:
    """Looks at asks on their way to the workers."""

    def __init__(self, replies: Replies, quotas: MutationQuotas, refusals: RefusalRecords) -> None:
        self._replies = replies
        self._quotas = quotas
        self._refusals = refusals

    def passed(self, state: State, quotas: Quotas, ask: Ask) -> Ask | tuple[Answer, ...]:
        """The ask as it is to be put, or the answers of one that is only counted. `state` is the front's own of the
        topic's partition, which may be a little behind: what is decided is for the workers to say."""
        expected = _expected(state, ask)
        if expected is None:
            return ask
        if expected.refusal is not None:
            return ask if self._refusals.is_recorded(ask, expected.refusal) else expected.answers
        changes = mutations(state, ask, expected) if quotas else 0
        wait_ms, is_refused = self._quotas.charge(quotas, ask, changes) if changes else (0, False)
        if wait_ms:
            self._replies.throttle(ask.request_id, ask.at_ms + wait_ms)
        if not is_refused:
            return ask
        return self._beyond_quota(state, replace(ask, throttle_ms=wait_ms))

    def _beyond_quota(self, state: State, stamped: Any) -> Ask | tuple[Answer, ...]:
        """One that is refused for its asker's quota: put, until there were too many to record each."""
        expected = _expected(state, stamped)
        if expected is None or expected.refusal is None or self._refusals.is_recorded(stamped, expected.refusal):
            return stamped  # type: ignore[no-any-return]
        return expected.answers


def _expected(state: State, ask: Any) -> Decision | None:
    """What workers would decide now, if the policies and the cluster agree; None where deciding raises, which is theirs
    to record."""
    try:
        decision = decide(state, ask)
        if decision.consult:
            agreed = {"verdict": ALLOWED} if isinstance(ask, CreateTopic) else {}
            decision = decide(state, replace(ask, clearance=Clearance(), **agreed))
    except Exception:
        return None
    return decision
