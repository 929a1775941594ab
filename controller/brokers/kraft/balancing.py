"""Leaderships given back to preferred replicas, from time to time, as `auto.leader.rebalance.enable` has it.

After a broker was away others lead its partitions. Its replicas are the preferred ones again as soon as they are in
sync; which topics that concerns is found by a walk through all of them, in slices, so that nobody waits.
"""

from __future__ import annotations

import asyncio

from controller.brokers.port import CommandSink, stamp, walk
from controller.machine.commands.commands import BalanceLeaders
from controller.machine.partitions.blocks import Span, numbered
from controller.machine.state import Topic
from events.logs.log import LogClosed
from events.names import NO_LEADER


async def balance_leaders(controller: CommandSink, every_s: float) -> None:
    """Balance leaders again and again, until cancelled."""
    while True:
        await asyncio.sleep(every_s)
        try:
            await balance_once(controller)
        except LogClosed:
            continue  # the log is being recovered: at the next turn


async def balance_once(controller: CommandSink) -> None:
    """Have the leaderships of all topics looked at once. Raises LogClosed."""
    async for part in walk(controller):
        names = tuple(topic.name for topic in part.topics if _is_imbalanced(topic, part.span))
        if names:
            controller.submit_internal(BalanceLeaders(**stamp(controller, "balance"), topics=names, span=part.span))


def _is_imbalanced(topic: Topic, span: Span | None) -> bool:
    """Whether another than the preferred replica leads, where that one is in sync."""
    return any(
        one.leader not in (one.replicas[0], NO_LEADER) and one.replicas[0] in one.isr
        for _, one in numbered(topic.partitions, span)
    )
