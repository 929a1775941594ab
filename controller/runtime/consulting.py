"""Asks on their way to those who have a say, and back: the policies (KIP-108), then the cluster that carries decisions
out, if there is one.

A create comes back as an ask of the moment at which it was judged, so that the time of the log never goes back. What
policies are shown is in `controller.policy.shown`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from controller.brokers.cluster_clearing import Planned
from controller.machine.commands import Ask, Clearance, CreateTopic
from controller.machine.decide import decide
from controller.machine.state import Settings, State
from controller.policy.runner import PolicyJudge
from controller.policy.shown import as_policies_see_it


class Clears(Protocol):
    """A cluster that is asked before a decision; see `controller.brokers.cluster`."""

    async def clear(self, planned: Sequence[Planned]) -> list[Clearance]:
        """What the cluster says of asks that are about to be decided, in order."""
        ...


async def consulted(
    asks: Sequence[Ask], state: State, policies: PolicyJudge | None, cluster: Clears | None
) -> list[Ask]:
    """The asks with the words of all who had to be asked, to be put again; `state` is the machine's at that time.

    The cluster is asked only about what the policies let through. Raises PolicyRunnerClosed.
    """
    judged = await _judged(asks, state.cluster.settings, policies)
    return judged if cluster is None else await _cleared(judged, state, cluster)


async def _judged(asks: Sequence[Ask], settings: Settings, policies: PolicyJudge | None) -> list[Ask]:
    unjudged = [ask for ask in asks if isinstance(ask, CreateTopic) and ask.verdict is None]
    if policies is None or not unjudged:
        return list(asks)
    verdicts = await policies.judge([as_policies_see_it(ask, settings) for ask in unjudged])
    by_topic = {ask.topic: verdict for ask, verdict in zip(unjudged, verdicts, strict=True)}
    return [
        replace(ask, verdict=by_topic[ask.topic]) if isinstance(ask, CreateTopic) and ask.topic in by_topic else ask
        for ask in asks
    ]


async def _cleared(asks: Sequence[Ask], state: State, cluster: Clears) -> list[Ask]:
    """What would be refused here is put again as it is; of the rest the cluster is shown what would be decided."""
    planned: list[Planned] = []
    for ask in asks:
        dry: Any = replace(ask, validate_only=True, clearance=Clearance())
        answers = decide(state, dry).answers
        if answers and answers[0].code == 0 and answers[0].topic is not None:
            planned.append(Planned(ask, answers[0].topic))
    clearances = await cluster.clear(planned)
    by_topic = {one.ask.topic: clearance for one, clearance in zip(planned, clearances, strict=True)}
    return [replace(ask, clearance=by_topic.get(ask.topic, Clearance())) for ask in asks]


def put_again(command: Ask, now_ms: int) -> Ask:
    """The command as of now: the time that was spent on it is gone from its timeout, and its deadline stays."""
    if not isinstance(command, CreateTopic) or command.timeout_ms <= 0:
        return replace(command, at_ms=now_ms)
    return replace(command, at_ms=now_ms, timeout_ms=max(0, command.at_ms + command.timeout_ms - now_ms))
