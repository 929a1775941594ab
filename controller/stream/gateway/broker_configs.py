"""Dynamic configs of brokers, brought from the partition that decides them to all the others.

The first partition decides them, which gives them one order. Topics of every partition use them, so other partitions
get copies. A copy is a command with the complete new configs; if they are equal to the current ones it changes nothing.
The gateway that submitted a change copies it to all partitions, then answers. If that gateway dies, another one copies
what has lagged for two heartbeats.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from controller.engine.stamps import Stamps
from controller.machine.commands.commands import AnyCommand, CopyBrokerConfigs
from controller.stream.gateway.producer import NotProduced
from controller.stream.log.commands_topic import CLUSTER_PARTITION
from controller.stream.log.partition import PartitionState

Send = Callable[[AnyCommand, Sequence[int]], None]
"""Sends a command to partitions. Raises NotProduced."""


class BrokerConfigCopies:
    """Keeps all `partitions` at the configs of brokers that the first has."""

    def __init__(self, partitions: Sequence[PartitionState], stamps: Stamps, send: Send) -> None:
        self._partitions = partitions
        self._stamps = stamps
        self._send = send
        self._lagged: tuple[int, ...] = ()
        """The partitions that lagged behind at the last heartbeat."""
        self._arrived = asyncio.Event()

    def learn(self) -> None:
        """The partitions were read further."""
        if not self._lagging():
            self._arrived.set()

    def heartbeat(self) -> None:
        """Bring what nobody else has brought by now. It is tried again at the next ones."""
        lagging = self._lagging()
        if lagging and lagging == self._lagged:
            with suppress(NotProduced):
                self._bring(lagging)
        self._lagged = lagging

    async def everywhere(self, within_s: float) -> None:
        """Bring what the first partition has to all, and wait until they have it, or the time is up."""
        lagging = self._lagging()
        if lagging:
            self._arrived.clear()
            with suppress(NotProduced, asyncio.TimeoutError):
                self._bring(lagging)
                await asyncio.wait_for(self._arrived.wait(), within_s)

    def _bring(self, numbers: Sequence[int]) -> None:
        first = self._partitions[CLUSTER_PARTITION].store.durable_cluster
        request_id, at_ms = self._stamps.new_request_id("configs"), self._stamps.now_ms()
        self._send(CopyBrokerConfigs(request_id=request_id, at_ms=at_ms, configs=first.configs_of_brokers()), numbers)

    def _lagging(self) -> tuple[int, ...]:
        clusters = [each.store.durable_cluster for each in self._partitions]
        first = clusters[CLUSTER_PARTITION].configs_of_brokers()
        return tuple(number for number, each in enumerate(clusters) if each.configs_of_brokers() != first)
