"""A dry run at the cluster before a decision: would it do what is about to be decided?

The cluster has rules of its own: a policy, ACLs, limits, topics that were made there a moment ago. A dry run there, of
the very replicas that would be chosen, finds what it would refuse before anything is recorded as done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from controller.brokers.cluster.carrier import config_steps, new_partitions, new_topic
from controller.brokers.cluster.link import ClusterLink, Refusal
from controller.brokers.cluster.security import NotAuthenticated
from controller.brokers.cluster.wire import ClusterUnreachable
from controller.machine.commands import commands
from controller.machine.errors import ErrorCode
from controller.machine.state import Topic

CHANGE_WAITS_MS = 30_000
"""How long a change without a timeout of its own is tried while the cluster does not answer."""
BACKOFF_S_MIN, BACKOFF_S_MAX = 0.1, 2.0


class Planned(NamedTuple):
    """A command, and the topic as it would be."""

    command: commands.TopicCommand
    topic: Topic


class Clearing:
    """Dry runs at the cluster, tried until the time of their command is up."""

    def __init__(self, link: ClusterLink) -> None:
        self._link = link

    async def clear(self, planned: Sequence[Planned]) -> list[commands.DryRunResult]:
        """What the cluster says of each, in order."""
        creates = [one for one in planned if isinstance(one.command, commands.CreateTopic)]
        answers = await asyncio.gather(
            *([self._creates(creates)] if creates else []),
            *(self._change(one) for one in planned if not isinstance(one.command, commands.CreateTopic)),
        )
        by_topic = {name: dry_run for each in answers for name, dry_run in each.items()}
        return [by_topic[one.command.topic] for one in planned]

    async def _creates(self, planned: Sequence[Planned]) -> dict[str, commands.DryRunResult]:
        cleared: dict[str, commands.DryRunResult] = {}
        left, backoff_s, begun_s = list(planned), BACKOFF_S_MIN, _now_s()
        while left:
            wanted = [new_topic(one.topic.name, one.topic.partitions, one.topic.configs) for one in left]
            refusals = await self._link.create(wanted, validate_only=True)
            for one in left:
                refusal = refusals[one.topic.name]
                if refusal is None or not refusal.retriable or _is_over(one.command, begun_s):
                    cleared[one.command.topic] = _dry_run_result(refusal)
            left = [one for one in left if one.command.topic not in cleared]
            if left:
                await asyncio.sleep(backoff_s)
                backoff_s = min(backoff_s * 2, BACKOFF_S_MAX)
        return cleared

    async def _change(self, planned: Planned) -> dict[str, commands.DryRunResult]:
        backoff_s, begun_s = BACKOFF_S_MIN, _now_s()
        while True:
            try:
                refusal = await self._try(planned)
            except (ClusterUnreachable, NotAuthenticated) as unreachable:
                refusal = Refusal(int(ErrorCode.REQUEST_TIMED_OUT), str(unreachable), retriable=True)
            if refusal is None or not refusal.retriable or _is_over(planned.command, begun_s):
                return {planned.command.topic: _dry_run_result(refusal)}
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_S_MAX)

    async def _try(self, planned: Planned) -> Refusal | None:
        command, topic = planned
        match command:
            case commands.CreatePartitions():
                seen = (await self._link.look([topic.name])).topics.get(topic.name)
                first = len(seen.partitions) if seen is not None else 0
                more = new_partitions(topic.name, len(topic.partitions), topic.partitions[first:])
                return (await self._link.grow([more], validate_only=True))[topic.name]
            case commands.AlterTopicConfigs():
                has = (await self._link.configs([topic.name])).get(topic.name, ())
                puts, deletes = config_steps(has, topic.configs)
                if not puts and not deletes:
                    return None
                return await self._link.alter_configs(topic.name, puts, deletes, validate_only=True)
            case _:
                return None


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _is_over(command: commands.TopicCommand, begun_s: float) -> bool:
    """Whether the cluster was tried for as long as the command waits."""
    waits_ms = command.timeout_ms if isinstance(command, commands.CreateTopic) else CHANGE_WAITS_MS
    return _now_s() >= begun_s + max(0, waits_ms) / 1000


def _dry_run_result(refusal: Refusal | None) -> commands.DryRunResult:
    if refusal is None:
        return commands.DryRunResult()
    if refusal.retriable:
        return commands.DryRunResult(
            refusal.code, f"The cluster that carries decisions out does not answer: {refusal.message}"
        )
    return commands.DryRunResult(refusal.code, refusal.message)
