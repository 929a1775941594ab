"""Commands on their way to those who have a say, and back: the policies (KIP-108), then the cluster that carries
decisions out, if there is one.

A create comes back stamped with the time at which it was judged, so that the time of the log never goes back. What
policies are shown is in `controller.policy.shown`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from controller.brokers.cluster.clearing import Planned
from controller.machine.commands.commands import Clearance, CreateTopic, TopicCommand
from controller.machine.decide import decide
from controller.machine.state import Settings, State
from controller.policy.runner import PolicyJudge
from controller.policy.shown import as_policies_see_it


class DryRunner(Protocol):
    """A cluster that is asked before a decision; see `controller.brokers.cluster.fleet`."""

    async def clear(self, planned: Sequence[Planned]) -> list[Clearance]:
        """What the cluster says of commands that are about to be decided, in order."""
        ...


async def with_verdicts(
    commands: Sequence[TopicCommand], state: State, policies: PolicyJudge | None, cluster: DryRunner | None
) -> list[TopicCommand]:
    """The commands with the words of all who had to be asked, to be put again; `state` is the machine's at that time.

    The cluster is asked only about what the policies let through. Raises PolicyRunnerClosed.
    """
    judged = await _judged(commands, state.cluster.settings, policies)
    return judged if cluster is None else await _dry_run(judged, state, cluster)


async def _judged(
    commands: Sequence[TopicCommand], settings: Settings, policies: PolicyJudge | None
) -> list[TopicCommand]:
    unjudged = [command for command in commands if isinstance(command, CreateTopic) and command.verdict is None]
    if policies is None or not unjudged:
        return list(commands)
    verdicts = await policies.judge([as_policies_see_it(command, settings) for command in unjudged])
    judged = {one.topic: replace(one, verdict=verdict) for one, verdict in zip(unjudged, verdicts, strict=True)}
    return [judged.get(command.topic, command) for command in commands]


async def _dry_run(commands: Sequence[TopicCommand], state: State, cluster: DryRunner) -> list[TopicCommand]:
    """What would be refused here is put again as it is; of the rest the cluster is shown what would be decided."""
    planned: list[Planned] = []
    for command in commands:
        dry: Any = replace(command, validate_only=True, clearance=Clearance())
        answers = decide(state, dry).answers
        if answers and answers[0].code == 0 and answers[0].topic is not None:
            planned.append(Planned(command, answers[0].topic))
    clearances = await cluster.clear(planned)
    by_topic = {one.command.topic: clearance for one, clearance in zip(planned, clearances, strict=True)}
    return [replace(command, clearance=by_topic.get(command.topic, Clearance())) for command in commands]


def restamped(command: TopicCommand, now_ms: int, left_ms: int) -> TopicCommand:
    """The command as of now: of its timeout no more is left than of its request's."""
    if not isinstance(command, CreateTopic) or command.timeout_ms <= 0:
        return replace(command, at_ms=now_ms)
    return replace(command, at_ms=now_ms, timeout_ms=min(command.timeout_ms, left_ms))
