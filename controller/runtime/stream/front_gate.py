"""What a front counts over time before it puts an ask: mutation quotas (KIP-599), and refusals that are alike.

Workers decide each ask for itself. What depends on how many came before is stamped here: an ask beyond its asker's
quota, and an ask that would be refused like others just now, which is answered without being put, and counted. Each
front has buckets and counts of its own, so with N fronts a user has up to N times its quota.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from controller.machine.commands import Ask
from controller.machine.decide import decide
from controller.machine.decision import Answer
from controller.machine.quotas import mutations
from controller.machine.state import State
from controller.runtime.mutation_quotas import MutationQuotas
from controller.runtime.refusals import AUTO_CREATION, RefusalRecords
from controller.runtime.replies import Replies


class FrontGate:
    """Looks at asks on their way to the workers."""

    def __init__(self, replies: Replies, quotas: MutationQuotas, refusals: RefusalRecords) -> None:
        self._replies = replies
        self._quotas = quotas
        self._refusals = refusals

    def passed(self, state: State, ask: Ask) -> Ask | tuple[Answer, ...]:
        """The ask as it is to be put, or the answers of one that is only counted. `state` is the front's own, which may
        be a little behind: what is decided is for the workers to say."""
        quotas = state.cluster.quotas
        if not quotas and not ask.denied and ask.api != AUTO_CREATION:
            return ask
        expected = decide(state, ask)  # type: ignore[arg-type]  # every Ask is one of the commands
        if expected.refusal is not None and not self._refusals.is_recorded(ask, expected.refusal):
            return expected.answers
        changes = mutations(state, ask, expected) if quotas else 0
        wait_ms, is_refused = self._quotas.charge(quotas, ask, changes) if changes else (0, False)
        if wait_ms:
            self._replies.throttle(ask.request_id, ask.at_ms + wait_ms)
        stamped: Any = replace(ask, throttle_ms=wait_ms) if is_refused else ask
        return stamped  # type: ignore[no-any-return]
